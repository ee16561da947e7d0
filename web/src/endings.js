// The sentences of docs/websocket.md's close codes, for the person who reads them.
const SENTENCES = {
  1000: 'The connection was closed.',
  1001: 'The server is shutting down.',
  1002: 'The server refused a message that violates the WebSocket protocol.',
  1006: 'The connection was lost. The server has stopped, or the network failed.',
  1007: 'The server refused a message that is not UTF-8.',
  1009: 'The server refused a message that is too large: an operation may have 64 KB.',
  1012: 'The server is restarting.',
  1013: 'The server cannot accept the connection now. Try again in a moment.',
  4400: 'The server could not read a message of this page.',
  4401: 'The server had not confirmed the connection yet.',
  4403: 'The token is invalid or has expired. Choose a role again, or enter another token under Headers.',
  4406: 'The server does not speak the protocol of this page.',
  4408: 'The page was too slow to open the connection.',
  4409: 'The server already runs an operation with the same id.',
  4410: 'Events arrived faster than this page could read them.',
  4411: 'The page did not respond to the server in time.',
  4429: 'The page opened the connection twice.',
  4500: 'The server failed.',
};
const UNREACHABLE = 'The gateway cannot be reached. Check that it is running.';
// After these errors a subscription can continue where it ended.
const RESUMABLE = new Set(['SLOW_SUBSCRIBER', 'UNAVAILABLE']);
const COMPLETE = 'The subscription is complete: the server has no further events.';

/** Return in words why a connection ended. `error` is what a WebSocket reports, and `began` whether events arrived. */
export function reasonOf(error, began) {
  if (error instanceof CloseEvent) return closingWords(error);
  // The browser tells no more about a failed connection.
  if (error instanceof Event) return began ? SENTENCES[1006] : UNREACHABLE;
  return error?.message ?? String(error);
}

function closingWords({ code, reason }) {
  const sentence = SENTENCES[code] ?? 'The server closed the connection.';
  // A reason in JSON is for programs.
  const said = reason && !reason.startsWith('{') ? ` The server says: “${reason}”.` : '';
  return `${sentence}${said} (Code ${code})`;
}

/**
 * Return a store for useSyncExternalStore: how the latest subscription ended, if the user did not stop it. It has
 * { params, words, resumeAfter }; without `resumeAfter` it cannot continue.
 */
export function createEndings() {
  const listeners = new Set();
  let ended = null;
  let resumed = null;

  function change(value) {
    ended = value;
    listeners.forEach((listener) => listener());
  }

  return {
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    get: () => ended,
    /** Let the next run of the same operation continue where it ended. */
    resume() {
      resumed = ended;
    },
    /** Begin a run. Return the id of the event after which it continues; null for all runs but a resumed one. */
    begin(params) {
      const after = resumed && isSame(resumed.params, params) ? resumed.resumeAfter : null;
      resumed = null;
      if (ended) change(null);
      return after;
    },
    /** End a subscription after a close or failure of its connection. */
    cut(params, words, resumeAfter) {
      change({ params, words, resumeAfter });
    },
    /** End a subscription after errors of the API. */
    fail(params, errors, resumeAfter) {
      const [error] = errors;
      if (RESUMABLE.has(error?.extensions?.code)) change({ params, words: error.message, resumeAfter });
    },
    complete(params) {
      change({ params, words: COMPLETE, resumeAfter: null });
    },
  };
}

function isSame(one, other) {
  return one.query === other.query && JSON.stringify(one.variables ?? {}) === JSON.stringify(other.variables ?? {});
}
