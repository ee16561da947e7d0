// The client of docs/subscriptions.md that resumes: two subscriptions on one socket.

import { createClient } from "graphql-ws";
import WebSocket from "ws";
import { given, say, told } from "./conversation.js";

globalThis.WebSocket = WebSocket;
const load = new Function("createClient", "url", "connectionParams", `${given.snippet}; return { client, follow };`);
const { client, follow } = load(createClient, given.url, {});

client.on("connected", () => say("connected"));
client.on("closed", () => say("closed"));
for (const area of given.areas) {
  const query = "subscription ($area: String!) { sightingReported(area: $area) { area description } }";
  follow(query, { area }, {
    apply: (data) => say(data.sightingReported),
    startOver: () => say(`${area} starts over`),
    error: (problem) => say({ area, problem }),
    complete: () => say(`${area} is complete`),
  });
}
await told();
process.exit();
