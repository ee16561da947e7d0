import { useState } from 'react';
import { ask } from './ask.js';
import { useOpenInTab } from './opening.js';
import { authorizationIn, headersFor } from './roles.jsx';
import { search, searchable } from './searching.js';

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
    const sought = Object.keys(variables).filter((name) => variables[name] !== null);
    return { ...example, variables: { ...variables, ...firstWith(sought, data) } };
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
  const all = examples.map(searchable);

  function Examples() {
    const [text, setText] = useState('');
    const [isReady, open] = useOpenInTab();
    const found = search(all, text);

    return (
      <section className="examples" aria-label="Examples">
        <h2>Examples</h2>
        <input
          type="search"
          aria-label="Search examples"
          placeholder="Search titles, fields, arguments"
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
        {[...Map.groupBy(found, ({ group }) => group)].map(([group, members]) => (
          // A new key opens the collapsed groups again when a search begins.
          <details key={`${group} ${Boolean(text)}`} open>
            <summary>
              {group} <small>{members.length}</small>
            </summary>
            <ul>
              {members.map((example) => (
                <li key={example.name}>
                  <Example {...example} onClick={isReady ? async () => open(tabOf(await withIds(example, { endpoint, tokens }), tokens)) : undefined} />
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

function Example({ title, id, because, as, onClick }) {
  return (
    <button type="button" onClick={onClick} disabled={!onClick} title="Open in a new tab">
      <span>
        {title}
        {because.map((term) => (
          <code key={term}>{term}</code>
        ))}
      </span>
      {as && as !== 'user' && <small>{as}</small>}
      {id && <small className="id">{id}</small>}
    </button>
  );
}

function ExamplesIcon(props) {
  return (
    <svg viewBox="0 0 24 24" height="1em" fill="none" stroke="currentColor" strokeWidth="1.5" {...props}>
      <path d="M12 5.5C10 4 6.500 3.500 2.750 4v14.500c3.750-.5 7.250 0 9.250 1.500 2-1.500 5.500-2 9.250-1.500V4C17.500 3.500 14 4 12 5.500zm0 0V20" />
      <path d="m15 10.500 2 2-2 2M6.500 10.500h2.500M6.500 14h2.500" />
    </svg>
  );
}
