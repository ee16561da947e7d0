// Records what clients receive, and what they write to the console. Import this module before a client.

import { format } from "node:util";
import WebSocket from "ws";

export const complaints = [];
export const requests = [];

let waiting = [];
let alter = (payload) => payload;

// The next payload that a client receives: a response, or the first event of a subscription.
export const nextPayload = () => new Promise((resolve) => waiting.push(resolve));

// Alter the responses over HTTP from now on.
export function alterResponses(change) {
  alter = change;
}

function received(payload) {
  for (const resolve of waiting) resolve(payload);
  waiting = [];
}

for (const level of ["warn", "error"]) console[level] = (...words) => complaints.push(format(...words));

const request = globalThis.fetch;
globalThis.fetch = async (...how) => {
  requests.push(how[1]?.body ?? String(how[0]));
  const response = await request(...how);
  if (response.headers.get("content-type")?.startsWith("text/event-stream")) {
    void recordFirstEvent(response.clone());
    return response;
  }
  const payload = alter(await response.json());
  received(structuredClone(payload));
  return new Response(JSON.stringify(payload), { status: response.status, headers: response.headers });
};

async function recordFirstEvent(response) {
  let text = "";
  const decoder = new TextDecoder();
  for await (const chunk of response.body) {
    text += decoder.decode(chunk, { stream: true });
    const next = /^event: ?next\ndata: ?(.*)\n\n/m.exec(text);
    if (next) return received(JSON.parse(next[1]));
  }
}

globalThis.WebSocket = class extends WebSocket {
  constructor(...how) {
    super(...how);
    const begun = new Set();
    this.on("message", (data) => {
      const { type, id, payload } = JSON.parse(data);
      if (type !== "next" || begun.has(id)) return;
      begun.add(id);
      received(payload);
    });
  }
};
