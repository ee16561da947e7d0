// Follows a subscription: it resumes after each disconnect without losing or repeating an event.
import { delayMs, GatewayError, type Client, type Document, type Problem } from "./transport.ts";

export interface Handlers<Data> {
  /** Handles an event. `errors` are those of fields that could not be read. */
  apply(data: Data, errors?: readonly Problem[]): void;
  /** Replaces the state: missed events are gone. `data` is the present state, or null: then read the list again. */
  startOver(data: Data | null): void;
  /** Returns the object of an event and its version. Events with a version that is not newer are dropped. */
  version?(data: Data): readonly [id: string, version: number];
  /** Handles the end: without an error if the subscription is complete. */
  end?(error?: unknown): void;
}

/** Subscribe to a document. Returns a function that ends the subscription. */
export function follow<Data, Variables>(
  { socket, positions }: Client,
  document: Document<Data, Variables>,
  variables: Variables,
  { apply, startOver, version, end }: Handlers<Data>,
): () => void {
  const extensions: Record<string, unknown> = { resumeAfter: null }; // sent again with each reconnect
  const newest = new Map<string, number>();
  let failures = 0;
  let unsubscribe = () => {};

  const isNew = (data: Data): boolean => {
    if (!version) return true;
    const [id, number] = version(data);
    if (number <= (newest.get(id) ?? -Infinity)) return false;
    newest.set(id, number);
    return true;
  };

  function subscribe(): void {
    unsubscribe = socket.subscribe<Data>(
      { query: String(document), variables: variables as Record<string, unknown>, extensions },
      {
        next({ data, errors, extensions: others }) {
          const received = others as Record<string, unknown> | undefined;
          failures = 0;
          if (received?.["eventId"]) extensions["resumeAfter"] = received["eventId"];
          if (received?.["resync"] || errors?.some((each) => each.extensions?.["code"] === "RESYNC")) {
            newest.clear();
            if (data) isNew(data);
            startOver(data ?? null);
          } else if (!data) {
            end?.(new GatewayError(errors as readonly Problem[]));
          } else if (isNew(data)) {
            apply(data, errors as readonly Problem[] | undefined);
          }
        },
        error: fail,
        complete: () => end?.(),
      },
    );
  }

  function fail(problem: unknown): void {
    const errors = Array.isArray(problem) ? (problem as readonly Problem[]) : [];
    if (errors.some((each) => each.extensions?.retryable)) {
      // The store was away, or this client was too slow: the missed events are sent again.
      const timer = setTimeout(subscribe, delayMs(failures++));
      unsubscribe = () => clearTimeout(timer);
    } else end?.(errors.length ? new GatewayError(errors) : problem);
  }

  subscribe();
  return () => unsubscribe();
}
