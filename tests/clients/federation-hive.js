// Hive Gateway in front of the subgraphs of a supergraph. Says its address, and serves until it is ended.

import { createServer } from "node:http";
import { createGatewayRuntime } from "@graphql-hive/gateway-runtime";
import { say, told } from "./conversation.js";

const given = await told();

// The headers that the subgraphs receive.
const FORWARDED = ["authorization", "x-request-id", "traceparent"];

const gateway = createGatewayRuntime({
  logging: "warn",
  supergraph: given.supergraph,
  transportEntries: given.transportEntries,
  propagateHeaders: {
    fromClientToSubgraphs: ({ request }) =>
      Object.fromEntries(FORWARDED.map((name) => [name, request.headers.get(name)]).filter(([, value]) => value)),
  },
});
const server = createServer(gateway);
server.listen(0, "127.0.0.1", () => say({ url: `http://127.0.0.1:${server.address().port}/graphql` }));
