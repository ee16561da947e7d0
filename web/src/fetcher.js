import { createGraphiQLFetcher } from '@graphiql/toolkit';
import { getOperationAST, parse } from 'graphql';
import { createClient } from 'graphql-ws';
import { UNTOLD } from './explanations.js';

const IDLE_CLOSE_MS = 10_000;
const PING_MS = 20_000;
const UNEXPLAINED = { begin() {}, take: (answer) => answer, end() {} };
// What GraphiQL asks for itself.
const INTROSPECTION = 'IntrospectionQuery';

/** Sends what GraphiQL asks; while `explanations` are on, it asks for one each time and hands it over. */
export function createFetcher(endpoint, explanations) {
  const socketUrl = new URL(endpoint, location.href);
  socketUrl.protocol = socketUrl.protocol.replace('http', 'ws');
  const fetchOverHttp = createGraphiQLFetcher({ url: endpoint, enableIncrementalDelivery: false });

  // A socket speaks for whoever opened it, so each Authorization value has its own.
  const clients = new Map();

  function clientFor(authorization) {
    if (!clients.has(authorization)) {
      const client = createClient({
        url: socketUrl.href,
        connectionParams: authorization ? { Authorization: authorization } : {},
        lazyCloseTimeout: IDLE_CLOSE_MS,
        keepAlive: PING_MS,
        // A silent reconnect would hide the events missed in between.
        retryAttempts: 0,
        on: { closed: () => clients.delete(authorization) },
      });
      clients.set(authorization, client);
    }
    return clients.get(authorization);
  }

  return (params, options = {}) => {
    const explains = explanations.get().on && params.operationName !== INTROSPECTION;
    const { begin, take, end } = explains ? explained(nameOf(params)) : UNEXPLAINED;
    if (!isSubscription(params)) {
      begin('Running…');
      const headers = explains ? { ...options.headers, 'X-Explain': '1' } : options.headers;
      return fetchOverHttp(params, { ...options, headers }).then(take, tellUnreachable).finally(() => end(UNTOLD));
    }
    const client = clientFor(authorizationOf(options.headers));
    const asked = explains ? { ...params, extensions: { ...params.extensions, explain: true } } : params;
    return {
      subscribe: (sink) => {
        begin('Waiting for the first event.');
        const unsubscribe = client.subscribe(asked, {
          next: (answer) => sink.next(take(answer)),
          error(error) {
            sink.error(readable(Array.isArray(error) ? take(error) : error));
            end(UNTOLD);
          },
          complete() {
            sink.complete();
            end('It ended before its first event.');
          },
        });
        return {
          unsubscribe() {
            end('It was stopped before its first event.');
            unsubscribe();
          },
        };
      },
    };
  };

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

// GraphiQL's own parsed document lags behind the editor by a moment; the query at hand does not.
function isSubscription({ query, operationName }) {
  try {
    return getOperationAST(parse(query), operationName)?.operation === 'subscription';
  } catch {
    return false; // the server explains syntax errors better
  }
}

/** What a run is called: by the operation's name, or by its first field. */
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

function tellUnreachable(error) {
  // What fetch throws when there is no answer at all; its own words differ from browser to browser.
  throw error instanceof TypeError ? { message: 'The gateway cannot be reached. Does it still run?' } : error;
}

// A bare message: GraphiQL would print an Error's stack into the result.
function readable(error) {
  if (!(error instanceof CloseEvent)) return error;
  return { message: `The subscription's connection was closed (${`${error.code} ${error.reason}`.trim()}).` };
}
