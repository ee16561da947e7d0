// Apollo Client's cache: runs an operation, and reads its result from the cache by the same document.

import { readFileSync } from "node:fs";
import { buildSchema, isAbstractType, parse } from "graphql";
import { apolloClient } from "../setup/apollo.js";

const ROOTS = { query: "ROOT_QUERY", mutation: "ROOT_MUTATION", subscription: "ROOT_SUBSCRIPTION" };

export function possibleTypesOf(file) {
  const schema = buildSchema(readFileSync(file, "utf8"));
  const abstract = Object.values(schema.getTypeMap()).filter(isAbstractType);
  return Object.fromEntries(abstract.map((type) => [type.name, schema.getPossibleTypes(type).map(({ name }) => name)]));
}

export function open({ url, schema }, token) {
  const client = apolloClient({ url, token, possibleTypes: possibleTypesOf(schema) });
  const follow = (query, variables) => client.subscribe({ query: parse(query), variables });
  const ways = {
    query: (query, variables) => client.query({ query, variables, fetchPolicy: "network-only" }),
    mutation: (mutation, variables) => client.mutate({ mutation, variables, keepRootFields: true }),
    subscription: (query, variables) => firstOf(client.subscribe({ query, variables })),
  };

  async function run({ query, variables }) {
    const document = parse(query);
    const [definition, ...fragments] = document.definitions;
    const { data } = await ways[definition.operation](document, variables);
    const { result } = client.cache.diff({
      // The cache reads queries alone: below another root the same selection is one.
      query: { ...document, definitions: [{ ...definition, operation: "query" }, ...fragments] },
      variables,
      id: ROOTS[definition.operation],
      optimistic: false,
      returnPartialData: true,
    });
    return { delivered: data, read: result };
  }

  // Pass each state of the query's result in the cache to `seen`, and each event to `received`.
  return {
    run,
    watch: ({ query, variables }, seen) =>
      client.watchQuery({ query: parse(query), variables }).subscribe(({ data }) => data && seen(data)),
    follow: ({ query, variables }, received) => follow(query, variables).subscribe(({ data }) => received(data)),
  };
}

function firstOf(observable) {
  return new Promise((resolve, reject) => {
    const following = observable.subscribe({
      next(result) {
        resolve(result);
        following.unsubscribe();
      },
      error: reject,
    });
  });
}
