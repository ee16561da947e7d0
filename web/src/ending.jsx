import { pick, useGraphiQL, useGraphiQLActions } from '@graphiql/react';
import { useSyncExternalStore } from 'react';

/** A line below the result: why the subscription of this tab has ended, and a button to continue it. */
export function Ending({ endings }) {
  const ended = useSyncExternalStore(endings.subscribe, endings.get);
  const { tabs, activeTabIndex } = useGraphiQL(pick('tabs', 'activeTabIndex'));
  const { run } = useGraphiQLActions();
  const isOfTab = ended && tabs[activeTabIndex]?.query === ended.params.query;

  return (
    <div className="ending" role="status">
      {isOfTab && <p>{ended.words}</p>}
      {isOfTab && ended.resumeAfter && (
        <button
          type="button"
          title="Continue after the last event, without a gap"
          onClick={() => {
            endings.resume();
            run();
          }}
        >
          Resume
        </button>
      )}
    </div>
  );
}
