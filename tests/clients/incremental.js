// A client runs an operation with @defer or @stream, by its name. Says each state of the result, and at the end what
// the client wrote to the console, or its error.

import { join } from "node:path";
import { format } from "node:util";
import { ApolloClient, HttpLink, InMemoryCache, NetworkStatus } from "@apollo/client";
import { Defer20220824Handler, GraphQL17Alpha9Handler } from "@apollo/client/incremental";
import { parse } from "graphql";
import { createOperationDescriptor, getRequest, getSingularSelector } from "relay-runtime";
import { given, say } from "./conversation.js";
import { compileOperations, moduleOf } from "./relay-compiler.js";
import { incrementalEnvironment } from "./setup/relay-incremental.js";

const { url, token, query, folder, schema } = given;
const complaints = [];
for (const level of ["warn", "error"]) console[level] = (...words) => complaints.push(format(...words));

function apollo(incrementalHandler) {
  const link = new HttpLink({ uri: url, headers: { Authorization: `Bearer ${token}` } });
  const client = new ApolloClient({ cache: new InMemoryCache(), link, incrementalHandler });
  return new Promise((resolve, reject) => {
    client.watchQuery({ query: parse(query), errorPolicy: "all" }).subscribe({
      next({ data, dataState, networkStatus, error }) {
        if (data) say({ data, dataState });
        if (networkStatus === NetworkStatus.ready || error) resolve(error);
      },
      error: reject,
    });
  });
}

// Relay reads the fragments of a query apart from it.
async function relay() {
  await compileOperations({ folder, schema, language: "javascript" });
  const { definitions } = parse(query);
  const [request, ...fragments] = await Promise.all(definitions.map(async (definition, index) => {
    const name = index === 0 ? moduleOf(definition) : definition.name.value;
    return (await import(join(folder, "compiled", `${name}.graphql.js`))).default;
  }));
  const environment = incrementalEnvironment({ url, token });
  const descriptor = createOperationDescriptor(getRequest(request), {});
  environment.retain(descriptor);
  await new Promise((resolve, reject) => {
    environment.execute({ operation: descriptor }).subscribe({
      next() {
        const { data } = environment.lookup(descriptor.fragment);
        const read = (node) => fragments.map((fragment) => readFragment(fragment, node));
        say({ data, fragments: data.sightings.nodes.map(read) });
      },
      error: reject,
      complete: resolve,
    });
  });

  function readFragment(fragment, node) {
    const { data, isMissingData } = environment.lookup(getSingularSelector(fragment, node));
    return isMissingData ? null : data;
  }
}

const clients = {
  apollo2022: () => apollo(new Defer20220824Handler()),
  apollo: () => apollo(new GraphQL17Alpha9Handler()),
  relay,
};
const error = await clients[given.client]().catch((problem) => problem);
say({ complaints, error: error ? String(error) : null });
process.exit();
