const KEPT = 'gateway:explain';
/** Why there is no explanation where something went wrong. */
export const UNTOLD = 'No explanation came: the result says why.';
const REFUSALS = ['FORBIDDEN', 'UNAUTHENTICATED'];

/**
 * Whether operations are to be explained, and what became of the last one that was: a store for useSyncExternalStore.
 * `latest` is { asked, at } with one of `explanation`, `refusal` (a message) and, while there is none, `lacking` (why).
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
        // It counts until the page is closed.
      }
      change({ on });
    },
    /** A run begins: what was told of another is no more. */
    begin(asked, lacking) {
      const run = { asked, at: new Date(), lacking };
      change({ latest: run });
      return run;
    },
    /** It is over; why there is no explanation, if there is none. */
    end(run, lacking) {
      if (state.latest === run) change({ latest: { ...run, lacking } });
    },
    /** Notes the explanation in an answer; what is left of the answer is for the result's pane. */
    take(asked, answer) {
      const { dynamodb, ...others } = answer?.extensions ?? {};
      const latest = { asked, at: new Date() };
      if (dynamodb) {
        change({ latest: { ...latest, explanation: dynamodb } });
        const { extensions, ...rest } = answer;
        return Object.keys(others).length ? { ...rest, extensions: others } : rest;
      }
      const [error] = answer?.errors ?? (Array.isArray(answer) ? answer : []);
      const refused = error && !error.path && REFUSALS.includes(error.extensions?.code);
      change({ latest: refused ? { ...latest, refusal: error.message } : { ...latest, lacking: UNTOLD } });
      return answer;
    },
  };
}

function kept(storage) {
  try {
    return storage.getItem(KEPT);
  } catch {
    return null; // a page may be forbidden to keep anything
  }
}
