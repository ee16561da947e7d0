const KEPT = 'gateway:explain';
const REFUSALS = ['FORBIDDEN', 'UNAUTHENTICATED'];

/**
 * Whether operations are to be explained, and what became of the last one that was: a store for useSyncExternalStore.
 * `latest` is { asked, at } with one of `explanation`, `refusal` (a message) and `failed` (nothing was executed).
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
      change({ latest: refused ? { ...latest, refusal: error.message } : { ...latest, failed: true } });
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
