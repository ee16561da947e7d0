// The transport of a generated client: requests with retries over HTTP, and subscriptions that resume over a WebSocket.
import type { DocumentTypeDecoration } from "@graphql-typed-document-node/core";
import { createClient, type Client as SocketClient } from "graphql-ws";

export type Document<Data, Variables> = String & DocumentTypeDecoration<Data, Variables>;
type Extensions = { code?: string; retryable?: boolean; retryAfter?: number; mayHaveBeenApplied?: boolean };
export type Problem = { message: string; path?: readonly (string | number)[]; extensions?: Extensions };
type Result<Data> = { data?: Data | null; errors?: readonly Problem[]; extensions?: Record<string, unknown> };

export interface Options {
  url: string;
  /** A token, or a function that returns one for each request and each connection. */
  token?: string | (() => string | Promise<string>);
  /** The most times that a request is sent. */
  attempts?: number;
  webSocketImpl?: unknown;
}

/** The errors of a response, with the data beside them. `code` is the code of the first error. */
export class GatewayError extends Error {
  readonly errors: readonly Problem[];
  readonly data: unknown;
  readonly code: string;

  constructor(errors: readonly Problem[], data: unknown = null) {
    super(errors.map((problem) => problem.message).join("\n"));
    this.errors = errors;
    this.data = data;
    this.code = errors[0]?.extensions?.code ?? "INTERNAL";
  }
}

const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
// Delays grow from 0.2 s to 10 s. The random part spreads the clients of a gateway that restarts.
export const delayMs = (attempt: number) => Math.min(200 * 2 ** attempt, 10_000) * (0.5 + Math.random() / 2);

export interface Client {
  request<Data, Variables>(document: Document<Data, Variables>, variables: Variables): Promise<Data>;
  socket: SocketClient;
  /** The extensions of each open subscription by the id of its operation, with the position after which it resumes. */
  positions: Map<string, Record<string, unknown>>;
  close(): void;
}

export function createGatewayClient({ url, token, attempts = 5, webSocketImpl }: Options): Client {
  const authorization = async (): Promise<Record<string, string>> => {
    const value = typeof token === "function" ? await token() : token;
    return value ? { Authorization: `Bearer ${value}` } : {};
  };
  const positions: Client["positions"] = new Map();
  let operations = 0;
  const socket = createClient({
    url: url.replace(/^http/, "ws"),
    connectionParams: authorization,
    webSocketImpl,
    retryAttempts: Infinity,
    shouldRetry: () => true,
    retryWait: (retries) => sleep(delayMs(retries)) as Promise<void>,
    generateID({ extensions }) {
      const id = String(++operations);
      if (extensions) positions.set(id, extensions);
      return id;
    },
  });
  socket.on("message", (message) => {
    if (message.type === "complete" || message.type === "error") positions.delete(message.id);
    if (message.type !== "ping") return;
    for (const [id, position] of Object.entries(message.payload?.["resume"] ?? {})) {
      const extensions = positions.get(id);
      if (extensions) extensions["resumeAfter"] = position;
    }
  });

  async function request<Data, Variables>(document: Document<Data, Variables>, variables: Variables): Promise<Data> {
    // The gateway executes a mutation once for each key, so that it may be sent again.
    const key: Record<string, string> = /^\s*mutation\b/m.test(String(document)) ? { "Idempotency-Key": crypto.randomUUID() } : {};
    const body = JSON.stringify({ query: String(document), variables });
    for (let attempt = 1; ; attempt++) {
      const result = await send<Data>(body, { ...(await authorization()), ...key }).catch((problem) => {
        if (attempt >= attempts) throw problem;
        return undefined; // there was no response
      });
      if (result && !result.errors?.length) return result.data as Data;
      const problem = result?.errors?.find(({ extensions }) => extensions?.retryable);
      if (result && (!problem || attempt >= attempts)) throw new GatewayError(result.errors!, result.data);
      await sleep(1000 * (problem?.extensions?.retryAfter ?? 0) || delayMs(attempt));
    }
  }

  async function send<Data>(body: string, headers: Record<string, string>): Promise<Result<Data>> {
    const accept = "application/graphql-response+json";
    const all = { "Content-Type": "application/json", Accept: accept, ...headers };
    return (await fetch(url, { method: "POST", headers: all, body })).json();
  }

  return { request, socket, positions, close: () => void socket.dispose() };
}
