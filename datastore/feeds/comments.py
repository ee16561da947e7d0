"""Comments: what one is, and how the table keeps it."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from datastore.attributes import Item
from datastore.declarations import AccessPattern
from datastore.decoding import Decoder, text, texts
from datastore.errors import Conflict, Forbidden
from datastore.feeds.posts import Post
from datastore.feeds.visibility import VISIBILITIES, Visibility
from datastore.keyspace.feeds import comments as keys
from datastore.keyspace.feeds import posts as post_keys
from datastore.keyspace.parts import second_part
from datastore.moments import from_iso, iso
from datastore.pages import Page, Span, read_page
from datastore.records import record
from datastore.store import Store


class Comment(Struct, frozen=True, gc=False):
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


comment_from = Decoder(
    Comment,
    post_id=text("PK", second_part),
    comment_id=text("SK", second_part),
    user_id=text("user_id"),
    created_at=text("created_at", from_iso),
    text=text("text"),
    mentions=texts("mentions", default=()),
    post_author=text("post_author"),
    post_visibility=text("post_visibility", VISIBILITIES),
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
        found = await self._store.find(pattern, keys.comment(post_id, comment_id))
        return None if found is None else found.record(comment_from)

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
