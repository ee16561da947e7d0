// A client with a normalised cache, by its name. Each operation that the test sends is run, and read from the cache.
// Says what the client received, what the cache returns, and what the client wrote to the console.

import { given, say, told } from "./conversation.js";
import { alterResponses, complaints, nextPayload } from "./recording.js";

const { open } = await import(`./caches/${given.client}.js`);
const clients = new Map(); // by token, because a cache belongs to a user

// The value without the fields of this name.
function without(name, value) {
  if (Array.isArray(value)) return value.map((each) => without(name, each));
  if (value === null || typeof value !== "object") return value;
  const kept = Object.entries(value).filter(([key]) => key !== name);
  return Object.fromEntries(kept.map(([key, each]) => [key, without(name, each)]));
}

for (;;) {
  const said = await told();
  if (said === null) break;
  const { query, variables, token, lost } = said;
  if (!clients.has(token)) clients.set(token, await open(given, token));
  const client = clients.get(token);
  alterResponses((payload) => (lost ? without(lost, payload) : payload));
  complaints.length = 0;
  const payload = nextPayload();
  const outcome = await client.run({ query, variables: variables ?? {} }).catch((error) => ({ error: String(error) }));
  say({ ...outcome, received: await payload, complaints });
}
process.exit();
