// Keeps a list of sightings current: urql with graphcache, and server-sent events for the subscription.
//
//   node urql-graphql-sse/watch-sightings.js AREA
//
// API_URL is the address of the gateway, API_TOKEN the token of a user.
import { Client, fetchExchange, gql, subscriptionExchange } from "@urql/core";
import { cacheExchange } from "@urql/exchange-graphcache";
import { createClient } from "graphql-sse";

const url = process.env.API_URL ?? "http://127.0.0.1:8000/graphql";
const headers = process.env.API_TOKEN ? { Authorization: `Bearer ${process.env.API_TOKEN}` } : {};
const area = process.argv[2] ?? "Downtown";

const SIGHTINGS = gql`
  query Sightings($area: String!) {
    sightings(area: $area, first: 10) {
      nodes { id category description reporter { id trustTier } }
    }
  }
`;
const REPORTED = gql`
  subscription Reported($area: String!) {
    sightingReported(area: $area) { id category description reporter { id trustTier } }
  }
`;

// An EventSource would resume with Last-Event-ID. graphql-sse sends the position in the extensions of the operation.
const extensions = {};
const events = createClient({ url, headers, retryAttempts: Infinity });
const client = new Client({
  url,
  fetchOptions: { headers },
  preferGetMethod: false,
  exchanges: [
    cacheExchange({
      updates: {
        Subscription: {
          sightingReported({ sightingReported: node }, variables, cache) {
            cache.updateQuery({ query: SIGHTINGS, variables: { area: variables.area } }, (data) => {
              if (data === null) return null;
              const nodes = [node, ...data.sightings.nodes.filter((each) => each?.id !== node.id)];
              return { ...data, sightings: { ...data.sightings, nodes } };
            });
          },
        },
      },
    }),
    fetchExchange,
    subscriptionExchange({
      forwardSubscription: ({ query, variables }) => ({
        subscribe: (sink) => ({
          unsubscribe: events.subscribe({ query, variables, extensions }, {
            ...sink,
            next(result) {
              if (result.extensions?.eventId) extensions.resumeAfter = result.extensions.eventId;
              sink.next(result);
            },
          }),
        }),
      }),
    }),
  ],
});

// The list, each time that it changes.
client.query(SIGHTINGS, { area }).subscribe(({ data, error }) => {
  if (error) return console.error(error.message);
  console.log(`${area}:`);
  for (const { category, description } of data.sightings.nodes) console.log(`  ${category}: ${description}`);
});
client.subscription(REPORTED, { area }).subscribe(({ error }) => {
  // RESYNC: the missed events are gone. Read the list again.
  if (error?.graphQLErrors[0]?.extensions.code === "RESYNC") {
    client.query(SIGHTINGS, { area }, { requestPolicy: "network-only" }).toPromise();
  } else if (error) console.error(error.message);
});
