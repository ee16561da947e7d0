import { pick, useGraphiQL } from '@graphiql/react';
import { useMemo, useState } from 'react';

const MAX_PICTURES = 12;
// The bounds of a search in a result.
const MAX_CHARACTERS = 1_000_000;
const MAX_VALUES = 20_000;
const NAMES = ['description', 'name', 'title', 'displayName'];

/** A row of the pictures whose addresses are in the result of the tab. Only files of the gateway are shown. */
export function Pictures({ url, media }) {
  const { tabs, activeTabIndex } = useGraphiQL(pick('tabs', 'activeTabIndex'));
  const response = tabs[activeTabIndex]?.response;
  const { shown, more } = useMemo(() => picturesIn(response, { url, media }), [response, url, media]);
  if (!shown.length) return null;
  return (
    <ul className="pictures" aria-label="Pictures of the result">
      {shown.map((picture) => (
        <Picture key={picture.source} {...picture} />
      ))}
      {more > 0 && <li className="more">{`and ${more} more`}</li>}
    </ul>
  );
}

function Picture({ source, whole, words }) {
  const [failed, setFailed] = useState(false);
  if (failed) return null;
  return (
    <li>
      <a href={whole} target="_blank" rel="noreferrer" title={words}>
        <img src={source} alt={words} loading="lazy" decoding="async" onError={() => setFailed(true)} />
      </a>
    </li>
  );
}

/** Return the first pictures in a result as { source, whole, words }, one for each object, and how many more there are. */
function picturesIn(response, { url, media }) {
  const found = new Map();
  let left = MAX_VALUES;

  /** Return the address of a file of the gateway, relative if it is of this origin; otherwise undefined. */
  function local(address) {
    if (typeof address !== 'string' || !media.some((prefix) => address.startsWith(prefix))) return undefined;
    return url && address.startsWith(`${url}/`) ? address.slice(url.length) : address;
  }

  function look(value) {
    if (typeof value !== 'object' || value === null || left-- <= 0) return;
    if (!Array.isArray(value)) {
      const files = Object.entries(value).filter(([, address]) => local(address));
      const [small] = files.filter(([name]) => /thumbnail/i.test(name));
      const [large] = files.filter(([name]) => !/thumbnail/i.test(name));
      const source = local((small ?? large)?.[1]);
      const words = NAMES.map((name) => value[name]).find((text) => typeof text === 'string') ?? 'A picture of the result';
      if (source && !found.has(source)) found.set(source, { source, whole: local((large ?? small)[1]), words });
    }
    Object.values(value).forEach(look);
  }

  if (media.length && response && response.length <= MAX_CHARACTERS) {
    try {
      look(JSON.parse(response).data);
    } catch {
      // It is no JSON, and has no pictures.
    }
  }
  return { shown: [...found.values()].slice(0, MAX_PICTURES), more: Math.max(0, found.size - MAX_PICTURES) };
}
