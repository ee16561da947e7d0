"""Cascade delete: the likes, comments and tags of a deleted post."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from datastore.dynamodb.codec import Item
from datastore.feeds.posts import is_live, is_post
from datastore.keyspace.feeds import posts as keys
from datastore.keyspace.feeds.table import FEED
from datastore.model.composite_keys import Key, key_of
from datastore.session.store import Store


@dataclass(frozen=True, slots=True)
class ChildrenPage:
    """A page of the keys of a post's items, and the start of the next page, if there is one."""

    keys: list[Key]
    next_start: Item | None


@dataclass(frozen=True, slots=True)
class UnavailablePosts:
    """Ids of posts that no reader can see."""

    #: Posts with a tombstone.
    deleted: set[str]
    #: Posts without an item.
    missing: set[str]

    @property
    def all(self) -> set[str]:
        return self.deleted | self.missing


class PostChildren:
    """The likes, comments and tags of posts. One method for each access pattern."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def unavailable(self, post_ids: Iterable[str]) -> UnavailablePosts:
        """FEED-P4: return which of the posts are deleted, and which are not stored."""
        ids = list(dict.fromkeys(post_ids))
        items = await asyncio.gather(*[self._store.get(keys.POST_EXISTS, keys.post(post_id)) for post_id in ids])
        posts = dict(zip(ids, items, strict=True))
        deleted = {post_id for post_id, post in posts.items() if post is not None and not is_live(post)}
        return UnavailablePosts(deleted, {post_id for post_id, post in posts.items() if post is None})

    async def page(self, post_id: str, start: Item | None, limit: int) -> ChildrenPage:
        """FEED-P4: return a page of a deleted post's items, without its tombstone."""
        values = {"partition": keys.partition(post_id)}
        page = await self._store.query(
            keys.ITEMS_OF_DELETED_POST, values, start=start, limit=limit, attributes=("PK", "SK")
        )
        return ChildrenPage([key_of(FEED, item) for item in page.items if not is_post(item)], page.next_start)

    async def delete(self, children: Sequence[Key]) -> None:
        """FEED-P4: delete items of a post. A repeat changes nothing."""
        await self._store.write_all(keys.DELETE_ITEMS_OF_POST, deletes=children)
