"""Home feeds: FEED-003, and the subscription FEED-S1 to new entries."""

from collections import ChainMap, deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import timedelta
from hashlib import blake2b
from typing import Unpack

import strawberry
from msgspec.structs import replace

from datastore.change_streams.change import Change
from datastore.change_streams.subscriptions.delivery import Delivery
from datastore.change_streams.subscriptions.event_source import EventSource, EventStream, SourceReader
from datastore.feeds.home_feeds import FeedEntry, HomeFeeds, MergedAuthor, entry_from, is_entry, is_source, with_authors
from datastore.feeds.posts import Post, Posts, created_post
from datastore.feeds.visibility import Visibility, VisibilityPolicy
from datastore.keyspace.feeds import home_feeds as keys
from datastore.keyspace.feeds import posts as post_keys
from datastore.keyspace.feeds.table import FEED
from datastore.model.composite_keys import second_part
from datastore.model.identity import Identity
from datastore.model.timestamps import iso
from datastore.primitives.lru_cache import LruCache
from datastore.queues import QueueLimits
from datastore.session.pagination import SortOrder
from resolvers.shared import validation as validate
from resolvers.shared.arguments import DEFAULT_BUFFER, Buffer, UserId, WhenSlow
from resolvers.shared.authorization import require
from resolvers.shared.context import Context, Info
from resolvers.shared.event_source import follow, is_event, queue_limits
from resolvers.shared.paging import Connection, Paging, connection_of, paged_in

# A post may arrive twice, from the fan-out and from its author. The second arrival follows soon after the first.
MAX_REMEMBERED_POSTS = 1000
# An event id contains digests of the latest posts, at most 25, each of 8 hexadecimal digits.
MAX_KNOWN_POSTS, DIGEST_LENGTH = 25, 8
# An author becomes a source moments after the first post to merge. The posts of this time before are read.
LOOKBACK = timedelta(minutes=5)
MAX_EARLIER_POSTS = 25


@paged_in(SortOrder.DESCENDING)
async def home_feed(info: Info, user_id: UserId, **paging: Unpack[Paging]) -> Connection[FeedEntry]:
    return await _of_user(info, validate.user_id("userId", user_id), paging)


@paged_in(SortOrder.DESCENDING)
async def my_home_feed(
    parent: strawberry.Parent[Identity], info: Info, **paging: Unpack[Paging]
) -> Connection[FeedEntry]:
    return await _of_user(info, parent.user_id, paging)


async def _of_user(info: Info, owner: str, paging: Paging) -> Connection[FeedEntry]:
    context = info.context
    connection = connection_of(info, keys.HOME_FEED, entry_from, {"userId": owner}, owner=owner)
    page = await context.home_feeds.of_user(owner, connection.span(**paging))
    return connection.of(await with_authors(page, context.posts))


async def posts(entries: Sequence[FeedEntry], info: Info) -> Sequence[Post | Exception | None]:
    """Return the posts of entries. For posts for followers the caller's follows are read in the same batch."""
    context, pattern = info.context, post_keys.POST_OF_EVENT if is_event(info) else post_keys.POST
    for entry in entries:
        if entry.followers_only and entry.author_id is not None:
            context.visibility.prefetch_follow(entry.author_id, pattern)
    return await context.posts.all_visible([entry.post_id for entry in entries], pattern)


async def home_feed_updated(
    info: Info,
    user_id: UserId,
    when_slow: WhenSlow = keys.HOME_FEED_UPDATED.default_policy,
    buffer: Buffer = DEFAULT_BUFFER,
) -> EventSource[FeedEntry]:
    owner = validate.user_id("userId", user_id)
    require(info.context.identity, keys.HOME_FEED_UPDATED, owner=owner)
    limits = queue_limits(when_slow, buffer)

    def open_stream(reader: SourceReader[FeedEntry]) -> EventStream[FeedEntry]:
        arrivals = _HomeFeedArrivals(reader, owner)
        known = [] if reader.resume is None else _known_digests(reader.resume.known)
        return EventStream(_without_duplicates(arrivals.entries(limits), known))

    return EventSource(
        open_stream, limits, is_shared=False, key=lambda entry: entry.author_id, parse_known=_known_digests
    )


async def _without_duplicates(
    entries: AsyncGenerator[Delivery[FeedEntry], None], known: Sequence[str]
) -> AsyncGenerator[Delivery[FeedEntry], None]:
    """Yield the entry of each post once. `known` are digests of posts that the client received before it resumed."""
    known_before = frozenset(known)
    latest = deque(known, MAX_KNOWN_POSTS)
    sent = LruCache[str, bool](MAX_REMEMBERED_POSTS)
    dropped = 0
    async with aclosing(entries):
        async for delivery in entries:
            entry = delivery.event
            if entry is None:
                yield delivery
                continue
            id, digest = entry.post_id, _digest(entry.post_id)
            if id not in sent and digest not in known_before:
                sent.put(id, True)
                latest.append(digest)
                yield delivery.with_event(entry, "".join(latest), dropped)
                dropped = 0
            else:
                dropped += delivery.dropped


