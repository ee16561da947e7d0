"""The subscription FEED-S1 to the counts of a post."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field

from datastore.change_streams.change import Change
from datastore.change_streams.subscriptions.event_source import SharedSource, SourceReader
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
    """The counts of a post at one moment."""

    post_id: str
    like_count: int
    comment_count: int
    post: Post = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class _PostDeleted:
    """The post was deleted."""


async def post_engagement(
    info: Info, post_id: PostId, when_slow: WhenSlow = keys.POST_ENGAGEMENT.default_policy, buffer: Buffer = None
) -> SharedSource[PostEngagement]:
    """Return the present counts, then each change, until the post is deleted.

    Counts from just before the start may follow the present ones. The latest event is always correct.

    Raises:
        NotFound: the post does not exist, or the caller may not see it.
        Forbidden: the caller may no longer see the post.
    """
    limits = queue_limits(when_slow, buffer)
    counts = _PostCounts(info.context, validate.id("postId", post_id), limits)
    return SharedSource(
        info.context,
        limits,
        counts.events,
        first=counts.present,
        since=_CountsJoinFilter,
        check=_check_visible,
    )


class _PostCounts:
    """The counts of a post and their changes."""

    def __init__(self, context: Context, post_id: str, limits: QueueLimits) -> None:
        self._latest: PostEngagement | None = None
        self._context = context
        self._post_id = post_id
        self._limits = limits

    async def present(self, context: Context) -> PostEngagement:
        post = await context.posts.visible(self._post_id, keys.POST_ENGAGEMENT)
        if post is None:
            raise NotFound("There is no such post.")
        return _engagement(post)

    async def events(self, reader: SourceReader[PostEngagement]) -> AsyncGenerator[PostEngagement, None]:
        states: AsyncGenerator[PostEngagement | _PostDeleted, None] = follow(
            self._context, FEED, self._select, self._limits, first=reader.read_first, reader=reader
        )
        async with aclosing(states):
            async for state in states:
                if isinstance(state, _PostDeleted):
                    return
                if state != self._latest:
                    self._latest = state
                    yield state

    def _select(self, change: Change) -> PostEngagement | _PostDeleted | None:
        if (change.keys["PK"], change.keys["SK"]) != post_keys.post(self._post_id):
            return None
        if change.new is None or not is_live(change.new):
            return _PostDeleted()
        counts = _engagement(post_from(change.new))
        # Other changes of the post are no events, and do not count as conflated for a slow subscriber.
        is_changed = change.old is None or not is_live(change.old) or _engagement(post_from(change.old)) != counts
        return counts if is_changed else None


class _CountsJoinFilter:
    """A filter for a subscriber that joins others: counts that are equal to the first ones are not new."""

    def __init__(self) -> None:
        self._first: PostEngagement | None = None
        self.is_settled = False

    def begin(self, first: PostEngagement) -> None:
        self._first = first

    def is_reached(self, seen: Mapping[str, int], left: Mapping[str, int]) -> bool:
        return True

    def resume_from(self, seen: Mapping[str, int]) -> None:
        """Do nothing: the positions of the events decide which of them are new."""

    def accepts(self, event: PostEngagement) -> bool:
        self.is_settled = True
        return event != self._first


def _engagement(post: Post) -> PostEngagement:
    return PostEngagement(post.post_id, post.likes or 0, post.comments or 0, post)


async def _check_visible(context: Context, event: PostEngagement) -> None:
    """Raise `Forbidden` unless the caller may see the post. It reads with a new store, which has no older reads."""
    post = event.post
    visibility = VisibilityPolicy(context.new_store(), context.viewer)
    if not await visibility.allows(post.author_id, post.visibility, keys.POST_ENGAGEMENT):
        raise Forbidden("You may no longer see this post.")
