// graphcache: runs an operation, and reads its result from the cache by the same document.
// graphcache keeps the roots of queries alone: the result of a mutation or an event is delivered as read from the cache.

import { readFileSync } from "node:fs";
import { buildSchema, introspectionFromSchema, parse } from "graphql";
import { urqlClient } from "../setup/urql.js";

export const introspectionOf = (file) => introspectionFromSchema(buildSchema(readFileSync(file, "utf8")));

export function open({ url, schema }, token) {
  const client = urqlClient({ url, token, schema: introspectionOf(schema) });

  async function run({ query, variables }) {
    const { operation } = parse(query).definitions[0];
    if (operation === "subscription") {
      return { delivered: dataOf(await firstOf(client.subscription(query, variables))) };
    }
    if (operation === "mutation") {
      return { delivered: dataOf(await client.mutation(query, variables).toPromise()) };
    }
    const read = async (requestPolicy) => dataOf(await client.query(query, variables, { requestPolicy }).toPromise());
    return { delivered: await read("network-only"), read: await read("cache-only") };
  }

  // Pass each state of the query's result in the cache to `seen`, and each event to `received`.
  return {
    run,
    watch: ({ query, variables }, seen) => client.query(query, variables).subscribe((result) => seen(dataOf(result))),
    follow: ({ query, variables }, received) =>
      client.subscription(query, variables).subscribe((result) => received(dataOf(result))),
  };
}

function firstOf(source) {
  return new Promise((resolve) => {
    const following = source.subscribe((result) => {
      resolve(result);
      following.unsubscribe();
    });
  });
}

function dataOf({ data, error }) {
  if (error) throw error;
  return data;
}
