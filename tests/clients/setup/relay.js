// Relay over HTTP, and over a WebSocket for subscriptions.
import { createClient } from "graphql-ws";
import { Environment, Network, Observable, RecordSource, Store } from "relay-runtime";

export function relayEnvironment({ url, token }) {
  const headers = { Authorization: `Bearer ${token}` };
  const socket = createClient({ url: url.replace(/^http/, "ws"), connectionParams: headers });
  const post = async ({ text }, variables) => {
    const body = JSON.stringify({ query: text, variables });
    const response = await fetch(url, {
      method: "POST",
      headers: { ...headers, "Content-Type": "application/json" },
      body,
    });
    return response.json();
  };
  const subscribe = ({ text }, variables) =>
    Observable.create((sink) => socket.subscribe({ query: text, variables }, sink));
  return new Environment({ network: Network.create(post, subscribe), store: new Store(new RecordSource()) });
}
