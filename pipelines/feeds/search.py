"""The handler that keeps the search index current with the table `feed`.

Its consumer is of a group of its own, with its own leases and checkpoints, so that an unavailable search host delays no
other handler.
"""

import asyncio
from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter

from datastore.change_streams.change import Change, position_of
from datastore.feeds.search_entries import (
    current_post,
    indexed_of_post,
    indexed_of_user,
    post_entry,
    post_id_of,
    user_entry,
    user_id_of,
)
from datastore.keyspace.feeds.users import META
from datastore.search import Kind, SearchEntry, SearchIndex
from datastore.session.store import Store
from pipelines.consumer.metrics import StreamMetrics

GROUP = "search"
CONCURRENCY = 8


class SearchMetrics:
    """The metrics of the index: entries written, failures, and the consumer's lag behind the stream."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.stream = StreamMetrics(registry, "search_stream")
        self._indexed = Counter("search_indexed", "Entries written to the search index.", ["kind"], registry=registry)
        self._failures = Counter("search_failures", "Writes to the search index that failed.", registry=registry)

    def indexed(self, kind: Kind, entries: int) -> None:
        self._indexed.labels(kind.value).inc(entries)

    def failed(self) -> None:
        self._failures.inc()


class SearchSync:
    """The handler that writes posts and users to the index.

    An entry carries the sequence number of its change, and the index keeps the newest entry. Changes may therefore
    arrive late and more than once. If a post's META item contains its tags, the handler builds the entry from the
    stream record. Otherwise the tags are TAG items with changes of their own, and the handler reads the stored post,
    which includes this change and all earlier ones.
    """

    name = GROUP

    def __init__(self, index: SearchIndex, open_store: Callable[[], Store], metrics: SearchMetrics) -> None:
        self._index = index
        self._open_store = open_store
        self._metrics = metrics

    async def handle(self, changes: Sequence[Change]) -> None:
        users: dict[str, SearchEntry] = {}
        posts: dict[str, Change] = {}
        for change in changes:
            if (user := _user(change)) is not None:
                users[user.id] = user
            elif (post_id := _post_id(change)) is not None:
                posts[post_id] = _newer(posts.get(post_id), change)
        await self._write(Kind.USERS, list(users.values()))
        await self._write(Kind.POSTS, await self._entries(posts))

    async def _entries(self, posts: dict[str, Change]) -> list[SearchEntry]:
        slots = asyncio.Semaphore(CONCURRENCY)

        async def entry(post_id: str, change: Change) -> SearchEntry:
            if _is_whole(change):
                return post_entry(post_id, position_of(change.sequence), change.new)
            async with slots:
                return await current_post(self._open_store(), post_id, position_of(change.sequence))

        return await asyncio.gather(*[entry(post_id, change) for post_id, change in posts.items()])

    async def _write(self, kind: Kind, entries: Sequence[SearchEntry]) -> None:
        if not entries:
            return
        try:
            await self._index.write(kind, entries)
        except Exception:
            self._metrics.failed()
            raise
        self._metrics.indexed(kind, len(entries))


def _user(change: Change) -> SearchEntry | None:
    """Return the entry of the user that a change concerns; None if nothing indexed has changed."""
    user_id = user_id_of(change.keys)
    if user_id is None or indexed_of_user(change.old) == indexed_of_user(change.new):
        return None
    return user_entry(user_id, position_of(change.sequence), change.new)


def _post_id(change: Change) -> str | None:
    """Return the id of the post that a change concerns; None if nothing indexed has changed."""
    post_id = post_id_of(change.keys)
    if post_id is None:
        return None
    if change.keys["SK"] != META:
        # This gateway wrote the TAG item. The META item contains all tags, and its change is handled instead.
        has_copy = "tags" in (change.new or change.old or {})
        return None if change.kind == "MODIFY" or has_copy else post_id
    return None if indexed_of_post(change.old) == indexed_of_post(change.new) else post_id


def _newer(previous: Change | None, change: Change) -> Change:
    """Return the later of two changes of a post's items: the stream orders changes by item only."""
    if previous is None or position_of(previous.sequence) < position_of(change.sequence):
        return change
    return previous


def _is_whole(change: Change) -> bool:
    """Return whether the record suffices for the entry: the post was deleted, or its META item contains its tags."""
    if change.keys["SK"] != META:
        return False
    return change.new is None or "deleted_at" in change.new or "tags" in change.new
