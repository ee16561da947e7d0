"""Completion of follows that other programs wrote: adds the follower's side, on which counts and feeds depend.

Counts, feeds, notifications and the visibility of posts depend on the follower's side (see `follow_backfill`). This
gateway writes and deletes both sides in one transaction. Other programs write and delete only the edge that
document 002 lists.
"""

from collections.abc import Callable, Sequence
from functools import partial

from datastore.change_streams.shards.stream_reader import Change
from datastore.feeds.follow_edges import FollowEdges as Sides
from datastore.feeds.follows import edge_from, is_edge
from datastore.session.store import Store
from pipelines.feeds.bounded_gather import AT_ONCE, side_by_side


class FollowEdgeHandler:
    """A handler of edges that were written without the follower's side, and of deleted edges."""

    name = "edges"

    def __init__(self, open_store: Callable[[], Store], *, at_once: int = AT_ONCE) -> None:
        self._open_store = open_store
        self._at_once = at_once

    async def handle(self, changes: Sequence[Change]) -> None:
        """Handle all changes of one follow together: the result depends only on the stored edges."""
        inserted: dict[tuple[str, str], bool] = {}
        for change in filter(_is_of_concern, changes):
            follow = edge_from(change.keys)
            pair = follow.follower_id, follow.followee_id
            inserted[pair] = inserted.get(pair, False) or change.kind == "INSERT"
        if inserted:
            sides = Sides(self._open_store())
            pieces = [partial(sides.settle, *pair, inserted=came) for pair, came in inserted.items()]
            await side_by_side(pieces, self._at_once)


def _is_of_concern(change: Change) -> bool:
    """Return whether another program may have written the edge: only this gateway's edges have `since`."""
    if not is_edge(change.keys):
        return False
    return change.kind == "REMOVE" or (change.kind == "INSERT" and "since" not in (change.new or {}))
