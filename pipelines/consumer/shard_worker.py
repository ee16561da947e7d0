"""The worker that reads one shard and handles its records, for as long as it holds the lease."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import NoReturn, TypeVar

from datastore.change_streams.leases import LIFETIME_SECONDS, Lease, Leases
from datastore.change_streams.shards.shard_reader import (
    BATCH,
    PositionRefused,
    ShardPage,
    Trimmed,
    sequence_of,
    time_of,
)
from datastore.dynamodb.retry.backoff import Backoff
from datastore.primitives.retries import OutageLog, retry
from datastore.primitives.tasks import cancel
from pipelines.consumer.batches import BatchProcessor
from pipelines.consumer.failures import OUTAGE, is_store_error
from pipelines.consumer.metrics import ShardLag, StreamMetrics
from pipelines.consumer.shared_pages import Cursor

T = TypeVar("T")

RELEASE_SECONDS = 2.0
# A page is short at the stream's end, and where AWS cuts it at a megabyte. Records older than this show the latter.
# The times of records have a resolution of one second.
FRESH = timedelta(seconds=2)
# The empty pages in a row that show the end of the stream. AWS may return an empty page before the end.
EMPTY_PAGES = 2
POSITION_REFUSED = (
    "CHANGES OF %s MAY BE LOST: %s Reading continues with the oldest records. Records that were handled before are "
    "delivered again, and change nothing. If this repeats, compare the attribute `checkpoint` of the shard's lease "
    "(FEED-P1) with the sequence numbers of the stream."
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ConsumerIntervals:
    """The intervals of a consumer in seconds."""

    poll_seconds: float = 0.25
    lease_seconds: float = LIFETIME_SECONDS
    renew_seconds: float = 3.0
    discover_seconds: float = 10.0
    stop_seconds: float = 10.0
    #: The time without a page after which a consumer that follows another one reads the shard itself.
    follow_seconds: float = 5.0
    #: The maximum number of records handled at once.
    batch: int = BATCH
    outage: Backoff = OUTAGE


class ShardLeaseLost(Exception):
    """Another instance has acquired the lease of the shard."""


class ShardWorker:
    """A worker that handles one shard until the shard has ended, its lease is lost, or the consumer stops it.

    `full_name` is the table's name with the prefix. `open_leases` returns the leases with a fresh store. `held_at` is
    the loop's time before the lease was acquired, and `wait` the seconds for which its former holder may still be at
    work. `now` returns the store's time.
    """

    def __init__(
        self,
        table: str,
        full_name: str,
        lease: Lease,
        cursor: Cursor,
        open_leases: Callable[[], Leases],
        batches: BatchProcessor,
        metrics: StreamMetrics,
        now: Callable[[], datetime],
        pace: ConsumerIntervals,
        *,
        held_at: float,
        wait: float,
    ) -> None:
        #: Whether all records of the shard were handled.
        self.ended = False
        self._table = table
        self._full_name = full_name
        self._lease = lease
        self._cursor = cursor
        self._open_leases = open_leases
        self._batches = batches
        self._metrics = metrics
        self._now = now
        self._pace = pace
        self._expires_at = held_at + pace.lease_seconds
        self._wait = wait
        self._lost = False
        self._stopping = False
        self._in_batch = False
        self._work_task: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Stop after the current batch."""
        self._stopping = True
        if self._work_task is not None and not self._in_batch:
            self._work_task.cancel()

    async def run(self) -> None:
        """Handle records until the worker ends, then release the lease unless it is lost. Raise unexpected errors."""
        with self._metrics.shard(self._table, self._lease.shard_id, self._now) as lag:
            self._work_task = asyncio.create_task(self._work(lag))
            heartbeat = asyncio.create_task(self._heartbeat())
            try:
                await asyncio.wait({self._work_task, heartbeat}, return_when=asyncio.FIRST_COMPLETED)
                self._lost = self._lost or not self._work_task.done()
            finally:
                await cancel(self._work_task, heartbeat)
                if self._lost:
                    logger.warning(
                        "The lease of shard %s has expired or is another instance's; this one stops reading it",
                        self._lease.shard_id,
                    )
                elif not self.ended:
                    await self._release()
        for task in (self._work_task, heartbeat):
            if not task.cancelled():
                task.result()

    async def _heartbeat(self) -> None:
        """Renew the lease, however long a batch takes. Return when it is lost or has expired."""
        loop = asyncio.get_running_loop()
        pause = self._pace.renew_seconds
        while (left := self._expires_at - loop.time()) > 0:
            await asyncio.sleep(min(pause, left))
            requested_at = loop.time()
            try:
                async with asyncio.timeout_at(self._expires_at):
                    renewed = await self._open_leases().renew(self._lease)
            except TimeoutError:
                continue
            except Exception as problem:
                if not is_store_error(problem):
                    raise
                pause = self._pace.renew_seconds / 4
                continue
            if renewed is None:
                return
            self._lease_renewed(renewed, requested_at)
            pause = self._pace.renew_seconds

    def _lease_renewed(self, renewed: Lease, requested_at: float) -> None:
        self._lease = renewed
        self._expires_at = max(self._expires_at, requested_at + self._pace.lease_seconds)

    async def _work(self, lag: ShardLag) -> None:
        await asyncio.sleep(0 if self._stopping else self._wait)
        empty = 0
        with suppress(ShardLeaseLost):
            while not self._stopping:
                page = await self._read(lag)
                await self._handle(page, lag)
                if page.ended:
                    await self._end()
                    return
                empty = 0 if page.records else empty + 1
                if empty >= EMPTY_PAGES:
                    lag.caught_up()
                if not self._stopping:
                    await asyncio.sleep(self._pause(page))

    def _pause(self, page: ShardPage) -> float:
        """Return the seconds before the next read: none after a full page, and few while records are old."""
        if len(page.records) >= self._pace.batch:
            return 0.0
        last = time_of(page.records[-1]) if page.records else None
        is_behind = last is not None and self._now() - last > FRESH
        return self._pace.poll_seconds / 5 if is_behind else self._pace.poll_seconds

    async def _read(self, lag: ShardLag) -> ShardPage:
        read = partial(self._cursor.read, self._pace.batch)
        while True:
            try:
                return await self._retry_forever("reading", read, lag.stream_unavailable)
            except PositionRefused as refused:
                self._metrics.changes_lost(self._table)
                logger.error(POSITION_REFUSED, self._full_name, refused)
            except Trimmed as trimmed:
                self._metrics.changes_lost(self._table)
                logger.error(
                    "CHANGES OF %s ARE LOST: %s Reading continues with the oldest records.", self._full_name, trimmed
                )
            await asyncio.sleep(self._pace.poll_seconds)

    async def _handle(self, page: ShardPage, lag: ShardLag) -> None:
        if not page.records:
            return
        self._in_batch = True
        try:
            lag.set_oldest(time_of(page.records[0]) or self._now())
            await self._batches.handle(self._table, page.records)
            lag.set_oldest(time_of(page.records[-1]) or self._now())
            sequences = [sequence for record in page.records if (sequence := sequence_of(record)) is not None]
            if sequences:
                await self._checkpoint(sequences[-1])
        finally:
            self._in_batch = False

    async def _checkpoint(self, sequence: str) -> None:
        requested_at = 0.0

        async def store() -> Lease | None:
            nonlocal requested_at
            requested_at = asyncio.get_running_loop().time()
            return await self._open_leases().checkpoint(self._lease, sequence)

        renewed = await self._retry_forever("storing the checkpoint", store)
        if renewed is None:
            self._lease_lost()
        else:
            self._lease_renewed(renewed, requested_at)

    async def _end(self) -> None:
        async def end() -> bool:
            return await self._open_leases().end(self._lease)

        if not await self._retry_forever("recording its end", end):
            self._lease_lost()
        self.ended = True

    def _lease_lost(self) -> NoReturn:
        self._lost = True
        raise ShardLeaseLost

    async def _release(self) -> None:
        """Release the lease, so that other instances need not wait until it expires. Failures are logged."""
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                await self._open_leases().release(self._lease)
        except Exception as problem:
            logger.warning(
                "The lease of shard %s could not be released; it expires by itself: %s", self._lease.shard_id, problem
            )

    async def _retry_forever(
        self, action: str, call: Callable[[], Awaitable[T]], on_outage: Callable[[], None] = lambda: None
    ) -> T:
        def log_outage(problem: Exception) -> None:
            logger.warning("Shard %s: %s failed and is retried: %s", self._lease.shard_id, action, problem)
            on_outage()

        return await retry(call, self._pace.outage.endless_delays(), is_store_error, OutageLog(log_outage))
