// The generated TypeScript client: typed requests with retries, and a subscription that resumes.
//
//   npm run typescript -- [AUTHOR]
//
// API_URL is the address of the gateway, API_TOKEN the token of a user, who likes the latest post of AUTHOR.
import { FollowMatchDocument, LikeDocument, LiveMatchesDocument, PostsDocument } from "./gateway/documents.ts";
import { follow } from "./gateway/follow.ts";
import { createGatewayClient, GatewayError } from "./gateway/transport.ts";

const { API_URL = "http://127.0.0.1:8000/graphql", API_TOKEN } = process.env;
const client = createGatewayClient({ url: API_URL, token: API_TOKEN, webSocketImpl: (await import("ws")).default });

const [author] = process.argv.slice(2);
if (author) {
  const { postsByAuthor } = await client.request(PostsDocument, { authorId: author });
  const post = postsByAuthor.nodes[0];
  try {
    if (!post) throw new Error(`${author} has no posts.`);
    const { likePost } = await client.request(LikeDocument, { postId: post.id });
    console.log(`${likePost.post?.likeCount} like: ${post.text}`);
  } catch (error) {
    if (!(error instanceof GatewayError)) throw error;
    console.error(`${error.code}: ${error.message}`); // such as UNAUTHENTICATED
  }
}

const { liveMatches } = await client.request(LiveMatchesDocument, {});
for (const { matchId, match } of liveMatches) {
  console.log(`${match?.homeTeam?.name} v ${match?.awayTeam?.name}`);
  follow(client, FollowMatchDocument, { matchId }, {
    apply({ matchUpdates: { events, isSnapshot, liveScore } }) {
      if (isSnapshot) console.log(`${matchId} ${liveScore.status}`);
      for (const { text, score } of events) console.log(`${matchId} ${score ?? ""} ${text}`);
    },
    startOver: (state) => console.log(`${matchId} starts over with ${state?.matchUpdates.liveScore.status}`),
    version: ({ matchUpdates }) => [matchId, matchUpdates.version],
    end: (error) => console.log(error ?? `${matchId} has ended.`),
  });
}
