// urql with graphcache over HTTP, and over server-sent events for subscriptions.
import { Client, fetchExchange, subscriptionExchange } from "@urql/core";
import { cacheExchange } from "@urql/exchange-graphcache";
import { createClient } from "graphql-sse";

export function urqlClient({ url, token, schema, ...rules }) {
  const headers = { Authorization: `Bearer ${token}` };
  const events = createClient({ url, headers });
  const forwardSubscription = (operation) => ({
    subscribe: (sink) => ({ unsubscribe: events.subscribe(operation, sink) }),
  });
  return new Client({
    url,
    fetchOptions: { headers },
    exchanges: [cacheExchange({ schema, ...rules }), fetchExchange, subscriptionExchange({ forwardSubscription })],
  });
}
