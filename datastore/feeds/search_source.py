"""The source of the search index: posts with their tags, and users, from the table (FEED-P6)."""

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import DAMAGE_ERRORS
from datastore.feeds.search_entries import TAG_PREFIX, post_entry, post_id_of, tag_of, user_entry, user_id_of
from datastore.keyspace.feeds import search as keys
from datastore.keyspace.feeds.posts import partition
from datastore.keyspace.feeds.users import META
from datastore.search import SCANNED, SearchEntry
from datastore.session.store import Store


@dataclass(slots=True)
class ScannedPage:
    """The entries of one page of a scan, and the numbers of damaged and of scanned items."""

    posts: list[SearchEntry] = field(default_factory=list)
    users: list[SearchEntry] = field(default_factory=list)
    damaged: int = 0
    scanned: int = 0


async def current_post(store: Store, post_id: str, version: str) -> SearchEntry:
    """FEED-P6: return the entry of the stored post, with the tags that its TAG items name."""
    values = {"partition": partition(post_id), "first": keys.FIRST_INDEXED, "last": keys.LAST_INDEXED}
    items = [item async for item in store.query_all(keys.INDEXED_POST, values)]
    return _entry_of(post_id, version, items)


async def scan_entries(open_store: Callable[[], Store]) -> AsyncIterator[ScannedPage]:
    """FEED-P6: yield the entries of all posts and users in pages. `open_store` opens a store for each page.

    The items of one post are adjacent. The last post of a page is yielded with the next page, which may have the rest.
    """
    values = {"meta": META, "tag": TAG_PREFIX}
    start: Item | None = None
    incomplete: list[Item] = []
    while True:
        page = await open_store().scan_page(keys.SCAN_INDEXED, values, start=start)
        start = page.next_start
        items = incomplete + page.items
        end = len(items)
        if start is not None:
            while end and items[end - 1]["PK"] == items[-1]["PK"]:
                end -= 1
        incomplete = items[end:]
        yield _page(items[:end], page.scanned)
        if start is None:
            return


def _page(items: list[Item], scanned: int) -> ScannedPage:
    by_partition: dict[str, list[Item]] = {}
    for item in items:
        by_partition.setdefault(item["PK"], []).append(item)
    page = ScannedPage(scanned=scanned)
    for group in by_partition.values():
        try:
            if (post_id := post_id_of(group[0])) is not None:
                page.posts.append(_entry_of(post_id, SCANNED, group))
            elif (user_id := user_id_of(group[0])) is not None:
                page.users.append(user_entry(user_id, SCANNED, group[0]))
        except DAMAGE_ERRORS:
            page.damaged += 1
    return page


def _entry_of(post_id: str, version: str, items: list[Item]) -> SearchEntry:
    meta: Mapping[str, Any] | None = next((item for item in items if item["SK"] == META), None)
    return post_entry(post_id, version, meta, [tag_of(item) for item in items if item["SK"] != META])
