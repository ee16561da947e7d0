// Apollo Client 4 over HTTP, and over a WebSocket for subscriptions.
import { ApolloClient, ApolloLink, HttpLink, InMemoryCache } from "@apollo/client";
import { GraphQLWsLink } from "@apollo/client/link/subscriptions";
import { createClient } from "graphql-ws";

export function apolloClient({ url, token, possibleTypes, typePolicies }) {
  const headers = { Authorization: `Bearer ${token}` };
  const http = new HttpLink({ uri: url, headers });
  const socket = createClient({ url: url.replace(/^http/, "ws"), connectionParams: headers });
  return new ApolloClient({
    cache: new InMemoryCache({ possibleTypes, typePolicies }),
    link: ApolloLink.split(
      ({ operationType }) => operationType === "subscription",
      new GraphQLWsLink(socket),
      http,
    ),
  });
}
