import { getOperationAST, parse } from 'graphql';

/** Return whether the response to a request may come in parts. */
export const isIncremental = ({ query }) => /@\s*(defer|stream)\b/.test(query);

/** Return whether a request runs a subscription. It parses the query itself: GraphiQL's document is a moment behind. */
export function isSubscription({ query, operationName }) {
  try {
    return getOperationAST(parse(query), operationName)?.operation === 'subscription';
  } catch {
    return false; // the server explains syntax errors better
  }
}
