"""Home feeds: FEED-003 and the subscription FEED-S1 to what arrives in one."""

from collections import ChainMap, deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import datetime, timedelta
from hashlib import blake2b

import strawberry
from msgspec.structs import replace

from datastore.change_streams.shards.stream_reader import Change
from datastore.change_streams.subscriptions.event_source import UnsharedSource
from datastore.change_streams.subscriptions.resume_position import SubscriptionProgress
from datastore.feeds.home_feeds import (
    FeedEntry,
    HomeFeeds,
    MergedAuthor,
    entry_from,
    is_entry,
    is_source,
    source_from,
    with_authors,
)
from datastore.feeds.posts import Post, Posts, created_post
from datastore.feeds.users import User
from datastore.feeds.visibility import Visibility, VisibilityPolicy
from datastore.keyspace.feeds import home_feeds as keys
from datastore.keyspace.feeds import posts as post_keys
from datastore.keyspace.feeds.table import FEED
from datastore.model.composite_keys import Key
from datastore.model.timestamps import iso
from datastore.queues import QueueLimits
from resolvers.shared import validation as validate
from resolvers.shared.arguments import After, Before, Buffer, First, Last, UserId, WhenSlow
from resolvers.shared.authorization import require
from resolvers.shared.context import Context, Info
from resolvers.shared.event_source import follow, is_event, queue_limits
from resolvers.shared.paging import Connection, Listing, Paging, connection

# A post comes again soon (written by the fan-out, and by its author) or never.
POSTS_REMEMBERED = 1000
# So many of them are known from an event's id, by so many hexadecimal digits each.
MOST_KNOWN, DIGITS = 25, 8
# An author becomes a source moments after their first posts that are merged: those are looked for then.
LOOKING_BACK = timedelta(minutes=5)
MOST_FOUND = 25


async def home_feed(
    info: Info, user_id: UserId, first: First = None, after: After = None, last: Last = None, before: Before = None
) -> Connection[FeedEntry]:
    context, owner = info.context, validate.user_id("userId", user_id)
    require(context.identity, keys.HOME_FEED, owner=owner)
    listing = Listing(context.services.cursors, keys.HOME_FEED, "Query.homeFeed", {"userId": owner})
    page = await context.home_feeds.of_user(owner, listing.span(Paging(first, after, last, before)))
    return connection(listing, await with_authors(page, context.posts), entry_from)


async def author(parent: strawberry.Parent[FeedEntry], info: Info) -> User | None:
    return None if parent.author_id is None else await info.context.users.by_id(parent.author_id)


async def post(parent: strawberry.Parent[FeedEntry], info: Info) -> Post | None:
    """Of a post for followers, whether the viewer is one is read in the same batch: it costs no call of its own."""
    pattern = post_keys.POST_OF_EVENT if is_event(info) else post_keys.POST
    if parent.followers_only and parent.author_id is not None:
        info.context.visibility.prefetch_follow(parent.author_id, pattern)
    return await info.context.posts.visible(parent.post_id, pattern)


async def home_feed_updated(
    info: Info, user_id: UserId, when_slow: WhenSlow = keys.HOME_FEED_UPDATED.policy, buffer: Buffer = None
) -> UnsharedSource[FeedEntry]:
    owner = validate.user_id("userId", user_id)
    require(info.context.identity, keys.HOME_FEED_UPDATED, owner=owner)
    kept = queue_limits(when_slow, buffer)
    progress = info.context.progress or SubscriptionProgress()
    entries = _arriving(info.context, owner, kept, progress)
    return UnsharedSource(kept, _once(entries, progress, _known(progress)), lambda entry: entry.author_id)


async def _once(
    entries: AsyncGenerator[FeedEntry, None], progress: SubscriptionProgress, known: Sequence[str]
) -> AsyncGenerator[FeedEntry, None]:
    """The ids of events tell of the last posts, too: one that was told may come again after the cut."""
    before_the_cut = frozenset(known)
    latest = deque(known, MOST_KNOWN)
    told: dict[str, None] = {}
    async with aclosing(entries):
        async for entry in entries:
            id, digest = entry.post_id, _digest(entry.post_id)
            if id not in told and digest not in before_the_cut:
                told[id] = None
                if len(told) > POSTS_REMEMBERED:
                    del told[next(iter(told))]
                latest.append(digest)
                progress.known = "".join(latest)
                yield entry


