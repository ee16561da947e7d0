"""Home feeds: entries from fan-out on write, merged with the posts of authors with many followers (fan-out on read).

A source is an item of a feed that names such an author.
"""

import asyncio
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from datastore.dynamodb.codec import Item, Raw, decode_item, encode, encode_item
from datastore.dynamodb.record_decoder import RecordDecoder
from datastore.dynamodb.records import QueryPage, raw_record_or_error, readable_records
from datastore.errors import Internal
from datastore.feeds.posts import Posts
from datastore.feeds.visibility import Visibility
from datastore.items import attributes as stored
from datastore.items.stored_item import StoredItem
from datastore.keyspace.feeds import home_feeds as keys
from datastore.keyspace.feeds import posts as post_keys
from datastore.model.composite_keys import second_part
from datastore.model.timestamp_forms import LAST_CHARACTER, canonical, count_settled, second_of
from datastore.model.timestamps import from_iso, iso
from datastore.session.pagination import ItemsByTime, Page, Span, page_by_time
from datastore.session.store import Store

# A feed's first page begins with its sources. The first Query allows for this number of them.
SOURCES_EXPECTED = 8
CONCURRENT_AUTHORS = 16
LARGEST_LIMIT = 1000
# Sorts after all entries of a feed, which begin with digits.
END = keys.source.prefix


class FeedEntry(Struct, frozen=True, gc=False):
    """The entry of a post in a user's feed, written by the fan-out or merged when the feed is read."""

    user_id: str
    post_id: str
    #: None if another program stored the entry without an author, and the caller may not see the post.
    author_id: str | None
    created_at: datetime
    #: The post is for followers: the viewer's follow is read together with the post.
    followers_only: bool = False


class MergedAuthor(StoredItem, key=keys.source, indexes=(keys.indexed_source,)):
    """The source of an author whose posts of `since` (ISO 8601) and later are merged into a feed when it is read."""

    user_id: str = stored.part()
    author_id: str = stored.part("author_id")
    since: str = stored.text("since")


is_source = keys.source.matches


def is_entry(item_keys: Mapping[str, str]) -> bool:
    return item_keys["PK"].startswith("FEED#") and not is_source(item_keys)


def entry_item(
    user_id: str, author_id: str, moment: str, post_id: str, *, followers_only: bool = False
) -> dict[str, Any]:
    """Return the item of an entry. `moment` is the time of the post in the form of `timestamps.iso`."""
    parts = user_id, moment, keys.shard(post_id, user_id), post_id
    item = {**keys.entry.item(*parts), **keys.indexed_entry.item(*parts), "author_id": author_id}
    return item | ({"followers_only": True} if followers_only else {})


def _entry(user_id: str, sort: str, author_id: str | None, followers_only: bool) -> FeedEntry:
    moment, post_id = keys.entry_parts(sort)
    return FeedEntry(user_id, post_id, author_id, from_iso(moment), followers_only)


entry_from = RecordDecoder(
    _entry,
    user_id=stored.text("PK", second_part),
    sort=stored.text("SK"),
    author_id=stored.text("author_id", missing=None),
    followers_only=stored.flag("followers_only", bool, missing=False),
)


async def with_authors(page: Page, posts: Posts) -> Page:
    """FEED-003: return the page with the author in each entry whose post the viewer may see.

    Entries of other programs may name no author. Their posts are read in one batch.
    """
    raws = page.raw or []
    if all("author_id" in raw for raw in raws):
        return page
    named = await asyncio.gather(*[_with_author(raw, posts) for raw in raws])
    return Page(None, page.has_next, page.has_previous, raw=named)


async def _with_author(raw: Raw, posts: Posts) -> Raw:
    if "author_id" in raw:
        return raw
    entry = raw_record_or_error(entry_from, raw)
    if isinstance(entry, Internal):
        return raw
    post = await posts.visible(entry.post_id)
    return raw if post is None else {**raw, "author_id": encode(post.author_id)}


class MergedPosts(ItemsByTime):
    """Posts of one author as entries, of `since` and later, without the entries of earlier pages.

    GSI1 orders the posts of one time by their ids, the feed by their shards. A post that is stored as an entry with one
    form of its time and merged with the other has one canonical key, and is listed once.
    """

    def __init__(self, span: Span, since: str) -> None:
        super().__init__(span, "GSI3SK")
        self._since = canonical(since)

    def bounds(self) -> tuple[str, str]:
        """Return the least and the greatest key in GSI1. The full second of the position is included."""
        since = second_of(self._since)
        if self._position is None:
            return since, END
        second = second_of(self._position)
        return (max(since, second), END) if self._upward else (since, second + LAST_CHARACTER)

    def add(self, items: Iterable[Raw]) -> None:
        super().add(items)
        self.items = {key: entry for key, entry in self.items.items() if _moment(key) >= self._since}

    def is_complete_through(self, last: str) -> bool:
        """Return whether the page is complete when all posts up to `last`, a key of GSI1, were read."""
        moment = _moment(last)
        reached = canonical(moment)
        # Unread posts may precede the posts that were read of the same time.
        others = [own for own in map(_moment, self.items) if own != reached]
        return count_settled(others, moment, backward=self._upward) >= self._span.size


