// Records what clients receive, and what they write to the console. Import this module before a client.

import { format } from "node:util";
import WebSocket from "ws";

export const complaints = [];
export const requests = [];

let waiting = [];
let alter = (payload) => payload;

// The next payload that a client receives: a response, or an event of a subscription.
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
    void recordEvents(response.clone());
    return response;
  }
  const payload = alter(await response.json());
  received(structuredClone(payload));
  return new Response(JSON.stringify(payload), { status: response.status, headers: response.headers });
};

async function recordEvents(response) {
  let text = "";
  const decoder = new TextDecoder();
  try {
    for await (const chunk of response.body) {
      text += decoder.decode(chunk, { stream: true });
      const events = text.split("\n\n");
      text = events.pop();
      for (const event of events) {
        const data = /^event: ?next$/m.test(event) && /^data: ?(.*)$/m.exec(event);
        if (data) received(JSON.parse(data[1]));
      }
    }
  } catch (error) {
    if (error.name !== "AbortError") throw error;
  }
}

globalThis.WebSocket = class extends WebSocket {
  constructor(...how) {
    super(...how);
    this.on("message", (data) => {
      const message = JSON.parse(data);
      if (message.type === "next") received(message.payload);
    });
  }
};