def _digest(post_id: str) -> str:
    return blake2b(post_id.encode(), digest_size=DIGITS // 2).hexdigest()


def _known(progress: SubscriptionProgress) -> list[str]:
    known = progress.take_known()
    return [known[start : start + DIGITS] for start in range(0, len(known), DIGITS)]


async def _arriving(
    context: Context, user_id: str, kept: QueueLimits, progress: SubscriptionProgress
) -> AsyncGenerator[FeedEntry, None]:
    """Entries as they are written, and posts of the feed's sources; a post may come more than once."""
    began = context.services.now() - (timedelta() if progress.resume is None else LOOKING_BACK)
    sources = _Sources()
    ahead, taken = progress.as_ahead(), progress.mark
    progress.has_given_all = True  # each before the next is read

    async def read_sources() -> None:
        found = await context.home_feeds.sources_at_start(user_id)
        sources.read({source.author_id: source.since for source in found})

    def arrival(change: Change) -> FeedEntry | Post | MergedAuthor | None:
        if change.keys["PK"] != keys.feed(user_id):
            return sources.posted(change)
        if is_source(change.keys):
            return sources.still(change) if ahead.is_past else sources.changed(change)
        return entry_from(change.new) if change.kind == "INSERT" and is_entry(change.keys) and change.new else None

    arrivals: AsyncGenerator[FeedEntry | Post | MergedAuthor, None] = follow(
        context,
        FEED,
        arrival,
        kept,
        key=lambda event: event.author_id,
        prepare=read_sources,
        progress=ahead,
    )
    async with aclosing(arrivals):
        async for event in arrivals:
            before, taken = taken, ahead.mark
            progress.at(taken)
            if isinstance(event, FeedEntry):
                yield event if event.author_id is not None else await _with_author(context, event)
            elif isinstance(event, MergedAuthor):
                found = await _posted_before(context, user_id, event, began)
                for entry in found:
                    # Not past the change before all that it brings has been told.
                    progress.at(taken if entry is found[-1] else before or taken)
                    yield entry
            elif sources.have(event):
                followers_only = event.visibility is Visibility.FOLLOWERS
                yield FeedEntry(user_id, event.post_id, event.author_id, event.created_at, followers_only)
            else:
                progress.taken_left_out()  # those were nothing to this feed, either


async def _with_author(context: Context, entry: FeedEntry) -> FeedEntry:
    """Return an entry without an author with its post's author, if the caller may see the post.

    The post is read consistently.
    """
    store = context.new_store()
    posts = Posts(store, context.services.now(), VisibilityPolicy(store, context.viewer))
    post = await posts.visible(entry.post_id, post_keys.POST_OF_EVENT)
    return entry if post is None else replace(entry, author_id=post.author_id)


async def _posted_before(context: Context, user_id: str, source: MergedAuthor, began: datetime) -> list[FeedEntry]:
    """The posts of a source that is new, since the subscription began: when they came, it was none."""
    since = max(began, context.services.now() - LOOKING_BACK)
    return await HomeFeeds(context.new_store()).newest_of(user_id, source, since, MOST_FOUND)


class _Sources:
    """Whose posts are merged into a feed: read when its changes are followed already, and kept by them."""

    def __init__(self) -> None:
        self._is_read = False
        # Since when; None: no longer. What changed counts more than what was read, which is older or the same.
        self._since: ChainMap[str, str | None] = ChainMap({}, {})

    def read(self, since: dict[str, str]) -> None:
        self._since.maps[1].update(since)
        self._is_read = True

    def changed(self, change: Change) -> MergedAuthor | None:
        """Take note of a source's change; the source, if it is new."""
        author_id = keys.source_parts(Key(change.keys["PK"], change.keys["SK"]))[1]
        source = source_from(change.new) if change.new else None
        self._since[author_id] = source.since if source else None
        return source if change.kind == "INSERT" else None

    def still(self, change: Change) -> MergedAuthor | None:
        """The source that a change brought which was made before they were read, if it is one still."""
        source = source_from(change.new) if change.kind == "INSERT" and change.new else None
        return source if source is not None and self._since.get(source.author_id) is not None else None

    def have(self, post: Post) -> bool:
        since = self._since.get(post.author_id)
        return since is not None and since <= iso(post.created_at) and post.visibility is not Visibility.PRIVATE

    def posted(self, change: Change) -> Post | None:
        """The post that a change brought, if it is of a source, or may be, as long as those are not known."""
        author_id = (change.new or {}).get("author_id", "")
        if self._is_read and self._since.get(author_id) is None:
            return None  # as nearly all changes: those are not worth parsing for each subscriber
        post = created_post(change)
        return post if post and (self.have(post) or not self._is_read) else None
