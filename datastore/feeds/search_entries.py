"""Entries of the search index from items of the table `feed`, including items of other programs, and their reads."""

import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import DAMAGE_ERRORS
from datastore.keyspace.feeds import search as keys
from datastore.keyspace.feeds.posts import post, post_parts
from datastore.keyspace.feeds.table import FEED
from datastore.keyspace.feeds.users import META
from datastore.model.composite_keys import key_of, second_part, split
from datastore.model.timestamps import from_iso
from datastore.search import SCANNED, SearchEntry, folding
from datastore.session.store import Store

# The limits of one entry.
MAX_CHARACTERS = 4000
MAX_WORDS = 1000
MAX_WORD_BYTES = 16 * 1024
MAX_TAGS = 20
TAG_PREFIX = "TAG#"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HASH_BITS = 11
_MAX_ORDER = (1 << 62) - 1


def post_id_of(keys: Mapping[str, Any]) -> str | None:
    """Return the id of the post whose META or TAG item has these keys, None for any other item."""
    sort = keys["SK"]
    if not keys["PK"].startswith("POST#") or not (sort == META or sort.startswith(TAG_PREFIX)):
        return None
    return post_parts(key_of(FEED, keys)) or None


def user_id_of(keys: Mapping[str, Any]) -> str | None:
    """Return the id of the user whose META item has these keys, None for any other item."""
    if keys["SK"] != META or not keys["PK"].startswith("USER#"):
        return None
    return second_part(keys["PK"]) or None


def tag_of(keys: Mapping[str, Any]) -> str:
    """Return the name of the tag in the keys of a TAG item."""
    return split(keys["SK"])[1]


def post_entry(post_id: str, version: str, item: Mapping[str, Any] | None, tags: Iterable[str] = ()) -> SearchEntry:
    """Return the entry of a post from its META item and the names of its TAG items.

    The entry of a deleted post, or of a post without words and tags, is a removed entry.
    """
    if item is None or "deleted_at" in item:
        return SearchEntry(post_id, version, removed=True)
    names = [*_texts(item.get("tags")), *tags]
    distinct = tuple(dict.fromkeys(name for tag in names[: 2 * MAX_TAGS] if (name := folding.tag(tag))))[:MAX_TAGS]
    words = _words(item.get("text"))
    if not words and not distinct:
        return SearchEntry(post_id, version, removed=True)
    return SearchEntry(
        post_id,
        version,
        order_of(item.get("created_at"), post_id),
        words,
        " ".join(distinct),
        _text(item.get("author_id")),
        _text(item.get("visibility")),
    )


def user_entry(user_id: str, version: str, item: Mapping[str, Any] | None) -> SearchEntry:
    """Return the entry of a user from the META item. A user without a name is a removed entry."""
    words = "" if item is None else _words(item.get("name"))
    if item is None or not words:
        return SearchEntry(user_id, version, removed=True)
    return SearchEntry(user_id, version, order_of(item.get("created_at"), user_id), words)


def indexed_of_post(item: Mapping[str, Any] | None) -> tuple[object, ...]:
    """Return the attributes of a META item on which the entry of its post depends."""
    names = ("text", "tags", "created_at", "author_id", "visibility", "deleted_at")
    return () if item is None else tuple(item.get(name) for name in names)


def indexed_of_user(item: Mapping[str, Any] | None) -> tuple[object, ...]:
    """Return the attributes of a META item on which the entry of its user depends."""
    return () if item is None else (item.get("name"), item.get("created_at"))


def order_of(created_at: object, id: str) -> int:
    """Return the order of an entry, 0 to 2⁶² - 1: its microsecond since 1970, then a hash of its id.

    An entry without a readable time comes last.
    """
    try:
        moment = from_iso(created_at) if isinstance(created_at, str) else _EPOCH
    except (ValueError, OverflowError):
        moment = _EPOCH
    microseconds = max(0, (moment - _EPOCH) // timedelta(microseconds=1))
    return min(microseconds << _HASH_BITS | zlib.crc32(id.encode()) >> 32 - _HASH_BITS, _MAX_ORDER)


def _words(text: object) -> str:
    if not isinstance(text, str):
        return ""
    words = " ".join(folding.words(text[:MAX_CHARACTERS])[:MAX_WORDS])
    if len(words.encode(errors="ignore")) <= MAX_WORD_BYTES:
        return words
    return words.encode()[:MAX_WORD_BYTES].decode(errors="ignore").rpartition(" ")[0]


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: object) -> list[str]:
    if not isinstance(value, list | tuple | set | frozenset):
        return []
    return [text for text in value if isinstance(text, str)]


@dataclass(slots=True)
class ScannedPage:
    """The entries of one page of a scan, and the numbers of damaged and of scanned items."""

    posts: list[SearchEntry] = field(default_factory=list)
    users: list[SearchEntry] = field(default_factory=list)
    damaged: int = 0
    scanned: int = 0


async def current_post(store: Store, post_id: str, version: str) -> SearchEntry:
    """FEED-P6: return the entry of the stored post, with the tags that its TAG items name."""
    values = {"partition": post.partition_of(post_id), "first": keys.FIRST_INDEXED, "last": keys.LAST_INDEXED}
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
