import { createGraphiQLFetcher } from '@graphiql/toolkit';
import { getOperationAST, parse } from 'graphql';
import { NOT_EXPLAINED } from './explanations.js';
import { isIncremental, isSubscription } from './operations.js';
import { createSubscribing } from './subscribing.js';

const UNEXPLAINED = { begin() {}, take: (answer) => answer, end() {} };
// The name of the query that GraphiQL itself sends.
const INTROSPECTION = 'IntrospectionQuery';

/**
 * Return a fetcher for GraphiQL. While `explanations` are on, it requests one for each operation and stores it.
 * `endings` receives how a subscription ended. `schema` is the address of the schema, which browsers keep; without it
 * the schema is asked for like anything else.
 */
export function createFetcher({ endpoint, schema }, explanations, endings) {
  const fetchOverHttp = createGraphiQLFetcher({ url: endpoint, enableIncrementalDelivery: false });
  const fetchParts = createGraphiQLFetcher({ url: endpoint, enableIncrementalDelivery: true });
  const follow = createSubscribing(endpoint, endings);

  return (params, options = {}) => {
    if (params.operationName === INTROSPECTION && schema) return fetchJson(schema).catch(tellUnreachable);
    const explains = explanations.get().on && params.operationName !== INTROSPECTION;
    const { begin, take, end } = explains ? explained(nameOf(params)) : UNEXPLAINED;
    if (!isSubscription(params)) {
      begin('Running…');
      if (params.operationName !== INTROSPECTION) endings.begin(params);
      const headers = explains ? { ...options.headers, 'X-Explain': '1' } : options.headers;
      if (isIncremental(params)) return partsOf(params, { ...options, headers }, take, end);
      return fetchOverHttp(params, { ...options, headers }).then(take, tellUnreachable).finally(() => end(NOT_EXPLAINED));
    }
    const requested = explains ? { ...params, extensions: { ...params.extensions, explain: true } } : params;
    return {
      subscribe: (sink) => {
        begin('Waiting for the first event.');
        const unsubscribe = follow(requested, authorizationOf(options.headers), {
          next: (answer) => sink.next(take(answer)),
          error(error) {
            sink.error(Array.isArray(error) ? take(error) : error);
            end(NOT_EXPLAINED);
          },
          complete() {
            sink.complete();
            end('The subscription ended before its first event.');
          },
        });
        return {
          unsubscribe() {
            end('The subscription was stopped before its first event.');
            unsubscribe();
          },
        };
      },
    };
  };

  async function* partsOf(params, options, take, end) {
    try {
      for await (const parts of await fetchParts(params, options)) {
        yield Array.isArray(parts) ? parts.map(withoutExplanation) : take(parts);
      }
    } catch (error) {
      tellUnreachable(error);
    } finally {
      end(NOT_EXPLAINED);
    }

    // The last part has the explanation of all of them.
    function withoutExplanation(part) {
      return part.hasNext ? part : take(part);
    }
  }

  function explained(name) {
    let run;
    return {
      begin(lacking) {
        run = explanations.begin(name, lacking);
      },
      take: (answer) => explanations.take(name, answer),
      end: (lacking) => explanations.end(run, lacking),
    };
  }
}

/** Return the name of a run: the name of the operation, or of its first field. */
function nameOf({ query, operationName }) {
  try {
    const operation = getOperationAST(parse(query), operationName);
    const [first] = operation?.selectionSet.selections ?? [];
    return operation?.name?.value ?? first?.alias?.value ?? first?.name?.value ?? 'operation';
  } catch {
    return 'operation';
  }
}

function authorizationOf(headers = {}) {
  const name = Object.keys(headers).find((key) => key.toLowerCase() === 'authorization');
  return name ? headers[name] : '';
}

async function fetchJson(address) {
  return (await fetch(address)).json();
}

function tellUnreachable(error) {
  // fetch throws a TypeError if there is no response at all. Its message differs between browsers.
  throw error instanceof TypeError ? { message: 'The gateway cannot be reached. Check that it is running.' } : error;
}
