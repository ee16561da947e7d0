"""One shard as it is read and handled, for as long as its lease is held."""

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
from pipelines.consumer.batches import BatchProcessor
from pipelines.consumer.failures import OUTAGE, is_any_refusal, waited_out
from pipelines.consumer.metrics import ShardLag, StreamMetrics
from pipelines.consumer.shared_pages import Cursor

T = TypeVar("T")

RELEASE_SECONDS = 2.0
# A page is short at the stream's end, and where AWS cuts it at a megabyte: there the records are older than this.
# The times of records are told by the second.
FRESH = timedelta(seconds=2)
# AWS may give an empty page before the end; not many in a row.
EMPTY_PAGES = 2
POSITION_REFUSED = (
    "CHANGES MAY BE LOST: %s Reading goes on with the oldest records there are. Those that were handled before come "
    "again, and change nothing. If this repeats, compare the attribute `checkpoint` of the shard's lease (FEED-P1) "
    "with the sequence numbers of the stream."
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ConsumerIntervals:
    """The intervals of a consumer in seconds. `batch` is the most records handled at once.

    A consumer that follows another one in its process reads a shard itself after `follow_seconds` without a page.
    """

    poll_seconds: float = 0.25
    lease_seconds: float = LIFETIME_SECONDS
    hold_seconds: float = 3.0
    discover_seconds: float = 10.0
    stop_seconds: float = 10.0
    follow_seconds: float = 5.0
    batch: int = BATCH
    outage: Backoff = OUTAGE


class ShardLeaseLost(Exception):
    """Another instance reads the shard now."""


class ShardWorker:
    """The work on one shard until the shard has ended, its lease is lost, or the consumer stops it.

    `open_leases` gives the leases with a fresh store, `held_at` is the loop's time before the lease was taken, and
    `wait` how long its former holder may still be at work. `now` is the store's time.
    """

    def __init__(
        self,
        table: str,
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
        self.ended = False
        self._table = table
        self._lease = lease
        self._cursor = cursor
        self._open_leases = open_leases
        self._batches = batches
        self._metrics = metrics
        self._now = now
        self._pace = pace
        self._lapses_at = held_at + pace.lease_seconds
        self._wait = wait
        self._lost = False
        self._stopping = False
        self._in_batch = False
        self._working: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Go no further than to the end of the batch that is being handled."""
        self._stopping = True
        if self._working is not None and not self._in_batch:
            self._working.cancel()

    async def run(self) -> None:
        """The lease is given back in the end, unless it is lost. Raises what was not foreseen."""
        with self._metrics.shard(self._table, self._lease.shard_id, self._now) as lag:
            self._working = asyncio.create_task(self._work(lag))
            holding = asyncio.create_task(self._hold())
            try:
                await asyncio.wait({self._working, holding}, return_when=asyncio.FIRST_COMPLETED)
                self._lost = self._lost or not self._working.done()
            finally:
                for task in (self._working, holding):
                    task.cancel()
                await asyncio.wait({self._working, holding})
                if self._lost:
                    logger.warning("The lease of shard %s is lost", self._lease.shard_id)
                elif not self.ended:
                    await self._release()
        for task in (self._working, holding):
            if not task.cancelled():
                task.result()

    async def _hold(self) -> None:
        """Hold the lease, however long a batch takes; returns when it is lost, or has not been held for too long."""
        loop = asyncio.get_running_loop()
        pause = self._pace.hold_seconds
        while (left := self._lapses_at - loop.time()) > 0:
            await asyncio.sleep(min(pause, left))
            asked_at = loop.time()
            try:
                async with asyncio.timeout_at(self._lapses_at):
                    held = await self._open_leases().hold(self._lease)
            except TimeoutError:
                continue
            except Exception as problem:
                if not is_any_refusal(problem):
                    raise
                pause = self._pace.hold_seconds / 4
                continue
            if held is None:
                return
            self._keep(held, asked_at)
            pause = self._pace.hold_seconds

    def _keep(self, held: Lease, asked_at: float) -> None:
        self._lease = held
        self._lapses_at = max(self._lapses_at, asked_at + self._pace.lease_seconds)

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
        """Before the next is read: no time while there is more for certain, and a short one while there may be."""
        if len(page.records) >= self._pace.batch:
            return 0.0
        last = time_of(page.records[-1]) if page.records else None
        is_behind = last is not None and self._now() - last > FRESH
        return self._pace.poll_seconds / 5 if is_behind else self._pace.poll_seconds

    async def _read(self, lag: ShardLag) -> ShardPage:
        read = partial(self._cursor.read, self._pace.batch)
        while True:
            try:
                return await self._patiently("reading", read, lag.in_doubt)
            except PositionRefused as refused:
                self._metrics.lost(self._table)
                logger.error(POSITION_REFUSED, refused)
            except Trimmed as trimmed:
                self._metrics.lost(self._table)
                logger.error("CHANGES ARE LOST: %s Reading goes on with the oldest there are.", trimmed)
            await asyncio.sleep(self._pace.poll_seconds)

    async def _handle(self, page: ShardPage, lag: ShardLag) -> None:
        if not page.records:
            return
        self._in_batch = True
        try:
            lag.behind(time_of(page.records[0]) or self._now())
            await self._batches.handle(self._table, page.records)
            lag.behind(time_of(page.records[-1]) or self._now())
            sequences = [sequence for record in page.records if (sequence := sequence_of(record)) is not None]
            if sequences:
                await self._checkpoint(sequences[-1])
        finally:
            self._in_batch = False

    async def _checkpoint(self, sequence: str) -> None:
        asked_at = 0.0

        async def note() -> Lease | None:
            nonlocal asked_at
            asked_at = asyncio.get_running_loop().time()
            return await self._open_leases().checkpoint(self._lease, sequence)

        held = await self._patiently("noting how far it is", note)
        if held is None:
            self._lose()
        else:
            self._keep(held, asked_at)

    async def _end(self) -> None:
        async def end() -> bool:
            return await self._open_leases().end(self._lease)

        if not await self._patiently("noting its end", end):
            self._lose()
        self.ended = True

    def _lose(self) -> NoReturn:
        self._lost = True
        raise ShardLeaseLost

    async def _release(self) -> None:
        """So that others need not wait until it lapses; which it does if the store is out of order."""
        try:
            async with asyncio.timeout(RELEASE_SECONDS):
                await self._open_leases().release(self._lease)
        except Exception as problem:
            logger.warning("The lease of shard %s is not given back: %s", self._lease.shard_id, problem)

    async def _patiently(
        self, what: str, ask: Callable[[], Awaitable[T]], on_outage: Callable[[], None] = lambda: None
    ) -> T:
        def tell(problem: Exception) -> None:
            logger.warning("Shard %s: %s is waited for: %s", self._lease.shard_id, what, problem)
            on_outage()

        return await waited_out(ask, tell, backoff=self._pace.outage, passes=is_any_refusal)
