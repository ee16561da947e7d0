"""Home feeds: entries from fan-out on write, merged with the posts of authors with many followers (fan-out on read).

A source is an item of a feed that names such an author.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from msgspec import Struct

from datastore.dynamodb.codec import Item, Raw, decode_item, encode, encode_item
from datastore.dynamodb.record_decoder import RecordDecoder, flag, text
from datastore.dynamodb.records import raw_record_or_error, readable_records
from datastore.errors import Internal
from datastore.feeds.feed_pages import END, EXTRA_ENTRIES, MergedPosts, StoredEntries, cut_page
from datastore.feeds.posts import Posts
from datastore.feeds.visibility import Visibility
from datastore.keyspace.feeds import home_feeds as keys
from datastore.keyspace.feeds import posts as post_keys
from datastore.model.composite_keys import Key, second_part
from datastore.model.timestamps import from_iso, iso
from datastore.session.pagination import Page, Span
from datastore.session.store import QueryPage, Store

# A feed's first page begins with its sources. The first Query allows for this number of them.
SOURCES_EXPECTED = 8
CONCURRENT_AUTHORS = 16
LARGEST_LIMIT = 1000


class FeedEntry(Struct, frozen=True, gc=False):
    """The entry of a post in a user's feed, written by the fan-out or merged when the feed is read."""

    user_id: str
    post_id: str
    #: None if another program stored the entry without an author, and the caller may not see the post.
    author_id: str | None
    created_at: datetime
    #: The post is for followers: the viewer's follow is read together with the post.
    followers_only: bool = False


@dataclass(frozen=True, slots=True)
class MergedAuthor:
    """An author whose posts of `since` (ISO 8601) and later are merged into a feed when it is read."""

    author_id: str
    since: str


def is_entry(item_keys: Mapping[str, str]) -> bool:
    return item_keys["PK"].startswith("FEED#") and not is_source(item_keys)


def is_source(item_keys: Mapping[str, str]) -> bool:
    return item_keys["PK"].startswith("FEED#") and item_keys["SK"].startswith(keys.SOURCE_PREFIX)


def entry_item(
    user_id: str, author_id: str, moment: str, post_id: str, *, followers_only: bool = False
) -> dict[str, Any]:
    """Return the item of an entry. `moment` is the time of the post in the form of `timestamps.iso`."""
    key = keys.entry(user_id, moment, post_id)
    item = {
        "PK": key.partition,
        "SK": key.sort,
        "GSI3PK": key.partition,
        "GSI3SK": key.sort,
        "author_id": author_id,
    }
    return item | ({"followers_only": True} if followers_only else {})


def _entry(user_id: str, sort: str, author_id: str | None, followers_only: bool) -> FeedEntry:
    moment, post_id = keys.entry_parts(sort)
    return FeedEntry(user_id, post_id, author_id, from_iso(moment), followers_only)


