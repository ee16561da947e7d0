"""Comments on posts: records, reads and writes."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from msgspec import Struct

from datastore.change_streams.change import Change
from datastore.dynamodb.codec import Item
from datastore.dynamodb.record_decoder import RecordDecoder, count, text, texts
from datastore.dynamodb.records import record
from datastore.errors import Conflict, Forbidden
from datastore.feeds.posts import Post
from datastore.feeds.visibility import VISIBILITIES, Visibility
from datastore.keyspace.feeds import comments as keys
from datastore.keyspace.feeds import posts as post_keys
from datastore.model.access_patterns import AccessPattern
from datastore.model.composite_keys import second_part
from datastore.model.timestamps import from_iso, iso, to_seconds
from datastore.session.pagination import Page, Span, read_page
from datastore.session.store import Store

# `addComment` refuses ids older than a day, so a tombstone need not live longer.
TOMBSTONE_LIFETIME = timedelta(days=2)


class Comment(Struct, frozen=True, gc=False):
    """A comment on a post, with the post's author and visibility. `mentions` contains the ids of mentioned users.

    Author and visibility are None if another program wrote the item without them.
    """

    post_id: str
    comment_id: str
    user_id: str
    created_at: datetime
    text: str
    mentions: tuple[str, ...]
    post_author: str | None
    post_visibility: Visibility | None
    stored_length: int | None = None

    @property
    def text_length(self) -> int:
        """The length in characters; the stored one if another program stored a length and no text."""
        return self.stored_length if self.stored_length is not None and not self.text else len(self.text)


def is_comment(item_keys: Mapping[str, str]) -> bool:
    return item_keys["SK"].startswith(keys.COMMENT_PREFIX) and item_keys["PK"].startswith("POST#")


comment_from = RecordDecoder(
    Comment,
    post_id=text("PK", second_part),
    comment_id=text("SK", second_part),
    user_id=text("user_id"),
    created_at=text("created_at", from_iso),
    text=text("text", default=""),
    mentions=texts("mentions", default=()),
    post_author=text("post_author", default=None),
    post_visibility=text("post_visibility", VISIBILITIES, default=None),
    stored_length=count("text_len", default=None),
)


def added_comment(change: Change) -> Comment | None:
    """Return the comment that a change added, or None."""
    return _live_comment(change.new) if is_comment(change.keys) and not _is_live(change.old) else None


def deleted_comment(change: Change) -> Comment | None:
    """Return the comment that a change deleted, as it was before, or None."""
    return _live_comment(change.old) if is_comment(change.keys) and not _is_live(change.new) else None


def _is_live(item: Mapping[str, Any] | None) -> bool:
    return item is not None and "deleted_at" not in item


def _live_comment(item: Mapping[str, Any] | None) -> Comment | None:
    return comment_from(item) if item is not None and _is_live(item) else None


class Comments:
    """One method for each access pattern."""

    def __init__(self, store: Store, now: datetime) -> None:
        self._store = store
        self._now = now

    async def of_post(self, post_id: str, span: Span, *, has_child_reads: bool = False) -> Page:
        """FEED-006: return the comments on a post, oldest first. The caller checks the post's visibility."""
        values = {"partition": post_keys.partition(post_id), "prefix": keys.COMMENT_PREFIX}
        return await read_page(self._store, keys.COMMENTS, [values], span, has_child_reads=has_child_reads)

    async def by_key(self, post_id: str, comment_id: str, pattern: AccessPattern = keys.COMMENT) -> Comment | None:
        """FEED-N2: return a comment, or None. The caller checks the post's visibility."""
        item = await self._store.find(pattern, keys.comment(post_id, comment_id))
        return item.record(comment_from) if item is not None and _is_live(item.raw) else None

    async def add(self, post: Post, comment_id: str, user_id: str, text: str, mentions: Sequence[str]) -> Comment:
        """FEED-W3: add a comment to a post that the user may see. Return the user's existing comment of this id.

        Raises `Conflict` if the id belongs to another user's or a deleted comment.
        """
        comment = Comment(
            post.post_id, comment_id, user_id, self._now, text, tuple(mentions), post.author_id, post.visibility
        )
        written = await self._store.put(keys.ADD_COMMENT, _comment_item(post, comment))
        stored = comment if written.item is None else record(_live_comment, written.item)
        if stored is None or stored.user_id != user_id:
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
        if user_id not in (comment.user_id, await self._author_of_post(comment)):
            raise Forbidden("Only the author of the comment or of its post may delete it.")
        gone = to_seconds(self._now + TOMBSTONE_LIFETIME)
        written = await self._store.update(
            keys.DELETE_COMMENT, key, author=comment.user_id, now=iso(self._now), gone=gone
        )
        return comment if written.ok or written.is_retry else None

    async def _author_of_post(self, comment: Comment) -> str | None:
        """Return the author of a comment's post. Read the post if another program wrote the comment without it."""
        if comment.post_author is not None:
            return comment.post_author
        post = await self._store.get(keys.DELETE_COMMENT, post_keys.post(comment.post_id))
        return None if post is None else post.get("author_id")


def _comment_item(post: Post, comment: Comment) -> Item:
    key = keys.comment(comment.post_id, comment.comment_id)
    item = {
        "PK": key.partition,
        "SK": key.sort,
        "user_id": comment.user_id,
        "created_at": iso(comment.created_at),
        "text": comment.text,
        "text_len": comment.text_length,
        "post_author": post.author_id,
        "post_visibility": post.visibility.value,
    }
    return item | ({"mentions": list(comment.mentions)} if comment.mentions else {})
