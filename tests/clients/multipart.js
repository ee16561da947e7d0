// Multipart subscriptions by Apollo Client's HttpLink, and by meros. Each line of the standard input is a subscription of
// one of them: its results are said, and how it ended: by itself, by an error, or left after `take` results.

import { createInterface } from "node:readline";
import { ApolloClient, CombinedGraphQLErrors, CombinedProtocolErrors, HttpLink, InMemoryCache } from "@apollo/client";
import { parse } from "graphql";
import { meros } from "meros/browser";
import { given, say } from "./conversation.js";

const { url, headers } = given;
const apollo = new ApolloClient({ cache: new InMemoryCache(), link: new HttpLink({ uri: url, headers }) });

function withApollo({ query, variables, take }) {
  return new Promise((resolve) => {
    let count = 0;
    const following = apollo.subscribe({ query: parse(query), variables }).subscribe({
      next({ data, error }) {
        if (error) say(said(error));
        else say({ next: data });
        count += 1;
        if (count === take) queueMicrotask(() => (following.unsubscribe(), resolve({ left: count })));
      },
      error: (error) => resolve(said(error)),
      complete: () => resolve({ complete: count }),
    });
  });
}

function said(error) {
  if (CombinedProtocolErrors.is(error)) return { protocol: error.errors };
  if (CombinedGraphQLErrors.is(error)) return { graphql: error.errors };
  return { error: String(error) };
}

async function withMeros({ query, variables, take }) {
  const response = await fetch(url, {
    method: "POST",
    headers: { ...headers, "Content-Type": "application/json", Accept: "multipart/mixed;subscriptionSpec=1.0" },
    body: JSON.stringify({ query, variables }),
  });
  let count = 0;
  for await (const { json, body } of await meros(response)) {
    if (!json) return { error: `not JSON: ${body}` };
    if (Object.keys(body).length === 0) continue; // a heartbeat
    say({ next: body });
    count += 1;
    if (count === take) return { left: count };
  }
  return { complete: count };
}

for await (const line of createInterface({ input: process.stdin })) {
  const { client, ...operation } = JSON.parse(line);
  say(await (client === "apollo" ? withApollo : withMeros)(operation));
}
