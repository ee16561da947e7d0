// Apollo Server with @apollo/gateway in front of the subgraphs of a supergraph. Says its address, and serves until it is
// ended.

import { ApolloGateway, RemoteGraphQLDataSource } from "@apollo/gateway";
import { ApolloServer } from "@apollo/server";
import { startStandaloneServer } from "@apollo/server/standalone";
import { say, told } from "./conversation.js";

const given = await told();

// The headers that the subgraphs receive.
const FORWARDED = ["authorization", "x-request-id", "traceparent"];

class ForwardingSource extends RemoteGraphQLDataSource {
  willSendRequest({ request, context }) {
    for (const name of FORWARDED) {
      if (context.headers?.[name]) request.http.headers.set(name, context.headers[name]);
    }
  }
}

const logger = { debug() {}, info() {}, warn: console.error, error: console.error };
const gateway = new ApolloGateway({
  logger,
  supergraphSdl: given.supergraph,
  buildService: ({ url }) => new ForwardingSource({ url }),
});
const server = new ApolloServer({ gateway, logger });
const { url } = await startStandaloneServer(server, {
  listen: { host: "127.0.0.1", port: 0 },
  context: async ({ req }) => ({ headers: req.headers }),
});
say({ url });
