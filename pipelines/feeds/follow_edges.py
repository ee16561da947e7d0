"""Completion of follows that other programs wrote: adds the follower's side.

Counts, feeds, notifications and the visibility of posts depend on the follower's side (see `follow_backfill`). This
gateway writes and deletes both sides in one transaction. Other programs write and delete only the edge that
document 002 lists.
"""

from collections.abc import Callable, Sequence
from functools import partial

from datastore.change_streams.change import Change
from datastore.feeds.follows import FollowEdges, edge_from, is_edge
from datastore.primitives.tasks import bounded_gather
from datastore.session.store import Store


class FollowEdgeHandler:
    """A handler of edges that were written without the follower's side, and of deleted edges."""

    name = "edges"

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._open_store = open_store

    async def handle(self, changes: Sequence[Change]) -> None:
        """Handle all changes of one follow together: the result depends only on the stored edges."""
        inserted: dict[tuple[str, str], bool] = {}
        for change in filter(_is_foreign, changes):
            follow = edge_from(change.keys)
            pair = follow.follower_id, follow.followee_id
            inserted[pair] = inserted.get(pair, False) or change.kind == "INSERT"
        if inserted:
            edges = FollowEdges(self._open_store())
            await bounded_gather(partial(edges.reconcile, *pair, inserted=is_new) for pair, is_new in inserted.items())


def _is_foreign(change: Change) -> bool:
    """Return whether another program may have written the edge: only this gateway's edges have `since`."""
    if not is_edge(change.keys):
        return False
    return change.kind == "REMOVE" or (change.kind == "INSERT" and "since" not in (change.new or {}))
