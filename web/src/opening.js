import { pick, useGraphiQL, useGraphiQLActions } from '@graphiql/react';
import { useEffect, useRef } from 'react';
import { paneCoversPage } from './narrow.js';

/**
 * Return whether the editors exist, and a function that opens a tab in them. Before they exist GraphiQL would lose the
 * text.
 */
export function useOpenInTab() {
  const { addTab, changeTab, setOperationName, setVisiblePlugin, stop, updateActiveTabValues } = useGraphiQLActions();
  const { tabs, queryEditor } = useGraphiQL(pick('tabs', 'queryEditor'));
  // Tabs may be opened and closed before the function is called.
  const count = useRef(tabs.length);
  useEffect(() => {
    count.current = tabs.length;
  });
  const open = (tab) => {
    stop(); // a running subscription would write into the new tab
    addTab();
    setOperationName(null); // otherwise the previous tab's name is sent until the editor has parsed the new query
    updateActiveTabValues(tab);
    if (paneCoversPage()) setVisiblePlugin(null);
    changeTab(count.current); // fills the editors from the tab
  };
  return [Boolean(queryEditor), open];
}
