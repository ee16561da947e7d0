// Relay's store: runs an operation that relay-compiler has compiled, and reads its result from the store.

import { join } from "node:path";
import { parse } from "graphql";
import { createOperationDescriptor, getRequest, requestSubscription } from "relay-runtime";
import { compileOperations, moduleOf } from "../relay-compiler.js";
import { relayEnvironment } from "../setup/relay.js";

let compiling;

export async function open({ url, schema, folder }, token) {
  compiling ??= compileOperations({ folder, schema, language: "javascript" });
  await compiling;
  const environment = relayEnvironment({ url, token });

  async function compiled(query) {
    const [definition] = parse(query).definitions;
    const module = await import(join(folder, "compiled", `${moduleOf(definition)}.graphql.js`));
    return { operation: definition.operation, request: module.default };
  }

  async function run({ query, variables }) {
    const { operation, request } = await compiled(query);
    if (operation === "subscription") return { delivered: await firstEvent(environment, request, variables) };
    const descriptor = createOperationDescriptor(getRequest(request), variables);
    const retained = environment.retain(descriptor);
    const execute = operation === "query" ? "execute" : "executeMutation";
    await environment[execute]({ operation: descriptor }).toPromise();
    const { data } = environment.lookup(descriptor.fragment);
    retained.dispose();
    return { delivered: data };
  }

  // Pass each state of the query's result in the store to `seen`, and each event to `received`.
  return {
    run,
    async watch({ query, variables }, seen) {
      const { request } = await compiled(query);
      const descriptor = createOperationDescriptor(getRequest(request), variables);
      environment.retain(descriptor);
      await environment.execute({ operation: descriptor }).toPromise();
      const snapshot = environment.lookup(descriptor.fragment);
      environment.subscribe(snapshot, ({ data }) => seen(data));
      seen(snapshot.data);
    },
    async follow({ query, variables }, received) {
      const { request: subscription } = await compiled(query);
      requestSubscription(environment, { subscription, variables, onNext: received });
    },
  };
}

function firstEvent(environment, subscription, variables) {
  return new Promise((resolve, reject) => {
    const following = requestSubscription(environment, {
      subscription,
      variables,
      onNext(data) {
        resolve(data);
        following.dispose();
      },
      onError: reject,
    });
  });
}
