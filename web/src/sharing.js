// Browsers and chats cut longer addresses.
const MAX_FRAGMENT = 64 * 1024;

/** Return a link that opens an operation in this page. It has the name of the role, never a token. */
export function linkOf({ query, variables, role }) {
  const fragment = new URLSearchParams({ query });
  if (variables.trim()) fragment.set('variables', variables);
  if (role) fragment.set('role', role);
  return `${location.origin}${location.pathname}#${fragment}`;
}

/** Return the { query, variables, role } of a link's fragment; null if it has none. */
export function sharedIn(fragment) {
  if (fragment.length > MAX_FRAGMENT) return null;
  const values = new URLSearchParams(fragment.replace(/^#/, ''));
  if (!values.get('query')) return null;
  return { query: values.get('query'), variables: values.get('variables') ?? '', role: values.get('role') };
}

/** Return a command that sends an operation. `headers` are pairs of a name and a value. */
export function curlOf({ url, operation, isSubscription, headers }) {
  const lines = [
    `curl${isSubscription ? ' -N' : ''} ${quoted(url)}`,
    `-H 'Content-Type: application/json'`,
    ...(isSubscription ? [`-H 'Accept: text/event-stream'`] : []),
    ...headers.map(([name, value]) => `-H ${value.includes(TOKEN) ? `"${name}: ${value}"` : quoted(`${name}: ${value}`)}`),
    `--data-raw ${quoted(JSON.stringify(operation))}`,
  ];
  return lines.join(' \\\n  ');
}

/** Stands for a token in a command: the shell inserts it. */
export const TOKEN = '$TOKEN';

function quoted(text) {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}
