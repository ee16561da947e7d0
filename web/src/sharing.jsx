import { pick, ToolbarButton, tryParseJSONC, useGraphiQL } from '@graphiql/react';
import { useEffect, useRef, useState } from 'react';
import { useOpenInTab } from './opening.js';
import { headersOfRole, roleIn } from './roles.jsx';
import { curlOf, linkOf, sharedIn, TOKEN } from './sharing.js';
import { isSubscription } from './operations.js';

const SHOWN_MS = 15_000;
const CLIPBOARD_MS = 2000;

/** The buttons that copy the operation of the tab as a command and as a link. */
export function Sharing({ endpoint, tokens }) {
  const editors = useGraphiQL(pick('queryEditor', 'variableEditor', 'headerEditor', 'operationName'));
  const [words, setWords] = useState('');

  useEffect(() => {
    const timer = setTimeout(() => setWords(''), SHOWN_MS);
    return () => clearTimeout(timer);
  }, [words]);

  async function copy(text, done) {
    setWords((await copied(text)) ? done : 'The browser does not allow copying.');
  }

  async function copyCurl() {
    try {
      const [command, done] = commandOf(editors, { endpoint, tokens });
      await copy(command, done);
    } catch (error) {
      setWords(error.message);
    }
  }

  async function copyLink() {
    const { queryEditor, variableEditor, headerEditor } = editors;
    const role = roleIn(headerEditor?.getValue() ?? '', tokens);
    const link = linkOf({ query: queryEditor.getValue(), variables: variableEditor?.getValue() ?? '', role });
    await copy(link, 'The link is copied. It contains no token.');
  }

  return (
    <>
      <ToolbarButton label="Copy as curl" onClick={copyCurl}>
        <TerminalIcon />
      </ToolbarButton>
      <ToolbarButton label="Copy link" onClick={copyLink}>
        <LinkIcon />
      </ToolbarButton>
      <div className="copied" role="status">
        {words}
      </div>
    </>
  );
}

/** Return the command for an operation, and what to tell the user. Throws an Error if an editor has invalid JSON. */
function commandOf({ queryEditor, variableEditor, headerEditor, operationName }, { endpoint, tokens }) {
  const query = queryEditor.getValue();
  const variables = parsedEditor(variableEditor, 'variables');
  const written = Object.entries(parsedEditor(headerEditor, 'headers') ?? {});
  const isDemo = (value) => tokens.some(({ token }) => value === `Bearer ${token}`);
  // A token of the demo is of no use elsewhere. Any other token stays in this page.
  const headers = written.map(([name, value]) =>
    name.toLowerCase() === 'authorization' && !isDemo(value) ? [name, `Bearer ${TOKEN}`] : [name, `${value}`],
  );
  const operation = { query, variables, operationName: operationName || undefined };
  const command = curlOf({
    url: new URL(endpoint, location.href).href,
    operation,
    isSubscription: isSubscription(operation),
    headers,
  });
  return [command, `The command is copied.${command.includes(TOKEN) ? ' Set TOKEN to your token before you run it.' : ''}`];
}

function parsedEditor(editor, name) {
  try {
    return tryParseJSONC(editor?.getValue() ?? '');
  } catch {
    throw new Error(`The ${name} are not valid JSON.`);
  }
}

/** Copy a text. Return whether it worked. */
async function copied(text) {
  try {
    // A browser that waits for the focus or for a permission may leave the promise pending.
    const late = new Promise((_, reject) => setTimeout(reject, CLIPBOARD_MS));
    await Promise.race([navigator.clipboard.writeText(text), late]);
    return true;
  } catch {
    return copiedBySelection(text); // a page that came by http from another machine has no clipboard
  }
}

function copiedBySelection(text) {
  const area = Object.assign(document.createElement('textarea'), { value: text });
  document.body.append(area);
  area.select();
  const done = document.execCommand('copy');
  area.remove();
  return done;
}

/** Open the operation of a link in a tab: that of the page's address, and those of links pasted later. */
export function SharedOperation({ tokens }) {
  const [isReady, open] = useOpenInTab();
  const opening = useRef(open);
  useEffect(() => {
    opening.current = open;
  });
  useEffect(() => {
    if (!isReady) return undefined;
    function restore() {
      const shared = sharedIn(location.hash);
      if (!shared) return;
      history.replaceState(history.state, '', location.pathname + location.search); // a reload opens no second tab
      opening.current({ ...shared, headers: headersOfRole(shared.role, tokens), role: undefined });
    }
    restore();
    addEventListener('hashchange', restore);
    return () => removeEventListener('hashchange', restore);
  }, [isReady, tokens]);
  return null;
}

function TerminalIcon() {
  return (
    <svg className="graphiql-toolbar-icon" viewBox="0 0 24 24" fill="none" stroke="currentColor" strokeWidth="1.5" aria-hidden="true">
      <rect x="2.750" y="4.500" width="18.500" height="15" rx="2" />
      <path d="m6.500 9 3 3-3 3M12 15.250h5" />
    </svg>
  );
}

function LinkIcon() {
  return (
    <svg className="graphiql-toolbar-icon" viewBox="0 0 24 24" fill="none" stroke="currentColor" strokeWidth="1.5" aria-hidden="true">
      <path d="M10 14a4 4 0 0 0 5.700 0l3.500-3.500a4 4 0 0 0-5.700-5.700L12 6.300M14 10a4 4 0 0 0-5.700 0l-3.500 3.500a4 4 0 0 0 5.700 5.700L12 17.700" />
    </svg>
  );
}
