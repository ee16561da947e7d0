"""Likes of posts: records, reads and writes."""

from collections.abc import Awaitable, Sequence
from datetime import datetime

from datastore.dynamodb.records import existence, record
from datastore.feeds.count_marks import CountMarks, marked_until
from datastore.feeds.posts import Post
from datastore.feeds.visibility import Visibility
from datastore.items import attributes as stored
from datastore.items.repository import Repository
from datastore.items.stored_item import StoredItem
from datastore.keyspace.feeds import likes as keys
from datastore.model.timestamps import iso
from datastore.session.pagination import Page, Span, read_page, read_pages


class Like(StoredItem, key=keys.like):
    """A like of a post by a user, with the post's author and visibility.

    Both are None if another program wrote the item without them.
    """

    post_id: str = stored.part()
    user_id: str = stored.part()
    created_at: datetime = stored.moment("created_at")
    post_author: str | None = stored.text("post_author", missing=None)
    post_visibility: Visibility | None = stored.choice("post_visibility", Visibility, missing=None)
    #: Until then the like is counted only if it has a mark (see `count_marks`).
    marked_until: datetime | None = stored.moment("marked_until", default=None)


is_like = keys.like.matches


class Likes(Repository):
    """One method for each access pattern."""

    async def of_post(self, post_id: str, span: Span) -> Page:
        """FEED-005: return the likes of a post by user id, descending. The caller checks the post's visibility."""
        return await read_page(self._store, keys.LIKES, [keys.like.values_of(post_id)], span)

    def of_posts(
        self, post_ids: Sequence[str], spans: Sequence[Span], *, has_child_reads: bool
    ) -> Awaitable[list[Page | BaseException]]:
        """FEED-005: return a page for each of the posts, or its error: see `of_post`."""
        partitions = [*map(keys.like.values_of, post_ids)]
        return read_pages(self._store, keys.LIKES, partitions, spans, has_child_reads=has_child_reads)

    async def is_liked(self, post_id: str, user_id: str) -> bool:
        """FEED-N1: return whether the user likes the post. Batched with other point reads."""
        return await self._store.get(keys.LIKE_OF_USER, keys.like(post_id, user_id)) is not None

    async def are_liked(self, post_ids: Sequence[str], user_id: str) -> list[bool | Exception]:
        """FEED-N1: return whether the user likes each post, or the error of its read."""
        likes = [keys.like(post_id, user_id) for post_id in post_ids]
        return existence(await self._store.find_all(keys.LIKE_OF_USER, likes))

    async def like(self, post: Post, user_id: str) -> Like:
        """FEED-W2: like a post. The caller checks that the user may see it. Return the existing like, if any."""
        like = Like(post.post_id, user_id, self._now, post.author_id, post.visibility, marked_until(self._now))
        written = await self._store.put(keys.LIKE_POST, like.item())
        return record(Like.decoder, written.item) or like

    async def unlike(self, post_id: str, user_id: str) -> Like | None:
        """FEED-W2: delete a like. Return it as it was. None if there was none, or if a lost attempt deleted it."""
        key = keys.like(post_id, user_id)
        written = await self._store.delete(keys.UNLIKE_POST, key, now=iso(self._now))
        if not written.ok:
            await CountMarks(self._store, self._now).put(key)
            written = await self._store.delete(keys.UNLIKE_COUNTED, key)
        return record(Like.decoder, written.item)