def _digest(post_id: str) -> str:
    return blake2b(post_id.encode(), digest_size=DIGEST_LENGTH // 2).hexdigest()


def _known_digests(known: str) -> list[str]:
    return [known[start : start + DIGEST_LENGTH] for start in range(0, len(known), DIGEST_LENGTH)]


_Arrival = FeedEntry | Post | MergedAuthor


class _HomeFeedArrivals:
    """The arrivals in one home feed: entries as they are written, and posts of the merged authors.

    A post may arrive more than once.
    """

    def __init__(self, reader: SourceReader[FeedEntry], user_id: str) -> None:
        self._reader = reader
        self._context: Context = reader.context
        self._user_id = user_id
        self._started_at = self._context.services.now() - (timedelta() if reader.resume is None else LOOKBACK)
        self._authors = _MergedAuthors()

    async def entries(self, limits: QueueLimits) -> AsyncGenerator[Delivery[FeedEntry], None]:
        position = None
        arrivals: AsyncGenerator[Delivery[_Arrival], None] = follow(
            self._reader,
            FEED,
            self._select,
            limits,
            key=lambda arrival: arrival.author_id,
            prepare=self._read_authors,
            select_past=self._select_past,
        )
        async with aclosing(arrivals):
            async for delivery in arrivals:
                arrival, previous, position = delivery.event, position, delivery.position
                if arrival is None:
                    yield delivery.without_event()
                elif isinstance(arrival, FeedEntry):
                    entry = arrival if arrival.author_id is not None else await self._with_author(arrival)
                    yield delivery.with_event(entry, delivery.known)
                elif isinstance(arrival, MergedAuthor):
                    earlier, dropped = await self._earlier_posts(arrival), delivery.dropped
                    for entry in earlier:
                        # The position must not advance past the change before all of its entries are sent.
                        place = position if entry is earlier[-1] else previous or position
                        yield Delivery(delivery.phase, entry, place, delivery.known, dropped)
                        dropped = 0
                elif self._authors.include(arrival):
                    followers_only = arrival.visibility is Visibility.FOLLOWERS
                    entry = FeedEntry(
                        self._user_id, arrival.post_id, arrival.author_id, arrival.created_at, followers_only
                    )
                    yield delivery.with_event(entry, delivery.known)

    async def _read_authors(self) -> None:
        authors = await self._context.home_feeds.sources_at_start(self._user_id)
        self._authors.set_read({author.author_id: author.since for author in authors})

    def _select(self, change: Change) -> _Arrival | None:
        if change.keys["PK"] != keys.entry.partition_of(self._user_id):
            return self._authors.new_post(change)
        if is_source(change.keys):
            return self._authors.changed(change)
        return entry_from(change.new) if change.kind == "INSERT" and is_entry(change.keys) and change.new else None

    def _select_past(self, change: Change) -> _Arrival | None:
        is_own = change.keys["PK"] == keys.entry.partition_of(self._user_id)
        return self._authors.replayed(change) if is_own and is_source(change.keys) else self._select(change)

    async def _with_author(self, entry: FeedEntry) -> FeedEntry:
        """Return the entry with the author of its post, if the caller may see the post.

        The post is read consistently.
        """
        store = self._context.new_store()
        visibility = VisibilityPolicy(store, self._context.viewer)
        posts = Posts(store, self._context.services.now(), visibility)
        post = await posts.visible(entry.post_id, post_keys.POST_OF_EVENT)
        return entry if post is None else replace(entry, author_id=post.author_id)

    async def _earlier_posts(self, author: MergedAuthor) -> list[FeedEntry]:
        """Return the posts since the start of an author that is newly merged: they arrived before the merge."""
        since = max(self._started_at, self._context.services.now() - LOOKBACK)
        home_feeds = HomeFeeds(self._context.new_store())
        return await home_feeds.newest_of(self._user_id, author, since, MAX_EARLIER_POSTS)


class _MergedAuthors:
    """The authors whose posts are merged into a feed.

    They are read after the change feed is followed. Changes then update them.
    """

    def __init__(self) -> None:
        self._is_read = False
        # By author, the start of the merge, or None after its end. Changes take precedence over the older read.
        self._since: ChainMap[str, str | None] = ChainMap({}, {})

    def set_read(self, since: dict[str, str]) -> None:
        self._since.maps[1].update(since)
        self._is_read = True

    def changed(self, change: Change) -> MergedAuthor | None:
        """Record a change of a merged author. Return the author if it is new."""
        author_id = second_part(change.keys["SK"])
        author = MergedAuthor.decoder(change.new) if change.new else None
        self._since[author_id] = author.since if author else None
        return author if change.kind == "INSERT" else None

    def replayed(self, change: Change) -> MergedAuthor | None:
        """Return the author of a change that precedes the read, if the author is new and still merged."""
        author = MergedAuthor.decoder(change.new) if change.kind == "INSERT" and change.new else None
        return author if author is not None and self._since.get(author.author_id) is not None else None

    def include(self, post: Post) -> bool:
        since = self._since.get(post.author_id)
        return since is not None and since <= iso(post.created_at) and post.visibility is not Visibility.PRIVATE

    def new_post(self, change: Change) -> Post | None:
        """Return the new post of a change, if its author is merged, or if the authors are not read yet."""
        author_id = (change.new or {}).get("author_id", "")
        if self._is_read and self._since.get(author_id) is None:
            return None  # nearly all changes: parsing them once per subscriber would be wasteful
        post = created_post(change)
        return post if post and (self.include(post) or not self._is_read) else None
