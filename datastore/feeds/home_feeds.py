"""Home feeds: what an entry is, how the table keeps it, and how the posts of those with many followers join in."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from msgspec import Struct

from datastore.dynamodb.codec import Item, Raw, decode_item, encode, encode_item
from datastore.dynamodb.record_decoder import RecordDecoder, flag, text
from datastore.dynamodb.records import raw_parsed, readable
from datastore.errors import Internal
from datastore.feeds.feed_pages import END, SPARE, Entries, MergedPosts, cut
from datastore.feeds.posts import Posts
from datastore.feeds.visibility import Visibility
from datastore.keyspace.feeds import home_feeds as keys
from datastore.keyspace.feeds import posts as post_keys
from datastore.model.composite_keys import Key, second_part
from datastore.model.timestamps import from_iso, iso
from datastore.session.pagination import Page, Span
from datastore.session.store import QueryPage, Store

# A feed's first page begins with its sources: so many are read with it, and more only where there are more.
SOURCES_EXPECTED = 8
CONCURRENT_AUTHORS = 16
LARGEST_LIMIT = 1000


class FeedEntry(Struct, frozen=True, gc=False):
    """The place of a post in a user's feed: written by the fan-out, or merged when the feed is read.

    `followers_only`: whether one follows the author is asked for together with the post, and else not at all.
    `author_id` is None where another program stored an entry without it, and the caller may not see the post.
    """

    user_id: str
    post_id: str
    author_id: str | None
    created_at: datetime
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
    """An entry as it is stored, or would be. `moment` is when the post was written, as `timestamps.iso` has it."""
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
    """FEED-003: return the page, each entry with its post's author, as far as the viewer may see the post.

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
    entry = raw_parsed(entry_from, raw)
    if isinstance(entry, Internal):
        return raw
    post = await posts.visible(entry.post_id)
    return raw if post is None else {**raw, "author_id": encode(post.author_id)}


def source_from(item: Mapping[str, Any]) -> MergedAuthor:
    return MergedAuthor(keys.source_parts(Key(item["PK"], item["SK"]))[1], item["since"])


def source_item(user_id: str, author_id: str, since: str) -> dict[str, Any]:
    """An author whose posts of `since` and later are merged into the user's feed when it is read."""
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

    What an author's posts would be as entries follows from their keys. So pages are cut from entries and posts as if
    all were entries, and a cursor is an entry's key, whether it was written or not.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def of_user(self, user_id: str, span: Span) -> Page:
        """FEED-003: a user's home feed, newest first: what was fanned out to it, and the posts of its sources."""
        if span.start is None and not span.backward:
            entries, sources = await self._beginning(user_id, span.size)
        else:
            entries, sources = await asyncio.gather(self._entries(user_id, span), self._sources(user_id))
        slots = asyncio.Semaphore(CONCURRENT_AUTHORS)

        async def posts(source: MergedAuthor) -> list[Raw]:
            async with slots:
                return await self._merged_posts(user_id, source, span)

        if sources:
            for merged in await asyncio.gather(*map(posts, readable(source_from, sources))):
                entries += merged
        return cut(entries, span)

    async def sources_at_start(self, user_id: str) -> list[MergedAuthor]:
        """FEED-S1: whose posts are merged into a user's feed, for a subscription; consistent."""
        values = {"partition": keys.feed(user_id), "prefix": keys.SOURCE_PREFIX}
        return readable(source_from, [item async for item in self._store.query_all(keys.HOME_FEED_UPDATED, values)])

    async def newest_of(self, user_id: str, source: MergedAuthor, since: datetime, most: int) -> list[FeedEntry]:
        """FEED-003: what a source adds to a user's feed of a moment and later: the newest posts, oldest first."""
        span = Span(most)
        later = replace(source, since=max(source.since, iso(since)))
        page = cut(await self._merged_posts(user_id, later, span), span)
        return readable(entry_from, reversed(page.items))

    async def _beginning(self, user_id: str, size: int) -> tuple[list[Raw], list[Item]]:
        """The newest entries, `size` and one more, and all sources, which lie before them: in one Query as a rule."""
        values = {"partition": keys.feed(user_id)}
        found = Entries(Span(size))
        sources: list[Item] = []
        page = QueryPage([], 0, None)
        while True:
            limit = found.missing + SOURCES_EXPECTED
            page = await self._store.query(keys.HOME_FEED, values, start=page.next_start, limit=limit)
            entries: list[Raw] = []
            for raw in page.raw:
                if raw["SK"]["S"].startswith(keys.SOURCE_PREFIX):
                    sources.append(decode_item(raw))
                else:
                    entries.append(raw)
            found.add(entries)
            if page.next_start is None or found.suffice():
                return found.entries, sources

    async def _entries(self, user_id: str, span: Span) -> list[Raw]:
        """The entries of a page, and one more."""
        found = Entries(span)
        oldest, end, start = found.bounds(keys.FIRST_POSITION, END)
        values = {"partition": keys.feed(user_id), "oldest": oldest, "end": end}
        limit = span.size + 1 + SPARE
        while True:
            page = await self._store.query(keys.ENTRIES, values, start=start, limit=limit, backward=span.backward)
            found.add(page.raw)
            if (start := page.next_start) is None or found.suffice():
                return found.entries
            limit = min(2 * limit, LARGEST_LIMIT)

    async def _sources(self, user_id: str) -> list[Item]:
        values = {"partition": keys.feed(user_id), "prefix": keys.SOURCE_PREFIX}
        return [item async for item in self._store.query_all(keys.SOURCES, values)]

    async def _merged_posts(self, user_id: str, source: MergedAuthor, span: Span) -> list[Raw]:
        """What an author's posts are as entries: those of a page, and at least one more."""
        found = MergedPosts(span, source.since)
        since, until = found.bounds()
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
            found.add([_as_entry(user_id, source.author_id, post) for post in page.items])
            if page.next_start is None or found.suffice_before(page.next_start["GSI1SK"]):
                return found.entries
            start, limit = page.next_start, min(2 * limit, LARGEST_LIMIT)


def _as_entry(user_id: str, author_id: str, post: Item) -> Raw:
    """The entry that the fan-out would have written, with the post's own moment."""
    moment, post_id = post_keys.position_parts(post["GSI1SK"])
    followers_only = post["visibility"] == Visibility.FOLLOWERS
    return encode_item(entry_item(user_id, author_id, moment, post_id, followers_only=followers_only))