entry_from = RecordDecoder(
    _entry,
    user_id=text("PK", second_part),
    sort=text("SK"),
    author_id=text("author_id", default=None),
    followers_only=flag("followers_only", bool, default=False),
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


def source_from(item: Mapping[str, Any]) -> MergedAuthor:
    return MergedAuthor(keys.source_parts(Key(item["PK"], item["SK"]))[1], item["since"])


def source_item(user_id: str, author_id: str, since: str) -> dict[str, Any]:
    """Return the item of a source: posts of `since` and later are merged into the user's feed when it is read."""
    key = keys.source(user_id, author_id)
    return {
        "PK": key.partition,
        "SK": key.sort,
        "GSI3PK": key.partition,
        "GSI3SK": key.sort,
        "author_id": author_id,
        "since": since,
    }


class HomeFeeds:
    """One method for each access pattern.

    The entry of a post follows from the post's key. Pages therefore consist of stored entries and of entries computed
    from posts, and a cursor is the key of an entry that may not be stored.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def of_user(self, user_id: str, span: Span) -> Page:
        """FEED-003: return a page of a user's home feed, newest first: its entries, and the posts of its sources."""
        if span.start is None and not span.backward:
            entries, sources = await self._first_page(user_id, span.size)
        else:
            entries, sources = await asyncio.gather(self._entries(user_id, span), self._sources(user_id))
        slots = asyncio.Semaphore(CONCURRENT_AUTHORS)

        async def posts(source: MergedAuthor) -> list[Raw]:
            async with slots:
                return await self._merged_posts(user_id, source, span)

        if sources:
            for merged in await asyncio.gather(*map(posts, readable_records(source_from, sources))):
                entries += merged
        return cut_page(entries, span)

    async def sources_at_start(self, user_id: str) -> list[MergedAuthor]:
        """FEED-S1: return the sources of a user's feed for a subscription, read consistently."""
        values = {"partition": keys.feed(user_id), "prefix": keys.SOURCE_PREFIX}
        return readable_records(
            source_from, [item async for item in self._store.query_all(keys.HOME_FEED_UPDATED, values)]
        )

    async def newest_of(self, user_id: str, source: MergedAuthor, since: datetime, limit: int) -> list[FeedEntry]:
        """FEED-003: return the newest `limit` entries from a source, of `since` and later, oldest first."""
        span = Span(limit)
        later = replace(source, since=max(source.since, iso(since)))
        page = cut_page(await self._merged_posts(user_id, later, span), span)
        return readable_records(entry_from, reversed(page.items))

    async def _first_page(self, user_id: str, size: int) -> tuple[list[Raw], list[Item]]:
        """Return the newest `size` entries and one more, and all sources, which precede them. Usually one Query."""
        values = {"partition": keys.feed(user_id)}
        page_entries = StoredEntries(Span(size))
        sources: list[Item] = []
        page = QueryPage([], 0, None)
        while True:
            limit = page_entries.missing + SOURCES_EXPECTED
            page = await self._store.query(keys.HOME_FEED, values, start=page.next_start, limit=limit)
            entries: list[Raw] = []
            for raw in page.raw:
                if raw["SK"]["S"].startswith(keys.SOURCE_PREFIX):
                    sources.append(decode_item(raw))
                else:
                    entries.append(raw)
            page_entries.add(entries)
            if page.next_start is None or page_entries.is_complete():
                return page_entries.entries, sources

    async def _entries(self, user_id: str, span: Span) -> list[Raw]:
        """Return the entries of a page, and one more."""
        page_entries = StoredEntries(span)
        oldest, end, start = page_entries.bounds(keys.FIRST_POSITION, END)
        values = {"partition": keys.feed(user_id), "oldest": oldest, "end": end}
        limit = span.size + 1 + EXTRA_ENTRIES
        while True:
            page = await self._store.query(keys.ENTRIES, values, start=start, limit=limit, backward=span.backward)
            page_entries.add(page.raw)
            if (start := page.next_start) is None or page_entries.is_complete():
                return page_entries.entries
            limit = min(2 * limit, LARGEST_LIMIT)

    async def _sources(self, user_id: str) -> list[Item]:
        values = {"partition": keys.feed(user_id), "prefix": keys.SOURCE_PREFIX}
        return [item async for item in self._store.query_all(keys.SOURCES, values)]

    async def _merged_posts(self, user_id: str, source: MergedAuthor, span: Span) -> list[Raw]:
        """Return the entries of an author's posts: those of a page, and at least one more."""
        page_entries = MergedPosts(span, source.since)
        since, until = page_entries.bounds()
        if since > until:
            return []
        values = {"partition": post_keys.by_author(source.author_id), "since": since, "until": until}
        values["private"] = Visibility.PRIVATE.value
        start, limit = None, span.size + 1
        while True:
            page = await self._store.query(
                keys.MERGED_POSTS,
                values,
                start=start,
                limit=limit,
                backward=span.backward,
                attributes=("GSI1SK", "visibility"),
            )
            page_entries.add([_as_entry(user_id, source.author_id, post) for post in page.items])
            if page.next_start is None or page_entries.is_complete_through(page.next_start["GSI1SK"]):
                return page_entries.entries
            start, limit = page.next_start, min(2 * limit, LARGEST_LIMIT)


def _as_entry(user_id: str, author_id: str, post: Item) -> Raw:
    """Return the entry that the fan-out would have written."""
    moment, post_id = post_keys.position_parts(post["GSI1SK"])
    followers_only = post["visibility"] == Visibility.FOLLOWERS
    return encode_item(entry_item(user_id, author_id, moment, post_id, followers_only=followers_only))
