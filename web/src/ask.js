/** Send a query to the gateway outside of GraphiQL's editors. Throws an Error with a message, and the API's code if any. */
export async function ask(endpoint, authorization, query, variables = {}) {
  const headers = { 'Content-Type': 'application/json', Accept: 'application/graphql-response+json, application/json' };
  if (authorization) headers.Authorization = authorization;
  const { data, errors } = await answerOf(endpoint, { method: 'POST', headers, body: JSON.stringify({ query, variables }) });
  if (errors?.length) throw Object.assign(new Error(errors[0].message), { code: errors[0].extensions?.code });
  return data;
}

async function answerOf(endpoint, request) {
  let response;
  try {
    response = await fetch(endpoint, request);
  } catch {
    throw new Error('The gateway cannot be reached. Check that it is running.');
  }
  try {
    return await response.json();
  } catch {
    throw new Error(`The gateway answered with status ${response.status} and an unreadable body.`);
  }
}
