"""The rebuild of the search index from the table, beside the consumer that keeps it current.

A rebuild fills a new index while searches use the current one, and swaps them atomically at its end. During the rebuild
the consumer writes to both indexes. Its entries are newer than those of the scan, so the new index loses no item and
restores no deleted item. A killed rebuild leaves the current index unchanged; the next rebuild starts over.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from datastore.change_streams.shards.shard_reader import stream_of
from datastore.dynamodb.retry.backoff import Backoff
from datastore.feeds.search_entries import ScannedPage, scan_entries
from datastore.keyspace.feeds.table import FEED
from datastore.primitives.retries import OutageLog, retry
from datastore.search import BuildReplaced, Kind, SearchIndex
from pipelines.consumer.consumer import Instance
from pipelines.consumer.failures import is_outage, is_store_error

BATCH_SIZE = 500
PAUSE_SECONDS = 5.0
RETRIES = Backoff(initial=0.1, maximum=5.0, attempts=8)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RebuildProgress:
    """The progress of a rebuild: the items scanned, and the posts and users indexed."""

    scanned: int = 0
    posts: int = 0
    users: int = 0
    damaged: int = 0


@dataclass(frozen=True, slots=True)
class SearchRebuild:
    """A rebuild of the index."""

    instance: Instance
    index: SearchIndex
    #: Is called after each page.
    on_progress: Callable[[RebuildProgress], None] = lambda _: None

    async def run(self) -> RebuildProgress:
        """Build the new index and swap it in. Return the final progress.

        Waits while the index is unavailable. Raises `BuildReplaced` if another rebuild has begun, and the store's
        errors.
        """
        source = await self._stream()
        build = await self.index.begin_rebuild()
        progress = RebuildProgress()
        async for page in scan_entries(self.instance.open_store):
            await self._fill(build, page)
            progress = _after(progress, page)
            self.on_progress(progress)
        await self.index.finish_rebuild(build, source, self.instance.now())
        if progress.damaged:
            logger.warning("%d damaged items of the feed are missing from the search index.", progress.damaged)
        return progress

    async def is_needed(self) -> bool:
        """Return whether the index was never built, or was built from another table than the present one.

        Waits while the store or the index is unavailable.
        """
        return await retry(self._is_of_another_table, RETRIES.endless_delays(), is_store_error, OutageLog(_log_outage))

    async def _is_of_another_table(self) -> bool:
        return (await self.index.status()).source != await self._stream()

    async def _stream(self) -> str:
        return await stream_of(self.instance.wire, FEED.name, self.instance.prefix)

    async def run_if_needed(self) -> None:
        """Build the index unless it belongs to the table. Another process may build it at the same time."""
        while await self.is_needed():
            try:
                progress = await self.run()
            except BuildReplaced:
                await asyncio.sleep(PAUSE_SECONDS)  # for the other rebuild to end
            else:
                logger.info("The search index was built: %d posts and %d users.", progress.posts, progress.users)

    async def _fill(self, build: str, page: ScannedPage) -> None:
        for kind, entries in ((Kind.POSTS, page.posts), (Kind.USERS, page.users)):
            for start in range(0, len(entries), BATCH_SIZE):
                fill = partial(self.index.fill, build, kind, entries[start : start + BATCH_SIZE])
                await retry(fill, RETRIES.endless_delays(), is_outage, OutageLog(_log_outage))


def _after(progress: RebuildProgress, page: ScannedPage) -> RebuildProgress:
    return RebuildProgress(
        progress.scanned + page.scanned,
        progress.posts + sum(not entry.removed for entry in page.posts),
        progress.users + sum(not entry.removed for entry in page.users),
        progress.damaged + page.damaged,
    )


def _log_outage(problem: Exception) -> None:
    logger.warning("The search index or the table is unavailable; waiting: %s", problem)
