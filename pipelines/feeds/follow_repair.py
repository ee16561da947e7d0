"""Completes the follows that other programs stored before the feed's pipeline ran for the first time.

The pipeline completes an edge when it reads the edge from the table's stream. A stream keeps changes for 24 hours, so
older edges have no follower's side: the gateway lists their followers and delivers posts to them, but does not count
them. A repair writes the missing sides, which the pipeline then counts like any follow.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from datastore.feeds.follows import FollowEdges, scan_edges
from datastore.primitives.tasks import CONCURRENCY, bounded_gather
from datastore.session.store import Store


@dataclass(frozen=True, slots=True)
class RepairProgress:
    """The progress of a repair: the number of items scanned and of follows completed."""

    scanned: int = 0
    follows: int = 0


class FollowRepair:
    """A repair of all follows. It may run beside gateways and pipelines. A repeated repair changes nothing.

    `open_store` opens a store for each page of the table, after which `on_progress` is called.
    """

    def __init__(
        self,
        open_store: Callable[[], Store],
        on_progress: Callable[[RepairProgress], None] = lambda _: None,
        *,
        concurrency: int = CONCURRENCY,
    ) -> None:
        self._open_store = open_store
        self._on_progress = on_progress
        self._concurrency = concurrency

    async def run(self) -> RepairProgress:
        """Complete all follows. Return the final progress.

        Raises the store's errors. A repair that failed may be run again.
        """
        progress = RepairProgress()
        async for page in scan_edges(self._open_store):
            pairs = dict.fromkeys((follow.follower_id, follow.followee_id) for follow in page.follows)
            edges = FollowEdges(self._open_store())
            await bounded_gather([partial(edges.reconcile, *pair, inserted=True) for pair in pairs], self._concurrency)
            progress = RepairProgress(progress.scanned + page.scanned, progress.follows + len(pairs))
            self._on_progress(progress)
        return progress
