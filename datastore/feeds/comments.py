"""Comments on posts: records, reads and writes."""

from collections.abc import Awaitable, Mapping, Sequence
from datetime import datetime, timedelta
from operator import not_
from typing import Any

from datastore.change_streams.change import Change
from datastore.dynamodb.records import record
from datastore.errors import Conflict, Forbidden
from datastore.feeds.count_marks import marked_until
from datastore.feeds.posts import Post
from datastore.feeds.visibility import Visibility
from datastore.items import attributes as stored
from datastore.items.forms import Prose
from datastore.items.repository import Repository
from datastore.items.stored_item import StoredItem
from datastore.keyspace.feeds import comments as keys
from datastore.keyspace.feeds import posts as post_keys
from datastore.model.access_patterns import AccessPattern
from datastore.model.timestamps import iso, to_seconds
from datastore.session.pagination import Page, Span, read_page, read_pages

# `createComment` refuses ids older than a day, so a tombstone need not live longer.
TOMBSTONE_LIFETIME = timedelta(days=2)


class Comment(StoredItem, key=keys.comment):
    """A comment on a post, with the post's author and visibility. `mentions` contains the ids of mentioned users.

    Author and visibility are None if another program wrote the item without them.
    """

    post_id: str = stored.part()
    comment_id: str = stored.part()
    author_id: str = stored.text("user_id")
    created_at: datetime = stored.moment("created_at")
    text: str = stored.text("text", missing="", form=Prose(1000))
    mentions: tuple[str, ...] = stored.texts("mentions", missing=(), omit=not_)
    post_author: str | None = stored.text("post_author", missing=None)
    post_visibility: Visibility | None = stored.choice("post_visibility", Visibility, missing=None)
    stored_length: int | None = stored.count("text_len", default=None)
    #: Until then the comment is counted only if it has a mark (see `count_marks`).
    marked_until: datetime | None = stored.moment("marked_until", default=None)

    @property
    def text_length(self) -> int:
        """The length in characters; the stored one if another program stored a length and no text."""
        return self.stored_length if self.stored_length is not None and not self.text else len(self.text)


is_comment = keys.comment.matches


def added_comment(change: Change) -> Comment | None:
    """Return the comment that a change added, or None."""
    return _live_comment(change.new) if is_comment(change.keys) and not _is_live(change.old) else None


def deleted_comment(change: Change) -> Comment | None:
    """Return the comment that a change deleted, as it was before, or None."""
    return _live_comment(change.old) if is_comment(change.keys) and not _is_live(change.new) else None


def _is_live(item: Mapping[str, Any] | None) -> bool:
    return item is not None and "deleted_at" not in item


def _live_comment(item: Mapping[str, Any] | None) -> Comment | None:
    return Comment.decoder(item) if item is not None and _is_live(item) else None


class Comments(Repository):
    """One method for each access pattern."""

    async def of_post(self, post_id: str, span: Span) -> Page:
        """FEED-006: return the comments on a post, oldest first. The caller checks the post's visibility."""
        return await read_page(self._store, keys.COMMENTS, [keys.comment.values_of(post_id)], span)

    def of_posts(
        self, post_ids: Sequence[str], spans: Sequence[Span], *, has_child_reads: bool
    ) -> Awaitable[list[Page | BaseException]]:
        """FEED-006: return a page for each of the posts, or its error: see `of_post`."""
        partitions = [*map(keys.comment.values_of, post_ids)]
        return read_pages(self._store, keys.COMMENTS, partitions, spans, has_child_reads=has_child_reads)

    async def by_key(self, post_id: str, comment_id: str, pattern: AccessPattern = keys.COMMENT) -> Comment | None:
        """FEED-N2: return a comment, or None. The caller checks the post's visibility."""
        item = await self._store.find(pattern, keys.comment(post_id, comment_id))
        return item.record(Comment.decoder) if item is not None and _is_live(item.raw) else None

    async def add(self, post: Post, comment_id: str, user_id: str, text: str, mentions: Sequence[str]) -> Comment:
        """FEED-W3: add a comment to a post that the user may see. Return the user's existing comment of this id.

        Raises `Conflict` if the id belongs to another user's or a deleted comment.
        """
        of_post = post.author_id, post.visibility
        comment = Comment(
            *(post.post_id, comment_id, user_id, self._now, text, tuple(mentions), *of_post, len(text)),
            marked_until(self._now),
        )
        written = await self._store.put(keys.CREATE_COMMENT, comment.item())
        stored = comment if written.item is None else record(_live_comment, written.item)
        if stored is None or stored.author_id != user_id:
            raise Conflict(f"The comment id {comment_id!r} is taken: choose another.")
        return stored

    async def delete(self, post_id: str, comment_id: str, user_id: str) -> Comment | None:
        """FEED-W6: replace a comment by a tombstone. Return the comment as it was, or None if there was none.

        Raises `Forbidden` if the user wrote neither the comment nor its post.
        """
        key = keys.comment(post_id, comment_id)
        comment = record(_live_comment, await self._store.get(keys.DELETE_COMMENT, key))
        if comment is None:
            return None
        if user_id not in (comment.author_id, await self._author_of_post(comment)):
            raise Forbidden("Only the author of the comment or of its post may delete it.")
        gone = to_seconds(self._now + TOMBSTONE_LIFETIME)
        written = await self._store.update(
            keys.DELETE_COMMENT, key, author=comment.author_id, now=iso(self._now), gone=gone
        )
        return comment if written.ok or written.is_retry else None

    async def _author_of_post(self, comment: Comment) -> str | None:
        """Return the author of a comment's post. Read the post if another program wrote the comment without it."""
        if comment.post_author is not None:
            return comment.post_author
        post = await self._store.get(keys.DELETE_COMMENT, post_keys.post(comment.post_id))
        return None if post is None else post.get("author_id")
