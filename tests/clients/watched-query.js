// A client with a normalised cache, by its name: watches a query, and follows a subscription when the test says so.
// Says each state of the query's result, and each event, with the number of requests until then.

import { given, say, told } from "./conversation.js";
import { complaints, requests } from "./recording.js";

const { open } = await import(`./caches/${given.client}.js`);
const { query, subscription, variables } = given;
const client = await open(given, given.token);

await client.watch({ query, variables }, (seen) => say({ seen, requests: requests.length }));
await told();
await client.follow({ query: subscription, variables }, (event) => say({ event, requests: requests.length }));
await told();
say({ complaints });
process.exit();
