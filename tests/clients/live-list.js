// A list that a subscription keeps current, by the client's name. Says each state of the list, and the number of requests
// over HTTP until then.

import { possibleTypesOf } from "./caches/apollo.js";
import { introspectionOf } from "./caches/urql.js";
import { given, say, told } from "./conversation.js";
import { complaints, requests } from "./recording.js";
import { apolloClient } from "./setup/apollo.js";
import { followSightings, SIGHTINGS as PAGES, typePolicies } from "./setup/apollo-list.js";
import { urqlClient } from "./setup/urql.js";
import { REPORTED, SIGHTINGS, updates } from "./setup/urql-list.js";

const { url, token, schema, variables } = given;
const list = (nodes, more) => say({ list: nodes.map(({ description }) => description), requests: requests.length, ...more });

const clients = {
  async apollo() {
    const client = apolloClient({ url, token, possibleTypes: possibleTypesOf(schema), typePolicies });
    const watched = client.watchQuery({ query: PAGES, variables });
    let data;
    watched.subscribe((result) => {
      if (result.loading || result.dataState !== "complete") return;
      data = result.data;
      const { edges, pageInfo } = data.sightings;
      list(edges.map(({ node }) => node), { hasNextPage: pageInfo.hasNextPage });
    });
    followSightings(watched);
    await told();
    await watched.fetchMore({ variables: { after: data.sightings.pageInfo.endCursor } });
  },

  async urql() {
    const client = urqlClient({ url, token, schema: introspectionOf(schema), updates });
    client.query(SIGHTINGS, variables).subscribe(({ data }) => list(data.sightings.nodes));
    client.subscription(REPORTED, variables).subscribe(({ error }) => error && console.error(error));
  },
};

await clients[given.client]();
await told();
say({ complaints });
process.exit();
