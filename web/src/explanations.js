const KEPT = 'gateway:explain';
/** The reason for a missing explanation if the operation failed. */
export const NOT_EXPLAINED = 'The response has no explanation. The result shows the reason.';
const REFUSALS = ['FORBIDDEN', 'UNAUTHENTICATED'];

/**
 * Return a store for useSyncExternalStore: whether operations are explained, and the explanation of the latest one.
 * `latest` is { name, at } with one of `explanation`, `refusal` (a message) and `lacking` (why there is none so far).
 */
export function createExplanations(storage = localStorage) {
  const listeners = new Set();
  let state = { on: kept(storage) === 'on', latest: null };

  function change(changed) {
    state = { ...state, ...changed };
    listeners.forEach((listener) => listener());
  }

  return {
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    get: () => state,
    switchTo(on) {
      try {
        storage.setItem(KEPT, on ? 'on' : 'off');
      } catch {
        // Without storage the switch is valid until the page is closed.
      }
      change({ on });
    },
    /** Begin a run. It replaces the previous run. */
    begin(name, lacking) {
      const run = { name, at: new Date(), lacking };
      change({ latest: run });
      return run;
    },
    /** End a run. `lacking` is the reason if it has no explanation. */
    end(run, lacking) {
      if (state.latest === run) change({ latest: { ...run, lacking } });
    },
    /** Store the explanation of a response. Return the response without it, for the result pane. */
    take(name, answer) {
      const { dynamodb, ...others } = answer?.extensions ?? {};
      const latest = { name, at: new Date() };
      if (dynamodb) {
        change({ latest: { ...latest, explanation: dynamodb } });
        const { extensions, ...rest } = answer;
        return Object.keys(others).length ? { ...rest, extensions: others } : rest;
      }
      const [error] = answer?.errors ?? (Array.isArray(answer) ? answer : []);
      const refused = error && !error.path && REFUSALS.includes(error.extensions?.code);
      change({ latest: refused ? { ...latest, refusal: error.message } : { ...latest, lacking: NOT_EXPLAINED } });
      return answer;
    },
  };
}

function kept(storage) {
  try {
    return storage.getItem(KEPT);
  } catch {
    return null; // the browser may forbid storage
  }
}
