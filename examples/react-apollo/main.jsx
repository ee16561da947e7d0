// React with Apollo Client: a feed with optimistic likes, and live scores that update the normalised cache.
//
// Open /react-apollo/?api=http://127.0.0.1:8000/graphql#TOKEN. The gateway needs GATEWAY_ALLOWED_ORIGINS=http://127.0.0.1:5173.
import { ApolloClient, ApolloLink, HttpLink, InMemoryCache, gql } from "@apollo/client";
import { GraphQLWsLink } from "@apollo/client/link/subscriptions";
import { ApolloProvider, useMutation, useQuery, useSubscription } from "@apollo/client/react";
import { relayStylePagination } from "@apollo/client/utilities";
import { createClient } from "graphql-ws";
import { createRoot } from "react-dom/client";

const url = new URLSearchParams(location.search).get("api") ?? "http://127.0.0.1:8000/graphql";
const token = location.hash.slice(1);
const headers = token ? { Authorization: `Bearer ${token}` } : {};

const client = new ApolloClient({
  // Objects are stored by their type and `id`. Pages of a feed are appended to one list.
  cache: new InMemoryCache({ typePolicies: { Query: { fields: { homeFeed: relayStylePagination(["userId"]) } } } }),
  link: ApolloLink.split(
    ({ operationType }) => operationType === "subscription",
    new GraphQLWsLink(
      createClient({
        url: url.replace(/^http/, "ws"),
        connectionParams: headers,
        retryAttempts: Infinity,
        shouldRetry: () => true,
      }),
    ),
    new HttpLink({ uri: url, headers }),
  ),
});

const FEED = gql`
  query Feed($userId: ID!, $after: String) {
    homeFeed(userId: $userId, first: 5, after: $after) {
      edges { cursor node { id post { id text likeCount likedByViewer author { id name } } } }
      pageInfo { hasNextPage endCursor }
    }
  }
`;
const LIKE = gql`
  mutation Like($postId: ID!) {
    likePost(postId: $postId) { id post { id likeCount likedByViewer } }
  }
`;
const UNLIKE = gql`
  mutation Unlike($postId: ID!) {
    unlikePost(postId: $postId) { id likeCount likedByViewer }
  }
`;
const LIVE = gql`
  query Live {
    liveMatches { id matchId liveScore { ...Score } }
  }
  fragment Score on LiveScore { id version status innings { id runs wickets overs } }
`;
const SCORES = gql`
  subscription Scores {
    liveScores { updates { id liveScore { ...Score } } }
  }
  fragment Score on LiveScore { id version status innings { id runs wickets overs } }
`;

/** Show a post with its likes, which change before the gateway has responded. */
function Post({ post }) {
  const { id, likeCount, likedByViewer } = post;
  const [toggle, { error }] = useMutation(likedByViewer ? UNLIKE : LIKE);
  const changed = { __typename: "Post", id, likeCount: likeCount + (likedByViewer ? -1 : 1), likedByViewer: !likedByViewer };
  const optimisticResponse = likedByViewer
    ? { unlikePost: changed }
    : { likePost: { __typename: "Like", id: `optimistic-${id}`, post: changed } };
  return (
    <li>
      <b>{post.author?.name ?? "A deleted user"}</b> {post.text}{" "}
      <button aria-pressed={likedByViewer} onClick={() => toggle({ variables: { postId: id }, optimisticResponse })}>
        ♥ {likeCount}
      </button>
      {error && <em role="alert">{error.message}</em>}
    </li>
  );
}

function Feed({ userId }) {
  const { data, error, fetchMore } = useQuery(FEED, { variables: { userId } });
  if (error) return <p role="alert">{error.message}</p>;
  if (!data) return <p>Loading…</p>;
  const { edges, pageInfo } = data.homeFeed;
  const posts = edges.map(({ node }) => node?.post).filter(Boolean); // an entry that cannot be read is null
  return (
    <section>
      <h2>Feed</h2>
      <ul>
        {posts.map((post) => (
          <Post key={post.id} post={post} />
        ))}
      </ul>
      {pageInfo.hasNextPage && <button onClick={() => fetchMore({ variables: { after: pageInfo.endCursor } })}>More</button>}
    </section>
  );
}

/** Show the live matches. The subscription changes the scores in the cache, and so on the page. */
function Scores() {
  const { data } = useQuery(LIVE);
  useSubscription(SCORES);
  return (
    <section>
      <h2>Live</h2>
      <ul>
        {data?.liveMatches.map(({ id, matchId, liveScore }) => (
          <li key={id} data-version={liveScore.version}>
            {matchId}: {liveScore.innings.map(({ runs, wickets, overs }) => `${runs}/${wickets} (${overs})`).join(", ")}{" "}
            {liveScore.status}
          </li>
        ))}
      </ul>
    </section>
  );
}

/** Return the user of the token: the payload of a JWT is its second part. */
const userId = token ? JSON.parse(atob(token.split(".")[1].replace(/-/g, "+").replace(/_/g, "/"))).sub : null;

createRoot(document.getElementById("root")).render(
  <ApolloProvider client={client}>
    {userId ? <Feed userId={userId} /> : <p>Append #TOKEN to the address to see a feed.</p>}
    <Scores />
  </ApolloProvider>,
);
