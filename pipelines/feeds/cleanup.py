"""Cascade delete: deletes the likes and comments of deleted posts, including those written after the deletion.

This gateway reads the post before it writes a like or comment; another caller may delete the post in between. The
change of a deleted post deletes the items that are already stored; the change of each later item finds the tombstone.
The likes and comments of a post that was never stored remain: another program may store the post later.
"""

from collections.abc import Callable, Sequence
from functools import partial

from datastore.change_streams.change import Change
from datastore.dynamodb.codec import Item
from datastore.feeds.comments import is_comment
from datastore.feeds.likes import is_like
from datastore.feeds.posts import PostChildren, deleted_post
from datastore.keyspace.feeds.posts import post_parts
from datastore.keyspace.feeds.table import FEED
from datastore.model.composite_keys import Key, key_of
from datastore.primitives.tasks import bounded_gather
from datastore.session.store import Store

PAGE = 500


class CascadeDelete:
    """The handler of deleted posts, and of new likes and comments."""

    name = "cleanup"

    def __init__(self, open_store: Callable[[], Store], *, page: int = PAGE) -> None:
        self._open_store = open_store
        self._page = page

    async def handle(self, changes: Sequence[Change]) -> None:
        """Delete the items of unavailable posts. The posts of all changes are read in one batch."""
        deleted = {post.post_id for change in changes if (post := deleted_post(change)) is not None}
        added = {key: post_parts(key) for change in changes if (key := _added_key(change)) is not None}
        if not deleted and not added:
            return
        children = PostChildren(self._open_store())
        unavailable = await children.unavailable([*deleted, *added.values()])
        await children.delete([key for key, post_id in added.items() if post_id in unavailable.deleted - deleted])
        await bounded_gather(partial(self._delete_children, post_id) for post_id in deleted & unavailable.all)

    async def _delete_children(self, post_id: str) -> None:
        start: Item | None = None
        while True:
            children = PostChildren(self._open_store())
            page = await children.page(post_id, start, self._page)
            await children.delete(page.keys)
            if (start := page.next_start) is None:
                return


def _added_key(change: Change) -> Key | None:
    """Return the key of the like or comment that a change added, or None."""
    if change.kind != "INSERT" or not (is_like(change.keys) or is_comment(change.keys)):
        return None
    return key_of(FEED, change.keys)