def _moment(position: str) -> str:
    return position.partition("#")[0]


class HomeFeeds:
    """One method for each access pattern.

    The entry of a post follows from the post's key. Pages therefore consist of stored entries and of entries computed
    from posts, and a cursor is the key of an entry that may not be stored.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def of_user(self, user_id: str, span: Span) -> Page:
        """FEED-003: return a page of a user's home feed: its entries, and the posts of its sources."""
        if span.start is None and not span.is_upward:
            entries, sources = await self._first_page(user_id, span.size)
        else:
            entries, sources = await asyncio.gather(self._entries(user_id, span), self._sources(user_id))
        slots = asyncio.Semaphore(CONCURRENT_AUTHORS)

        async def posts(source: MergedAuthor) -> dict[str, Raw]:
            async with slots:
                return await self._merged_posts(user_id, source, span)

        if sources:
            for merged in await asyncio.gather(*map(posts, readable_records(MergedAuthor.decoder, sources))):
                entries |= merged
        return page_by_time(entries, span)

    async def sources_at_start(self, user_id: str) -> list[MergedAuthor]:
        """FEED-S1: return the sources of a user's feed for a subscription, read consistently."""
        values = keys.source.values_of(user_id)
        return readable_records(
            MergedAuthor.decoder, [item async for item in self._store.query_all(keys.HOME_FEED_UPDATED, values)]
        )

    async def newest_of(self, user_id: str, source: MergedAuthor, since: datetime, limit: int) -> list[FeedEntry]:
        """FEED-003: return the newest `limit` entries from a source, of `since` and later, oldest first."""
        span = Span(limit)
        later = replace(source, since=max(source.since, iso(since)))
        page = page_by_time(await self._merged_posts(user_id, later, span), span)
        return readable_records(entry_from, reversed(page.items))

    async def _first_page(self, user_id: str, size: int) -> tuple[dict[str, Raw], list[Item]]:
        """Return the newest `size` entries and one more, and all sources, which precede them. Usually one Query."""
        values = keys.indexed_entry.values_of(user_id)
        page_entries = ItemsByTime(Span(size), "GSI3SK")
        sources: list[Item] = []
        page = QueryPage([], 0, None)
        while True:
            limit = page_entries.missing + SOURCES_EXPECTED
            page = await self._store.query(keys.HOME_FEED, values, start=page.next_start, limit=limit)
            entries: list[Raw] = []
            for raw in page.raw:
                if raw["SK"]["S"].startswith(keys.source.prefix):
                    sources.append(decode_item(raw))
                else:
                    entries.append(raw)
            page_entries.add(entries)
            if page.next_start is None or page_entries.is_complete(page.next_start):
                return page_entries.items, sources

    async def _entries(self, user_id: str, span: Span) -> dict[str, Raw]:
        """Return the entries of a page, and one more."""
        page = ItemsByTime(span, "GSI3SK")
        values = {"partition": keys.entry.partition_of(user_id), "oldest": keys.FIRST_POSITION, "end": END}
        await page.read(self._store, keys.ENTRIES, values)
        return page.items

    async def _sources(self, user_id: str) -> list[Item]:
        values = keys.source.values_of(user_id)
        return [item async for item in self._store.query_all(keys.SOURCES, values)]

    async def _merged_posts(self, user_id: str, source: MergedAuthor, span: Span) -> dict[str, Raw]:
        """Return the entries of an author's posts: those of a page, and at least one more."""
        page_entries = MergedPosts(span, source.since)
        since, until = page_entries.bounds()
        if since > until:
            return {}
        values = {"partition": post_keys.post_by_author.partition_of(source.author_id), "since": since, "until": until}
        values["private"] = Visibility.PRIVATE.value
        start, limit = None, span.size + 1
        while True:
            page = await self._store.query(
                keys.MERGED_POSTS,
                values,
                start=start,
                limit=limit,
                backward=span.is_upward,
                attributes=("GSI1SK", "visibility"),
            )
            page_entries.add([_as_entry(user_id, source.author_id, post) for post in page.items])
            if page.next_start is None or page_entries.is_complete_through(page.next_start["GSI1SK"]):
                return page_entries.items
            start, limit = page.next_start, min(2 * limit, LARGEST_LIMIT)


def _as_entry(user_id: str, author_id: str, post: Item) -> Raw:
    """Return the entry that the fan-out would have written."""
    moment, post_id = post_keys.position_parts(post["GSI1SK"])
    followers_only = post["visibility"] == Visibility.FOLLOWERS
    return encode_item(entry_item(user_id, author_id, moment, post_id, followers_only=followers_only))
