import { StorageAPI } from '@graphiql/toolkit';

const HISTORY = ['graphiql:queries', 'graphiql:favorites'];

/**
 * Return the browser's storage without tokens. GraphiQL's history stores the headers of each run even if headers must not
 * be stored. This storage removes them, and returns items with the default headers.
 */
export function createStorage(defaultHeaders) {
  const { storage } = new StorageAPI();
  return Object.assign(Object.create(storage), {
    setItem(key, value) {
      storage.setItem(key, HISTORY.includes(key) ? eachItem(value, ({ headers, ...item }) => item) : value);
    },
    getItem(key) {
      const value = storage.getItem(key);
      return value && HISTORY.includes(key) ? eachItem(value, (item) => ({ ...item, headers: defaultHeaders })) : value;
    },
  });
}

function eachItem(json, change) {
  const lists = Object.entries(JSON.parse(json)).map(([name, items]) => [name, items.map(change)]);
  return JSON.stringify(Object.fromEntries(lists));
}
