import { tryParseJSONC, useGraphiQL, useHeadersEditorState } from '@graphiql/react';

const ROLE = /admin|system|user/i;
const ANONYMOUS = 'anonymous';

/** Return the header text for an example. Without a token of the role, the example runs as the demo user. */
export function headersFor(role, tokens) {
  const of = (expected) => tokens.find(({ name }) => ROLE.exec(name)?.[0].toLowerCase() === expected);
  return withToken('', (of(role) ?? of('user'))?.token);
}

/** Return the header text for the role of a link. Without a token of that name it is that of the demo user. */
export function headersOfRole(name, tokens) {
  if (name === ANONYMOUS) return '';
  const held = tokens.find((token) => token.name === name);
  return held ? withToken('', held.token) : headersFor('user', tokens);
}

/** Return the name of the role in the header text; undefined for a token that is none of these. */
export function roleIn(text, tokens) {
  const authorization = authorizationIn(text);
  return authorization ? tokens.find(({ token }) => authorization === `Bearer ${token}`)?.name : ANONYMOUS;
}

/** Return the header text with this token, or without one. Other headers stay. */
function withToken(text, token) {
  const headers = Object.entries(parsed(text)).filter(([name]) => name.toLowerCase() !== 'authorization');
  if (token) headers.push(['Authorization', `Bearer ${token}`]);
  return headers.length ? JSON.stringify(Object.fromEntries(headers), null, 2) : '';
}

/** Return the Authorization value in the header text, or ''. */
export function authorizationIn(text) {
  return Object.entries(parsed(text)).find(([name]) => name.toLowerCase() === 'authorization')?.[1] ?? '';
}

function parsed(text) {
  try {
    return tryParseJSONC(text) ?? {};
  } catch {
    return {};
  }
}

/** A menu that shows the owner of the token in the current tab's headers, and replaces the token. */
export function RoleSwitch({ tokens }) {
  const [headers, setHeaders] = useHeadersEditorState();
  const ready = useGraphiQL((state) => Boolean(state.headerEditor));
  const held = tokens.findIndex(({ token }) => headers.includes(token));
  const custom = held < 0 && /"authorization"/i.test(headers);

  return (
    <label className="role-switch">
      <span>Run as</span>
      <select
        disabled={!ready}
        value={custom ? 'custom' : held}
        onChange={(event) => setHeaders(withToken(headers, tokens[event.target.value]?.token))}
      >
        <option value={-1}>{ANONYMOUS}</option>
        {tokens.map(({ name }, index) => (
          <option key={name} value={index}>
            {name}
          </option>
        ))}
        {custom && <option value="custom">another token</option>}
      </select>
    </label>
  );
}
