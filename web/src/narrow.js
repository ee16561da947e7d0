import { pick, useGraphiQL, useGraphiQLActions } from '@graphiql/react';
import { useEffect } from 'react';

/** Return whether the page is so narrow that an open pane covers it. The limit is the one in style.css. */
export function paneCoversPage() {
  return matchMedia('(width < 800px)').matches;
}

/** Let Escape close a pane that covers the page, and return the focus to the button that opened it. */
export function useEscape() {
  const { visiblePlugin } = useGraphiQL(pick('visiblePlugin'));
  const { setVisiblePlugin } = useGraphiQLActions();
  useEffect(() => {
    if (!visiblePlugin) return undefined;
    function close(event) {
      const { key, target, defaultPrevented } = event;
      // A search field is cleared first, and a dialog is above the pane.
      const isTaken = defaultPrevented || (target.type === 'search' && target.value) || document.querySelector('[role=dialog]');
      if (key !== 'Escape' || isTaken || !paneCoversPage()) return;
      setVisiblePlugin(null);
      document.querySelector('.graphiql-sidebar button.active')?.focus();
    }
    addEventListener('keydown', close);
    return () => removeEventListener('keydown', close);
  }, [visiblePlugin, setVisiblePlugin]);
}
