"""What is left of a post that was deleted: likes, comments and tags, which go after it."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from datastore.attributes import Item
from datastore.feeds.posts import is_live, is_post
from datastore.keyspace.feeds import posts as keys
from datastore.keyspace.feeds.table import FEED
from datastore.keyspace.parts import Key, key_of
from datastore.store import Store


@dataclass(frozen=True, slots=True)
class RemainsPage:
    """Some items of a post, and where the next page starts, if there is one."""

    keys: list[Key]
    next_start: Item | None


class Remains:
    """One method for each access pattern."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def gone(self, post_ids: Iterable[str]) -> set[str]:
        """FEED-P4: those of the posts that are not there, or not any more."""
        ids = list(dict.fromkeys(post_ids))
        posts = await asyncio.gather(*[self._store.get(keys.IS_LIVE, keys.post(post_id)) for post_id in ids])
        return {post_id for post_id, post in zip(ids, posts, strict=True) if not is_live(post)}

    async def page(self, post_id: str, start: Item | None, limit: int) -> RemainsPage:
        """FEED-P4: some of what is left of a post; its tombstone is not."""
        values = {"partition": keys.partition(post_id)}
        page = await self._store.query(keys.REMAINS, values, start=start, limit=limit, attributes=("PK", "SK"))
        return RemainsPage([key_of(FEED, item) for item in page.items if not is_post(item)], page.next_start)

    async def delete(self, remains: Sequence[Key]) -> None:
        """FEED-P4: delete them. A repeat changes nothing."""
        await self._store.write_all(keys.CLEAN_UP, deletes=remains)
