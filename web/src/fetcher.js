import { createGraphiQLFetcher } from '@graphiql/toolkit';
import { getOperationAST, parse } from 'graphql';
import { createClient } from 'graphql-ws';

const IDLE_CLOSE_MS = 10_000;
const PING_MS = 20_000;

export function createFetcher(endpoint) {
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
    if (!isSubscription(params)) return fetchOverHttp(params, options).catch(explain);
    const client = clientFor(authorizationOf(options.headers));
    return {
      subscribe: (sink) => ({
        unsubscribe: client.subscribe(params, { ...sink, error: (error) => sink.error(readable(error)) }),
      }),
    };
  };
}

// GraphiQL's own parsed document lags behind the editor by a moment; the query at hand does not.
function isSubscription({ query, operationName }) {
  try {
    return getOperationAST(parse(query), operationName)?.operation === 'subscription';
  } catch {
    return false; // the server explains syntax errors better
  }
}

function authorizationOf(headers = {}) {
  const name = Object.keys(headers).find((key) => key.toLowerCase() === 'authorization');
  return name ? headers[name] : '';
}

function explain(error) {
  // What fetch throws when there is no answer at all; its own words differ from browser to browser.
  throw error instanceof TypeError ? { message: 'The gateway cannot be reached. Does it still run?' } : error;
}

// A bare message: GraphiQL would print an Error's stack into the result.
function readable(error) {
  if (!(error instanceof CloseEvent)) return error;
  return { message: `The subscription's connection was closed (${`${error.code} ${error.reason}`.trim()}).` };
}
