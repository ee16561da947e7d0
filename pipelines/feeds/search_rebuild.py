"""The rebuild of the search index from the table, beside the consumer that keeps it current.

The new index is filled while the present one is searched, and takes its place at once in the end. From the beginning on
the consumer writes to both, and what it writes is newer than what the scan brings: no item is lost, and none that was
deleted comes back. A rebuild that is killed leaves the present index as it is; the next one begins from the start.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from datastore.backoff import Backoff
from datastore.feeds.search_source import ScannedPage, scanned
from datastore.keyspace.feeds.table import FEED
from datastore.search import BuildReplaced, Kind, SearchIndex
from datastore.shards import Wire, stream_of
from datastore.store import Store
from pipelines.streams.outages import is_any_refusal, is_outage, waited_out

PIECE = 500
PAUSE_SECONDS = 5.0
WAITING = Backoff(first=0.1, most=5.0, tries=8)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RebuildProgress:
    """The progress of a rebuild: the items scanned, and the posts and users indexed."""

    scanned: int = 0
    posts: int = 0
    users: int = 0
    damaged: int = 0


class Rebuild:
    """A rebuild of the index. `open_store` opens a store for each page, after which `on_progress` is called."""

    def __init__(
        self,
        wire: Wire,
        prefix: str,
        open_store: Callable[[], Store],
        index: SearchIndex,
        now: Callable[[], datetime],
        on_progress: Callable[[RebuildProgress], None] = lambda _: None,
    ) -> None:
        self._wire = wire
        self._prefix = prefix
        self._open_store = open_store
        self._index = index
        self._now = now
        self._on_progress = on_progress

    async def run(self) -> RebuildProgress:
        """Build and swap in the new index. Return what was done.

        Raises `BuildReplaced` when another rebuild began meanwhile, and what the store raises. An index that is away
        is waited for.
        """
        source = await stream_of(self._wire, FEED.name, self._prefix)
        build = await self._index.begin()
        progress = RebuildProgress()
        async for page in scanned(self._open_store):
            await self._fill(build, page)
            progress = _after(progress, page)
            self._on_progress(progress)
        await self._index.finish(build, source, self._now())
        if progress.damaged:
            logger.warning("%d items of the feed could not be read, and are not in the search index.", progress.damaged)
        return progress

    async def is_needed(self) -> bool:
        """Return whether the index was never built, or was built from another table than the present one.

        An unavailable store or index is waited for.
        """
        return await waited_out(self._is_of_another_table, _log_outage, backoff=WAITING, passes=is_any_refusal)

    async def _is_of_another_table(self) -> bool:
        return (await self._index.status()).source != await stream_of(self._wire, FEED.name, self._prefix)

    async def run_if_needed(self) -> None:
        """Build the index unless it belongs to the table. Another process may build it at the same time."""
        while await self.is_needed():
            try:
                done = await self.run()
            except BuildReplaced:
                await asyncio.sleep(PAUSE_SECONDS)  # for the other rebuild to end
            else:
                logger.info("The search index was built: %d posts and %d users.", done.posts, done.users)

    async def _fill(self, build: str, page: ScannedPage) -> None:
        for kind, entries in ((Kind.POSTS, page.posts), (Kind.USERS, page.users)):
            for at in range(0, len(entries), PIECE):
                fill = partial(self._index.fill, build, kind, entries[at : at + PIECE])
                await waited_out(fill, _log_outage, backoff=WAITING, passes=is_outage)


def _after(progress: RebuildProgress, page: ScannedPage) -> RebuildProgress:
    return RebuildProgress(
        progress.scanned + page.scanned,
        progress.posts + sum(not entry.removed for entry in page.posts),
        progress.users + sum(not entry.removed for entry in page.users),
        progress.damaged + page.damaged,
    )


def _log_outage(problem: Exception) -> None:
    logger.warning("The search index is waited for: %s", problem)
