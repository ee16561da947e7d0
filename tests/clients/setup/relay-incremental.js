// Relay with @defer and @stream, whose results arrive in the parts of a multipart response.
import { meros } from "meros/browser";
import { Environment, Network, Observable, RecordSource, Store } from "relay-runtime";

export function incrementalEnvironment({ url, token }) {
  const post = ({ text }, variables) => Observable.create((sink) => {
    fetchParts({ url, token, body: { query: text, variables } }, (part) => sink.next(responsesOf(part)))
      .then(() => sink.complete(), (error) => sink.error(error));
  });
  return new Environment({ network: Network.create(post), store: new Store(new RecordSource()) });
}

// Relay takes each fragment and each item of a list as a response of its own.
function responsesOf({ data, errors, incremental, hasNext }) {
  if (!incremental) return [{ data, errors, hasNext }];
  return incremental.flatMap(({ items, path, ...part }) => {
    if (!items) return [{ ...part, path, hasNext }];
    const at = path.at(-1);
    return items.map((item, index) => ({ ...part, data: item, path: [...path.slice(0, -1), at + index], hasNext }));
  });
}

async function fetchParts({ url, token, body }, received) {
  const response = await fetch(url, {
    method: "POST",
    headers: {
      Authorization: `Bearer ${token}`,
      "Content-Type": "application/json",
      Accept: "multipart/mixed;deferSpec=20220824, application/json",
    },
    body: JSON.stringify(body),
  });
  const type = response.headers.get("content-type") ?? "";
  if (!type.startsWith("multipart/mixed")) return received(await response.json());
  for await (const part of await meros(response)) received(part.body);
}
