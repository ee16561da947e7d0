import { useEffect, useRef, useState } from 'react';
import { pick, useGraphiQL, useGraphiQLActions } from '@graphiql/react';
import { ask } from './ask.js';
import { paneCoversPage } from './narrow.js';
import { authorizationIn, headersFor } from './roles.jsx';

// "QUAKE-2 Strong quakes of the month": a name begins with the id of its access pattern.
const NAME = /^(?:([A-Z]+-\w+)\s+)?(.*)$/;

/** Return an example in the form of a GraphiQL tab. */
export function tabOf({ query, variables, as }, tokens) {
  return {
    query,
    variables: variables ? JSON.stringify(variables, null, 2) : '',
    headers: headersFor(as, tokens),
  };
}

/** Return the example with ids of existing objects if it has a query for them. Otherwise its variables say what to paste. */
async function withIds(example, { endpoint, tokens }) {
  if (!example.find) return example;
  const { find, variables, as } = example;
  try {
    const data = await ask(endpoint, authorizationIn(headersFor(as, tokens)), find);
    return { ...example, variables: firstWith(Object.keys(variables), data) ?? variables };
  } catch {
    return example; // running the example shows the error
  }
}

/** Return the first nested object that has all of these properties, reduced to them. */
function firstWith(names, value) {
  if (typeof value !== 'object' || value === null) return undefined;
  if (names.every((name) => name in value)) return Object.fromEntries(names.map((name) => [name, value[name]]));
  return Object.values(value).reduce((found, inner) => found ?? firstWith(names, inner), undefined);
}

/** Return the sidebar pane that lists all examples and opens each in a new tab. */
export function createExamplesPlugin({ examples, tokens, endpoint }) {
  function Examples() {
    const [search, setSearch] = useState('');
    const open = useOpenInTab();
    // Tabs may be opened and closed while ids are read.
    const opening = useRef(open);
    useEffect(() => {
      opening.current = open;
    });
    const words = search.toLowerCase().split(/\s+/);
    const found = examples.filter(({ group, name }) => {
      const text = `${group} ${name}`.toLowerCase();
      return words.every((word) => text.includes(word));
    });

    return (
      <section className="examples" aria-label="Examples">
        <h2>Examples</h2>
        <input
          type="search"
          aria-label="Search examples"
          placeholder="Search examples"
          value={search}
          onChange={(event) => setSearch(event.target.value)}
        />
        {[...Map.groupBy(found, ({ group }) => group)].map(([group, members]) => (
          // A new key opens the collapsed groups again when a search begins.
          <details key={`${group} ${Boolean(search)}`} open>
            <summary>
              {group} <small>{members.length}</small>
            </summary>
            <ul>
              {members.map((example) => (
                <li key={example.name}>
                  <Example {...example} onClick={open && (async () => opening.current(tabOf(await withIds(example, { endpoint, tokens }), tokens)))} />
                </li>
              ))}
            </ul>
          </details>
        ))}
        {!found.length && <p>No example matches.</p>}
      </section>
    );
  }

  return { title: 'Examples', icon: ExamplesIcon, content: Examples };
}

function Example({ name, as, onClick }) {
  const [, id, title] = NAME.exec(name);
  return (
    <button type="button" onClick={onClick} disabled={!onClick} title="Open in a new tab">
      {id && <code>{id}</code>}
      <span>{title}</span>
      {as && as !== 'user' && <small>{as}</small>}
    </button>
  );
}

/** Return a function that opens a tab; undefined until the editors exist, because GraphiQL would lose the text. */
function useOpenInTab() {
  const { addTab, changeTab, setOperationName, setVisiblePlugin, stop, updateActiveTabValues } = useGraphiQLActions();
  const { tabs, queryEditor } = useGraphiQL(pick('tabs', 'queryEditor'));
  if (!queryEditor) return undefined;
  return (tab) => {
    stop(); // a running subscription would write into the new tab
    addTab();
    setOperationName(null); // otherwise the previous tab's name is sent until the editor has parsed the new query
    updateActiveTabValues(tab);
    if (paneCoversPage()) setVisiblePlugin(null);
    changeTab(tabs.length); // fills the editors from the tab
  };
}

function ExamplesIcon(props) {
  return (
    <svg viewBox="0 0 24 24" height="1em" fill="none" stroke="currentColor" strokeWidth="1.5" {...props}>
      <path d="M12 5.5C10 4 6.500 3.500 2.750 4v14.500c3.750-.5 7.250 0 9.250 1.500 2-1.500 5.500-2 9.250-1.500V4C17.500 3.500 14 4 12 5.500zm0 0V20" />
      <path d="m15 10.500 2 2-2 2M6.500 10.500h2.500M6.500 14h2.500" />
    </svg>
  );
}
