// The public client graphql-ws against a gateway: a scenario by its name, told step by step.

import { createClient, MessageType, stringifyMessage } from "graphql-ws";
import WebSocket from "ws";
import { given, say, told } from "./conversation.js";

const SIGHTINGS = 'subscription { sightingReported(area: "Harbor") { description } }';
const REPORT = `mutation ($description: String!) {
  reportSighting(input: { area: "Harbor", category: "Cats", description: $description }) { description }
}`;

function connect(options = {}) {
  const connectionParams = given.token && { Authorization: `Bearer ${given.token}` };
  return createClient({ url: given.url, webSocketImpl: WebSocket, retryAttempts: 0, connectionParams, ...options });
}

async function result(client, query, variables) {
  for await (const answer of client.iterate({ query, variables })) return answer;
  return null;
}

const failure = (problem) => ("code" in problem ? { code: problem.code, reason: problem.reason } : problem);

const scenarios = {
  // Queries, mutations, errors, a subscription and its end, over a socket that opens and closes by itself.
  async operations() {
    const events = [];
    const on = {
      connected: () => events.push("connected"),
      closed: ({ code }) => events.push(`closed ${code}`),
    };
    const client = connect({ lazy: true, on });
    await new Promise((resolve) => setTimeout(resolve, 20));
    say({ idle: events });
    say(await result(client, "{ areas }"));
    say(await result(client, "{ requestLogs { nodes { requestId } } }"));
    say(await result(client, "{ areas").catch(failure));
    say(await result(client, "{ nothing }").catch(failure));

    const sightings = client.iterate({ query: SIGHTINGS });
    const first = sightings.next();
    await told();
    for (const description of ["one", "two", "three"]) await result(client, REPORT, { description });
    say([(await first).value, (await sightings.next()).value, (await sightings.next()).value]);
    await sightings.return();
    const after = await result(client, "{ areas }");
    say({ stillServed: after.data.areas.length > 0 });
    await client.dispose();
    await new Promise((resolve) => setTimeout(resolve, 20));
    say({ events });
    process.exit();
  },

  // A socket that is open from the start, and kept alive by the client's own pings.
  async eager() {
    let pongs = 0;
    const on = {
      connected: () => say("connected"),
      pong: (received) => received && ++pongs === 3 && (say("alive"), client.dispose()),
      closed: ({ code }) => say({ closed: code }),
    };
    const client = connect({ lazy: false, keepAlive: 10, on });
  },

  // A new token in a ping. The subscription outlives the token it began with.
  async renewal() {
    let socket;
    const on = {
      connected: (connected) => (socket = connected),
      pong: (received, payload) => received && say({ pong: payload ?? null }),
      closed: ({ code, reason }) => say({ closed: code, reason }),
    };
    const client = connect({ on });
    client.subscribe({ query: SIGHTINGS }, { next: say, error: (problem) => say(failure(problem)), complete() {} });
    for (;;) {
      const token = await told();
      if (token === null) break;
      socket.send(stringifyMessage({ type: MessageType.Ping, payload: { authorization: `Bearer ${token}` } }));
    }
    process.exit();
  },

  // The server goes and comes back: the client connects again, and its subscription goes on.
  async restart() {
    const on = { connected: () => say("connected"), closed: ({ code }) => say({ closed: code }) };
    const wait = () => new Promise((resolve) => setTimeout(resolve, 20));
    const client = connect({ retryAttempts: 500, shouldRetry: () => true, retryWait: wait, on });
    client.subscribe({ query: SIGHTINGS }, { next: say, error: say, complete() {} });
    await told();
    process.exit();
  },
};

await scenarios[given.scenario]();
