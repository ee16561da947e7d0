// Follows a live match over a WebSocket, and resumes after each disconnect: no event is lost or printed twice.
//
//   node node-graphql-ws/follow-match.js [MATCH]
//
// API_URL is the address of the gateway. Without MATCH the first live match is followed.
import { createClient } from "graphql-ws";
import WebSocket from "ws";

const url = process.env.API_URL ?? "http://127.0.0.1:8000/graphql";

const client = createClient({
  url: url.replace(/^http/, "ws"),
  webSocketImpl: WebSocket,
  retryAttempts: Infinity,
  shouldRetry: () => true, // also after the gateway has closed the socket
  // The client copies `extensions` at each reconnect, so that it resumes after the latest position.
  generateID: ({ extensions }) => {
    const id = crypto.randomUUID();
    positions.set(id, extensions);
    return id;
  },
  on: {
    closed: ({ code, reason }) => console.error(`Disconnected (${code} ${reason}), reconnecting`),
    message({ type, id, payload }) {
      if (type === "complete" || type === "error") positions.delete(id);
      if (type !== "ping") return;
      // Positions of subscriptions that had no event for a while.
      for (const [operation, eventId] of Object.entries(payload?.resume ?? {})) {
        const extensions = positions.get(operation);
        if (extensions) extensions.resumeAfter = eventId;
      }
    },
  },
});
const positions = new Map();

const LIVE = "{ liveMatches { id matchId } }";
const FOLLOW = `
  subscription Follow($matchId: ID!) {
    matchUpdates(matchId: $matchId) {
      id
      version
      isSnapshot
      events { id kind text score }
      liveScore { id status innings { id teamId runs wickets overs } }
    }
  }
`;

const matchId = process.argv[2] ?? (await firstLiveMatch());
if (!matchId) {
  console.error("No match is live.");
  process.exit(1);
}
let version = -1;
const extensions = { resumeAfter: null }; // null: from now on
client.subscribe({ query: FOLLOW, variables: { matchId }, extensions }, {
  next({ data, errors, extensions: received }) {
    if (received?.eventId) extensions.resumeAfter = received.eventId;
    if (!data) return console.error(errors.map(({ message }) => message).join("\n"));
    const update = data.matchUpdates;
    // After a gap that is too long, the gateway sends the present state with `resync`.
    if (update.isSnapshot || received?.resync) show(update);
    else if (update.version > version) for (const { text, score } of update.events) console.log([score, text].filter(Boolean).join(" "));
    version = update.version;
  },
  error(problem) {
    console.error(Array.isArray(problem) ? problem.map(({ message }) => message).join("\n") : problem);
    process.exit(1);
  },
  complete() {
    console.log("The match has ended.");
    process.exit();
  },
});

function show({ version, liveScore: { status, innings } }) {
  const scores = innings.map(({ runs, wickets, overs }) => `${runs}/${wickets} (${overs} ov)`);
  console.log(`Version ${version}: ${status}, ${scores.join(", ") || "no innings yet"}`);
}

async function firstLiveMatch() {
  const headers = { "Content-Type": "application/json" };
  const response = await fetch(url, { method: "POST", headers, body: JSON.stringify({ query: LIVE }) });
  const { data, errors } = await response.json();
  if (errors) throw new Error(errors[0].message);
  return data.liveMatches[0]?.matchId;
}
