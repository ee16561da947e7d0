import { createClient } from 'graphql-ws';
import { reasonOf } from './endings.js';

const IDLE_CLOSE_MS = 10_000;
const PING_MS = 20_000;

/** Return a function that follows subscriptions over WebSockets: it returns the function that stops one. */
export function createSubscribing(endpoint, endings) {
  const socketUrl = new URL(endpoint, location.href);
  socketUrl.protocol = socketUrl.protocol.replace('http', 'ws');
  // A socket authenticates once, when it is opened, so each Authorization value has its own socket.
  const clients = new Map();
  const runs = new Map(); // by operation id
  let operations = 0;

  function clientFor(authorization) {
    if (!clients.has(authorization)) {
      const client = createClient({
        url: socketUrl.href,
        connectionParams: authorization ? { Authorization: authorization } : {},
        lazyCloseTimeout: IDLE_CLOSE_MS,
        keepAlive: PING_MS,
        // A silent reconnect would hide the events missed in between: the page offers to resume.
        retryAttempts: 0,
        generateID: () => `${++operations}`,
        on: { closed: () => clients.delete(authorization), message: keepPositions },
      });
      clients.set(authorization, client);
    }
    return clients.get(authorization);
  }

  // The server also tells positions without an event, such as the last ones before it shuts down.
  function keepPositions({ type, payload }) {
    if (type !== 'ping') return;
    for (const [id, position] of Object.entries(payload?.resume ?? {})) {
      if (runs.has(id)) runs.get(id).position = position;
    }
  }

  return (params, authorization, sink) => {
    const run = { position: endings.begin(params), began: false, stopped: false };
    const request = { ...params, extensions: { ...params.extensions, resumeAfter: run.position } };
    const unsubscribe = clientFor(authorization).subscribe(request, {
      next(result) {
        run.began = true;
        run.position = result.extensions?.eventId ?? run.position;
        sink.next(result);
      },
      error(error) {
        runs.delete(id);
        if (Array.isArray(error)) {
          endings.fail(params, error, run.position);
          sink.error(error);
          return;
        }
        const words = reasonOf(error, run.began);
        endings.cut(params, words, run.position);
        // The last event stays visible. An object with only a message: GraphiQL would print the stack of an Error.
        if (run.began) sink.complete();
        else sink.error({ message: words });
      },
      complete() {
        runs.delete(id);
        if (!run.stopped) endings.complete(params);
        sink.complete();
      },
    });
    const id = `${operations}`;
    runs.set(id, run);
    return () => {
      run.stopped = true;
      unsubscribe();
    };
  };
}
