"""Likes of posts: records, reads and writes."""

from collections.abc import Mapping
from datetime import datetime

from msgspec import Struct

from datastore.dynamodb.codec import Item
from datastore.dynamodb.record_decoder import RecordDecoder, text
from datastore.dynamodb.records import record
from datastore.feeds.posts import Post
from datastore.feeds.visibility import VISIBILITIES, Visibility
from datastore.keyspace.feeds import likes as keys
from datastore.keyspace.feeds import posts as post_keys
from datastore.model.composite_keys import second_part
from datastore.model.timestamps import from_iso, iso
from datastore.session.pagination import Page, Span, read_page
from datastore.session.store import Store


class Like(Struct, frozen=True, gc=False):
    """A like of a post by a user, with the post's author and visibility.

    Both are None if another program wrote the item without them.
    """

    post_id: str
    user_id: str
    created_at: datetime
    post_author: str | None
    post_visibility: Visibility | None


def is_like(item_keys: Mapping[str, str]) -> bool:
    return item_keys["SK"].startswith(keys.LIKE_PREFIX) and item_keys["PK"].startswith("POST#")


like_from = RecordDecoder(
    Like,
    post_id=text("PK", second_part),
    user_id=text("SK", second_part),
    created_at=text("created_at", from_iso),
    post_author=text("post_author", default=None),
    post_visibility=text("post_visibility", VISIBILITIES, default=None),
)


class Likes:
    """One method for each access pattern."""

    def __init__(self, store: Store, now: datetime) -> None:
        self._store = store
        self._now = now

    async def of_post(self, post_id: str, span: Span, *, has_child_reads: bool = False) -> Page:
        """FEED-005: return the likes of a post by user id, descending. The caller checks the post's visibility."""
        values = {"partition": post_keys.partition(post_id), "prefix": keys.LIKE_PREFIX}
        return await read_page(self._store, keys.LIKES, [values], span, has_child_reads=has_child_reads)

    async def is_liked(self, post_id: str, user_id: str) -> bool:
        """FEED-N1: return whether the user likes the post. Batched with other point reads."""
        return await self._store.get(keys.LIKE_OF_USER, keys.like(post_id, user_id)) is not None

    async def like(self, post: Post, user_id: str) -> Like:
        """FEED-W2: like a post. The caller checks that the user may see it. Return the existing like, if any."""
        like = Like(post.post_id, user_id, self._now, post.author_id, post.visibility)
        written = await self._store.put(keys.LIKE_POST, _like_item(post, like))
        return record(like_from, written.item) or like

    async def unlike(self, post_id: str, user_id: str) -> Like | None:
        """FEED-W2: delete a like. Return it as it was. None if there was none, or if a lost attempt deleted it."""
        written = await self._store.delete(keys.UNLIKE_POST, keys.like(post_id, user_id))
        return record(like_from, written.item)


def _like_item(post: Post, like: Like) -> Item:
    key = keys.like(like.post_id, like.user_id)
    return {
        "PK": key.partition,
        "SK": key.sort,
        "created_at": iso(like.created_at),
        "post_author": post.author_id,
        "post_visibility": post.visibility.value,
    }
