// React with Relay: a list of earthquakes that pages, and details of each that are read again on demand.
//
// Open /react-relay/?api=http://127.0.0.1:8000/graphql. The gateway needs GATEWAY_ALLOWED_ORIGINS=http://127.0.0.1:5173.
import { Suspense, useState, useTransition } from "react";
import { createRoot } from "react-dom/client";
import {
  RelayEnvironmentProvider,
  graphql,
  useLazyLoadQuery,
  usePaginationFragment,
  useRefetchableFragment,
} from "react-relay";
import { Environment, Network, RecordSource, Store } from "relay-runtime";

const url = new URLSearchParams(location.search).get("api") ?? "http://127.0.0.1:8000/graphql";

async function post({ text }, variables) {
  const response = await fetch(url, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ query: text, variables }),
  });
  const result = await response.json();
  // A field error beside data stays with its field, which is null.
  if (result.errors && !result.data) throw new Error(result.errors.map(({ message }) => message).join("\n"));
  return result;
}

const environment = new Environment({ network: Network.create(post), store: new Store(new RecordSource()) });

function Earthquake({ earthquake }) {
  const [data, refetch] = useRefetchableFragment(
    graphql`
      fragment main_earthquake on Earthquake @refetchable(queryName: "mainEarthquakeQuery") {
        id
        magnitude
        place
        occurredAt
        ingestedAt
      }
    `,
    earthquake,
  );
  const [isPending, begin] = useTransition();
  return (
    <li>
      {data.magnitude.toFixed(1)} {data.place} <time>{data.occurredAt}</time>{" "}
      <button disabled={isPending} onClick={() => begin(() => refetch({}, { fetchPolicy: "network-only" }))}>
        Read again
      </button>
    </li>
  );
}

function Earthquakes({ query }) {
  const { data, hasNext, isLoadingNext, loadNext } = usePaginationFragment(
    graphql`
      fragment main_earthquakes on Query
      @argumentDefinitions(
        magnitude: { type: "Float", defaultValue: 2.5 }
        first: { type: "Int", defaultValue: 5 }
        after: { type: "String" }
      )
      @refetchable(queryName: "mainPageQuery") {
        earthquakes(minMagnitude: $magnitude, first: $first, after: $after) @connection(key: "main_earthquakes") {
          edges {
            node {
              id
              ...main_earthquake
            }
          }
        }
      }
    `,
    query,
  );
  const nodes = data.earthquakes.edges.map(({ node }) => node).filter(Boolean);
  return (
    <>
      <ol>
        {nodes.map((node) => (
          <Earthquake key={node.id} earthquake={node} />
        ))}
      </ol>
      {hasNext && (
        <button disabled={isLoadingNext} onClick={() => loadNext(5)}>
          More
        </button>
      )}
    </>
  );
}

function App() {
  const [magnitude, setMagnitude] = useState(2.5);
  const [isPending, begin] = useTransition();
  const query = useLazyLoadQuery(
    graphql`
      query mainQuery($magnitude: Float!) {
        ...main_earthquakes @arguments(magnitude: $magnitude)
      }
    `,
    { magnitude },
  );
  return (
    <section aria-busy={isPending}>
      <h2>
        Magnitude{" "}
        <select value={magnitude} onChange={({ target }) => begin(() => setMagnitude(Number(target.value)))}>
          {[1, 2.5, 4.5].map((each) => (
            <option key={each}>{each}</option>
          ))}
        </select>{" "}
        and above
      </h2>
      <Earthquakes query={query} />
    </section>
  );
}

createRoot(document.getElementById("root")).render(
  <RelayEnvironmentProvider environment={environment}>
    <Suspense fallback={<p>Loading…</p>}>
      <App />
    </Suspense>
  </RelayEnvironmentProvider>,
);
