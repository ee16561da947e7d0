"""Deletes the likes and comments of deleted posts, also those that were written after the deletion.

This gateway writes a like or comment after it has read the post, so that another caller may have deleted the post by
then. The deletion of a post deletes the items that are stored already; the change of each later item finds the
tombstone. The likes and comments of a post that was never stored stay: another program may store the post later.
"""

from collections.abc import Callable, Sequence
from functools import partial

from datastore.change_streams.shards.stream_reader import Change
from datastore.dynamodb.codec import Item
from datastore.feeds.cascade_delete import PostRemains
from datastore.feeds.comments import is_comment
from datastore.feeds.likes import is_like
from datastore.feeds.posts import deleted
from datastore.keyspace.feeds.posts import post_parts
from datastore.keyspace.feeds.table import FEED
from datastore.model.composite_keys import Key, key_of
from datastore.session.store import Store
from pipelines.feeds.bounded_gather import AT_ONCE, side_by_side

PAGE = 500


class Cleanup:
    """Handles posts that were deleted, and likes and comments that were made."""

    name = "cleanup"

    def __init__(self, open_store: Callable[[], Store], *, page: int = PAGE, at_once: int = AT_ONCE) -> None:
        self._open_store = open_store
        self._page = page
        self._at_once = at_once

    async def handle(self, changes: Sequence[Change]) -> None:
        """Delete what the changes leave behind. Reads the posts of all changes in one batch."""
        emptied = {post.post_id for change in changes if (post := deleted(change)) is not None}
        added = {key: post_parts(key) for change in changes if (key := _added(change)) is not None}
        if not emptied and not added:
            return
        remains = PostRemains(self._open_store())
        gone = await remains.gone([*emptied, *added.values()])
        await remains.delete([key for key, post_id in added.items() if post_id in gone.deleted - emptied])
        await side_by_side([partial(self._empty, post_id) for post_id in emptied & gone.all], self._at_once)

    async def _empty(self, post_id: str) -> None:
        start: Item | None = None
        while True:
            remains = PostRemains(self._open_store())
            page = await remains.page(post_id, start, self._page)
            await remains.delete(page.keys)
            if (start := page.next_start) is None:
                return


def _added(change: Change) -> Key | None:
    """The key of a like or comment that was made, or None."""
    if change.kind != "INSERT" or not (is_like(change.keys) or is_comment(change.keys)):
        return None
    return key_of(FEED, change.keys)
