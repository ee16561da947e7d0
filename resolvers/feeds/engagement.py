"""How a post is doing, live: the subscription FEED-S1 to its counts."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from datastore.errors import Forbidden, NotFound
from datastore.feeds.posts import Post, is_live, post_from
from datastore.feeds.visibility import Sight
from datastore.hub import Policy
from datastore.keyspace.feeds import engagement as keys
from datastore.keyspace.feeds import posts as post_keys
from datastore.keyspace.feeds.table import FEED
from datastore.streams import Change
from resolvers import bounds
from resolvers.arguments import PostId, WhenSlow
from resolvers.context import Context, Info
from resolvers.subscribing import follow


@dataclass(frozen=True, slots=True)
class PostEngagement:
    """The counts of a post at a moment."""

    post_id: str
    like_count: int
    comment_count: int


@dataclass(frozen=True, slots=True)
class _Deleted:
    """The post is gone."""


async def post_engagement(
    info: Info, post_id: PostId, when_slow: WhenSlow = Policy.LATEST
) -> AsyncGenerator[PostEngagement, None]:
    return _engagement(info.context, bounds.id("postId", post_id), when_slow)


async def _engagement(context: Context, post_id: str, when_slow: Policy) -> AsyncGenerator[PostEngagement, None]:
    """The present counts, then each change, until the post is deleted.

    What was counted just before the start may be told after it; the last that is told is how the post stands.
    Raises `NotFound`, and `Forbidden` once the viewer may see the post no longer.
    """
    key = post_keys.post(post_id)

    async def present() -> Post:
        post = await context.posts.visible(post_id, keys.POST_ENGAGEMENT)
        if post is None:
            raise NotFound("There is no such post.")
        return post

    def changed(change: Change) -> Post | _Deleted | None:
        if (change.keys["PK"], change.keys["SK"]) != key:
            return None
        if change.new is None or not is_live(change.new):
            return _Deleted()
        return post_from(change.new)

    told: PostEngagement | None = None
    states: AsyncGenerator[Post | _Deleted, None] = follow(context, FEED, changed, when_slow, first=present)
    async with aclosing(states):
        async for state in states:
            if isinstance(state, _Deleted):
                return
            engagement = PostEngagement(post_id, state.likes or 0, state.comments or 0)
            if engagement == told:
                continue
            if told is not None and not await _still_allows(context, state):
                raise Forbidden("You may not see this post any more.")
            told = engagement
            yield engagement


async def _still_allows(context: Context, post: Post) -> bool:
    """Read anew: what the context has read is as old as the event before."""
    sight = Sight(context.new_store(), context.sight.viewer)
    return await sight.allows(post.author_id, post.visibility, keys.POST_ENGAGEMENT)
