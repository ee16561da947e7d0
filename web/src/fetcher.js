import { createGraphiQLFetcher } from '@graphiql/toolkit';
import { getOperationAST, parse } from 'graphql';
import { createClient } from 'graphql-ws';
import { NOT_EXPLAINED } from './explanations.js';

const IDLE_CLOSE_MS = 10_000;
const PING_MS = 20_000;
const UNEXPLAINED = { begin() {}, take: (answer) => answer, end() {} };
// The name of the query that GraphiQL itself sends.
const INTROSPECTION = 'IntrospectionQuery';

/** Return a fetcher for GraphiQL. While `explanations` are on, it requests one for each operation and stores it. */
export function createFetcher(endpoint, explanations) {
  const socketUrl = new URL(endpoint, location.href);
  socketUrl.protocol = socketUrl.protocol.replace('http', 'ws');
  const fetchOverHttp = createGraphiQLFetcher({ url: endpoint, enableIncrementalDelivery: false });

  // A socket authenticates once, when it is opened, so each Authorization value has its own socket.
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
      return fetchOverHttp(params, { ...options, headers }).then(take, tellUnreachable).finally(() => end(NOT_EXPLAINED));
    }
    const client = clientFor(authorizationOf(options.headers));
    const requested = explains ? { ...params, extensions: { ...params.extensions, explain: true } } : params;
    return {
      subscribe: (sink) => {
        begin('Waiting for the first event.');
        const unsubscribe = client.subscribe(requested, {
          next: (answer) => sink.next(take(answer)),
          error(error) {
            sink.error(readable(Array.isArray(error) ? take(error) : error));
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

// Parse the query itself: the document that GraphiQL parsed is a moment behind the editor.
function isSubscription({ query, operationName }) {
  try {
    return getOperationAST(parse(query), operationName)?.operation === 'subscription';
  } catch {
    return false; // the server explains syntax errors better
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

function tellUnreachable(error) {
  // fetch throws a TypeError if there is no response at all. Its message differs between browsers.
  throw error instanceof TypeError ? { message: 'The gateway cannot be reached. Check that it is running.' } : error;
}

// Return an object with only a message: GraphiQL would print the stack of an Error into the result.
function readable(error) {
  if (!(error instanceof CloseEvent)) return error;
  return { message: `The subscription's connection was closed (${`${error.code} ${error.reason}`.trim()}).` };
}
