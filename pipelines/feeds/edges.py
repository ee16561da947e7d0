"""Completes follows that other programs wrote: an edge alone gets the follower's side, which all else follows from.

Counts, feeds, notifications and who may see a post go by the follower's side (see `followings`). This gateway writes
and deletes both sides at once. Another program writes and deletes the edge that the document lists.
"""

from collections.abc import Callable, Sequence
from functools import partial

from datastore.feeds.edges import Edges as Sides
from datastore.feeds.follows import edge_from, is_edge
from datastore.store import Store
from datastore.streams import Change
from pipelines.feeds.side_by_side import AT_ONCE, side_by_side


class Edges:
    """Handles edges that came without the follower's side, and edges that were deleted."""

    name = "edges"

    def __init__(self, open_store: Callable[[], Store], *, at_once: int = AT_ONCE) -> None:
        self._open_store = open_store
        self._at_once = at_once

    async def handle(self, changes: Sequence[Change]) -> None:
        """All changes of one follow at once: what counts is which edges there are now."""
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
    """Our own edges come with the follower's side, and say so by `since`."""
    if not is_edge(change.keys):
        return False
    return change.kind == "REMOVE" or (change.kind == "INSERT" and "since" not in (change.new or {}))
