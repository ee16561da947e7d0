"""The subscription FEED-S1 to the counts of a post."""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field

from datastore.change_streams.change import Change
from datastore.change_streams.subscriptions.delivery import Delivery
from datastore.change_streams.subscriptions.event_source import EventSource, EventStream, SourceReader
from datastore.errors import Forbidden, NotFound
from datastore.feeds.posts import Post, full_post, is_live
from datastore.feeds.visibility import VisibilityPolicy
from datastore.keyspace.feeds import posts as keys
from datastore.keyspace.feeds.table import FEED
from datastore.queues import QueueLimits
from resolvers.shared import validation as validate
from resolvers.shared.arguments import DEFAULT_BUFFER, Buffer, PostId, WhenSlow
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
    info: Info,
    post_id: PostId,
    when_slow: WhenSlow = keys.POST_ENGAGEMENT.default_policy,
    buffer: Buffer = DEFAULT_BUFFER,
) -> EventSource[PostEngagement]:
    """Return the present counts, then each change, until the post is deleted.

    Counts from just before the start may follow the present ones. The latest event is always correct.

    Raises:
        NotFound: the post does not exist, or the caller may not see it.
        Forbidden: the caller may no longer see the post.
    """
    limits = queue_limits(when_slow, buffer)
    post = validate.id("postId", post_id, of=("Post",))

    async def first(context: Context) -> PostEngagement:
        return await _present_counts(context, post)

    def open_stream(reader: SourceReader[PostEngagement]) -> EventStream[PostEngagement]:
        return EventStream(_count_changes(reader, post, limits), _CountsJoinFilter)

    return EventSource(open_stream, limits, first=first, check=_check_visible)


async def _present_counts(context: Context, post_id: str) -> PostEngagement:
    post = await context.posts.visible(post_id, keys.POST_ENGAGEMENT)
    if post is None:
        raise NotFound("There is no such post.")
    return _engagement(post)


async def _count_changes(
    reader: SourceReader[PostEngagement], post_id: str, limits: QueueLimits
) -> AsyncGenerator[Delivery[PostEngagement], None]:
    """Yield the counts of a post whenever they change, until the post is deleted."""

    def select(change: Change) -> PostEngagement | _PostDeleted | None:
        if (change.keys["PK"], change.keys["SK"]) != keys.post(post_id):
            return None
        if change.new is None or not is_live(change.new):
            return _PostDeleted()
        counts = _engagement(full_post(change.new))
        # Other changes of the post are no events, and do not count as conflated for a slow subscriber.
        is_changed = change.old is None or not is_live(change.old) or _engagement(full_post(change.old)) != counts
        return counts if is_changed else None

    latest: PostEngagement | None = None
    dropped = 0
    states: AsyncGenerator[Delivery[PostEngagement | _PostDeleted], None] = follow(
        reader, FEED, select, limits, first=reader.read_first
    )
    async with aclosing(states):
        async for delivery in states:
            state = delivery.event
            if isinstance(state, _PostDeleted):
                return
            if state is None:
                yield delivery.without_event()
            elif state == latest:
                dropped += delivery.dropped
            else:
                latest = state
                yield delivery.with_event(state, delivery.known, dropped)
                dropped = 0


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
