"""Comments: what one is, and how the table keeps it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from datastore.attributes import Item
from datastore.declarations import AccessPattern
from datastore.errors import Conflict, Forbidden
from datastore.feeds.posts import Post
from datastore.feeds.visibility import Visibility
from datastore.keyspace.feeds import comments as keys
from datastore.keyspace.feeds import posts as post_keys
from datastore.keyspace.parts import Key
from datastore.moments import from_iso, iso
from datastore.pages import Page, Span, read_page
from datastore.records import record
from datastore.store import Store


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment on a post, with the post's author and visibility. `mentions` are the ids of users it names."""

    post_id: str
    comment_id: str
    user_id: str
    created_at: datetime
    text: str
    mentions: tuple[str, ...]
    post_author: str
    post_visibility: Visibility

    @property
    def text_length(self) -> int:
        """In characters."""
        return len(self.text)


def is_comment(item_keys: Mapping[str, str]) -> bool:
    return item_keys["SK"].startswith(keys.COMMENT_PREFIX) and item_keys["PK"].startswith("POST#")


def comment_from(item: Mapping[str, Any]) -> Comment:
    post_id, comment_id = keys.comment_parts(Key(item["PK"], item["SK"]))
    return Comment(
        post_id=post_id,
        comment_id=comment_id,
        user_id=item["user_id"],
        created_at=from_iso(item["created_at"]),
        text=item["text"],
        mentions=tuple(item.get("mentions", ())),
        post_author=item["post_author"],
        post_visibility=Visibility(item["post_visibility"]),
    )


class Comments:
    """One method for each access pattern."""

    def __init__(self, store: Store, now: datetime) -> None:
        self._store = store
        self._now = now

    async def of_post(self, post_id: str, span: Span, *, leads_on: bool = False) -> Page:
        """FEED-006: the comments on a post, whoever may see it, oldest first."""
        values = {"partition": post_keys.partition(post_id), "prefix": keys.COMMENT_PREFIX}
        return await read_page(self._store, keys.COMMENTS, [values], span, leads_on=leads_on)

    async def by_key(self, post_id: str, comment_id: str, pattern: AccessPattern = keys.COMMENT) -> Comment | None:
        """FEED-N2: one comment, whoever may see its post; reads of one tick go out together."""
        return record(comment_from, await self._store.get(pattern, keys.comment(post_id, comment_id)))

    async def add(self, post: Post, comment_id: str, user_id: str, text: str, mentions: Sequence[str]) -> Comment:
        """FEED-W3: the comment on a post that the user may see, or the one that is the user's there.

        Raises `Conflict` for an id that is another user's.
        """
        comment = Comment(
            post.post_id, comment_id, user_id, self._now, text, tuple(mentions), post.author_id, post.visibility
        )
        written = await self._store.put(keys.ADD_COMMENT, _comment_item(comment))
        there = record(comment_from, written.item) or comment
        if there.user_id != user_id:
            raise Conflict(f"The comment id {comment_id!r} is taken: choose another.")
        return there

    async def delete(self, post_id: str, comment_id: str, user_id: str) -> Comment | None:
        """FEED-W6: the comment that was deleted, or None if there was none.

        Raises `Forbidden` for one that is neither the user's nor on the user's post.
        """
        written = await self._store.delete(keys.DELETE_COMMENT, keys.comment(post_id, comment_id), me=user_id)
        if not written.ok and written.item is not None:
            raise Forbidden("Only its author, or the author of the post, may delete a comment.")
        return record(comment_from, written.item)


def _comment_item(comment: Comment) -> Item:
    key = keys.comment(comment.post_id, comment.comment_id)
    item = {
        "PK": key.partition,
        "SK": key.sort,
        "user_id": comment.user_id,
        "created_at": iso(comment.created_at),
        "text": comment.text,
        "text_len": comment.text_length,
        "post_author": comment.post_author,
        "post_visibility": comment.post_visibility.value,
    }
    return item | ({"mentions": list(comment.mentions)} if comment.mentions else {})
