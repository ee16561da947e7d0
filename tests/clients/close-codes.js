// Which code ends a socket, as the public client graphql-ws sees it, and whether it connects again after it.

import { createClient, CloseCode, stringifyMessage } from "graphql-ws";
import WebSocket from "ws";
import { given, say } from "./conversation.js";

const names = Object.fromEntries(Object.entries(CloseCode).map(([name, code]) => [code, name]));
const subscribe = (id, query) => ({ id, type: "subscribe", payload: { query } });

class Mute extends WebSocket {
  send() {}
}
class Unnamed extends WebSocket {
  constructor(url) {
    super(url);
  }
}

const onConnected = (...messages) => ({
  on: { connected: (socket) => messages.forEach((message) => socket.send(message)) },
});
const withToken = (token) => ({ connectionParams: { Authorization: `Bearer ${token}` } });

const ways = {
  garbage: onConnected("[]"),
  binary: onConnected(Buffer.from("{}")),
  tooLarge: onConnected("x".repeat(65_537)),
  twoInits: onConnected('{"type":"connection_init"}'),
  sameId: onConnected(...["1", "1"].map((id) => stringifyMessage(subscribe(id, "subscription { held }")))),
  beforeTheAck: { on: { opened: (socket) => socket.send(stringifyMessage(subscribe("1", "{ hello }"))) } },
  noInit: { webSocketImpl: Mute },
  noSubprotocol: { webSocketImpl: Unnamed },
  wrongToken: withToken("wrong"),
  keysCannotBeFetched: withToken("unlucky"),
  ourFault: withToken("bug"),
  noPongs: { disablePong: true },
};

// How it ended, the second time where the client connected again.
function closing(url, { on, query = "subscription { held }", ...options }) {
  return new Promise((resolve) => {
    let attempts = 0;
    const ended = ({ code, reason }) => resolve({ code, name: names[code] ?? null, reason, attempts });
    const watching = { connecting: () => void attempts++, closed: (event) => attempts === 2 && ended(event) };
    const patience = { retryAttempts: 1, retryWait: async () => {} };
    const how = { url, webSocketImpl: WebSocket, ...patience, ...options, on: { ...watching, ...on } };
    createClient(how).subscribe({ query }, { next() {}, error: ended, complete() {} });
  });
}

const closed = async ([way, options]) => [way, await closing(given.urls[way] ?? given.url, options)];
const found = await Promise.all(Object.entries(ways).map(closed));
say(Object.fromEntries(found));
process.exit();
