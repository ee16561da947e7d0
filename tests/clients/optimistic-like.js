// A client shows a like before the gateway answers, by the client's name. Says the count and the mark that a watched
// query of the post shows, then those in the cache after the answer.

import { gql } from "@apollo/client";
import { possibleTypesOf } from "./caches/apollo.js";
import { introspectionOf } from "./caches/urql.js";
import { given, say } from "./conversation.js";
import { complaints } from "./recording.js";
import { apolloClient } from "./setup/apollo.js";
import { urqlClient } from "./setup/urql.js";

const POST = gql`
  query Post($id: ID!) {
    post(id: $id) { id likeCount likedByViewer }
  }
`;
const LIKE = gql`
  mutation Like($id: ID!) {
    likePost(postId: $id) { id post { id likeCount likedByViewer } }
  }
`;
const { url, token, schema } = given;
const variables = { id: given.post };
const counts = ({ post }) => [post.likeCount, post.likedByViewer];

const clients = {
  async apollo() {
    const client = apolloClient({ url, token, possibleTypes: possibleTypesOf(schema) });
    const { data } = await client.query({ query: POST, variables });
    const post = { ...data.post, likeCount: data.post.likeCount + 1, likedByViewer: true };
    client.watchQuery({ query: POST, variables }).subscribe((result) => say(counts(result.data)));
    await client.mutate({
      mutation: LIKE,
      variables,
      optimisticResponse: { likePost: { __typename: "Like", id: "until the answer", post } },
    });
    return client.readQuery({ query: POST, variables });
  },

  async urql() {
    const read = (requestPolicy) => client.query(POST, variables, { requestPolicy }).toPromise();
    const optimistic = {
      likePost(_, cache) {
        const post = cache.resolve(cache.resolve("Query", "post", variables), "id");
        const entity = { __typename: "Post", id: post };
        const likeCount = cache.resolve(entity, "likeCount") + 1;
        return { __typename: "Like", id: "until the answer", post: { ...entity, likeCount, likedByViewer: true } };
      },
    };
    const client = urqlClient({ url, token, schema: introspectionOf(schema), optimistic });
    await read("network-only");
    client.query(POST, variables).subscribe(({ data }) => say(counts(data)));
    await client.mutation(LIKE, variables).toPromise();
    return (await read("cache-only")).data;
  },
};

say({ answered: counts(await clients[given.client]()), complaints });
process.exit();
