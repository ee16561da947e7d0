"""How a post is doing, live: the subscription FEED-S1 to its counts."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field

from datastore.change_streams.shards.stream_reader import Change
from datastore.change_streams.subscriptions.event_source import SharedSource
from datastore.errors import Forbidden, NotFound
from datastore.feeds.posts import Post, is_live, post_from
from datastore.feeds.visibility import VisibilityPolicy
from datastore.keyspace.feeds import engagement as keys
from datastore.keyspace.feeds import posts as post_keys
from datastore.keyspace.feeds.table import FEED
from datastore.queues import QueueLimits
from resolvers.shared import validation as validate
from resolvers.shared.arguments import Buffer, PostId, WhenSlow
from resolvers.shared.context import Context, Info
from resolvers.shared.event_source import follow, queue_limits


@dataclass(frozen=True, slots=True)
class PostEngagement:
    """The counts of a post at a moment."""

    post_id: str
    like_count: int
    comment_count: int
    post: Post = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class _PostDeleted:
    """The post is gone."""


async def post_engagement(
    info: Info, post_id: PostId, when_slow: WhenSlow = keys.POST_ENGAGEMENT.policy, buffer: Buffer = None
) -> SharedSource[PostEngagement]:
    """The present counts, then each change, until the post is deleted.

    What was counted just before the start may be told after it; the last that is told is how the post stands.
    Raises `NotFound`, and `Forbidden` once the viewer may see the post no longer.
    """
    kept = queue_limits(when_slow, buffer)
    counts = _Counts(info.context, validate.id("postId", post_id), kept)
    return SharedSource(
        info.context,
        kept,
        counts.events,
        first=counts.present,
        since=_SinceCounted,
        check=_still_allows,
    )


class _Counts:
    """The counts of a post, as they change."""

    def __init__(self, context: Context, post_id: str, keeping: QueueLimits) -> None:
        self._told: PostEngagement | None = None
        self._context = context
        self._post_id = post_id
        self._keeping = keeping

    async def present(self, context: Context) -> PostEngagement:
        post = await context.posts.visible(self._post_id, keys.POST_ENGAGEMENT)
        if post is None:
            raise NotFound("There is no such post.")
        return _engagement(post)

    async def events(
        self, begin: Callable[[], Awaitable[PostEngagement | None]]
    ) -> AsyncGenerator[PostEngagement, None]:
        states: AsyncGenerator[PostEngagement | _PostDeleted, None] = follow(
            self._context, FEED, self._changed, self._keeping, first=begin
        )
        async with aclosing(states):
            async for state in states:
                if isinstance(state, _PostDeleted):
                    return
                if state != self._told:
                    self._told = state
                    yield state

    def _changed(self, change: Change) -> PostEngagement | _PostDeleted | None:
        if (change.keys["PK"], change.keys["SK"]) != post_keys.post(self._post_id):
            return None
        if change.new is None or not is_live(change.new):
            return _PostDeleted()
        counts = _engagement(post_from(change.new))
        # What changes no count is no event: it is not to be counted where a slow viewer's events are conflated.
        is_news = change.old is None or not is_live(change.old) or _engagement(post_from(change.old)) != counts
        return counts if is_news else None


class _SinceCounted:
    """Counts that may have been counted after others: only the same are no news."""

    def __init__(self) -> None:
        self._told: PostEngagement | None = None
        self.is_settled = False

    def begin(self, first: PostEngagement) -> None:
        self._told = first

    def is_reached(self, seen: Mapping[str, int], left: Mapping[str, int]) -> bool:
        return True

    def go_on(self, seen: Mapping[str, int]) -> None:
        """What was told then is not known here: numbers tell what comes after it."""

    def is_news(self, event: PostEngagement) -> bool:
        self.is_settled = True
        return event != self._told


def _engagement(post: Post) -> PostEngagement:
    return PostEngagement(post.post_id, post.likes or 0, post.comments or 0, post)


async def _still_allows(context: Context, event: PostEngagement) -> None:
    """Read anew: what the context has read may be as old as the event before."""
    post = event.post
    sight = VisibilityPolicy(context.new_store(), context.viewer)
    if not await sight.allows(post.author_id, post.visibility, keys.POST_ENGAGEMENT):
        raise Forbidden("You may not see this post any more.")
