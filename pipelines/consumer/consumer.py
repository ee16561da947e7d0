"""Consumes a table's stream: any number of instances share its shards, and each shard is read by one of them at a time.

Each shard has a lease (datastore/change_streams/leases.py). An instance holds its leases while it works, takes those
that are free or whose holder has gone, and gives them back when it stops.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime

from datastore.change_streams.leases import Lease, Leases
from datastore.change_streams.shards.listing import ShardListing
from datastore.change_streams.shards.shard_reader import ListedShard, ShardCursor, ShardGone, Wire, stream_of
from datastore.keyspace.feeds.pipeline import CONSUMER_TABLE
from datastore.model.access_patterns import Table
from datastore.session.store import Store
from pipelines.consumer.batches import BatchProcessor
from pipelines.consumer.failures import TOLD_AGAIN_SECONDS, is_any_refusal
from pipelines.consumer.lease_balancer import LeaseBalancer, Taking
from pipelines.consumer.metrics import StreamMetrics
from pipelines.consumer.shard_worker import ConsumerIntervals, ShardWorker
from pipelines.consumer.shared_pages import Cursor, FollowingCursor, LeadingCursor, SharedPages

# Before the stream is looked at again: children may be listed a moment after their parent has ended.
MISSING_CHILD_SECONDS = 1.0

logger = logging.getLogger(__name__)


class Consumer:
    """One instance's share of a table's stream. `instance_id` is unique to this instance and this run.

    `now` dates stored items and metrics; no clock decides which consumer reads a shard. Consumers of different groups
    read a stream independently: each group has leases and checkpoints of its own.

    A consumer with a `leader`, the consumer of another group in this process, works on the leader's shards and takes
    the pages that the leader reads (see `shared_pages`). It leaves shards that the leader's group reads in another
    process to the consumer there, and takes shards that the leader's group does not read.
    """

    def __init__(
        self,
        wire: Wire,
        table: Table,
        prefix: str,
        batches: BatchProcessor,
        open_store: Callable[[], Store],
        instance_id: str,
        now: Callable[[], datetime],
        metrics: StreamMetrics,
        *,
        group: str = "",
        leader: "Consumer | None" = None,
        pace: ConsumerIntervals = ConsumerIntervals(),  # noqa: B008 - frozen
    ) -> None:
        self.pages = SharedPages()
        self.elsewhere: frozenset[str] = frozenset()
        self.leader = leader
        self._group = group
        self._wire = wire
        self._table = table
        self._prefix = prefix
        self._batches = batches
        self._open_store = open_store
        self._instance_id = instance_id
        self._now = now
        self._metrics = metrics
        self._pace = pace
        self._stream = ""
        self._listing = ShardListing(wire, "", pace.discover_seconds)
        self._shards: Sequence[ListedShard] = ()
        self._childless: set[str] = set()  # the shards that have ended, and whose children are not listed yet
        self._look_at = 0.0
        self._sharing = LeaseBalancer(instance_id, pace.lease_seconds)
        self._gone: set[str] = set()
        self._works: dict[str, asyncio.Task[None]] = {}
        self._running: dict[str, ShardWorker] = {}
        self._wake = asyncio.Event()

    @property
    def working(self) -> set[str]:
        """The shards that this instance reads."""
        return set(self._works)

    async def run(self) -> None:
        """Until cancelled; then the batches that are being handled may end, and the leases are given back."""
        try:
            await self._reconcile_forever()
        finally:
            await self._stop()

    async def _reconcile_forever(self) -> None:
        delays = self._pace.outage.delays()
        tell_at = 0.0
        while True:
            try:
                await self._reconcile()
                seconds = min(self._pace.hold_seconds, self._look_at - asyncio.get_running_loop().time())
                delays, tell_at = self._pace.outage.delays(), 0.0
            except Exception as problem:
                seconds = next(delays, self._pace.outage.maximum)
                if not is_any_refusal(problem):
                    logger.exception("The shards of %s could not be shared", self._table.name)
                elif (moment := asyncio.get_running_loop().time()) >= tell_at:
                    logger.warning("The stream of %s is waited for: %s", self._table.name, problem)
                    tell_at = moment + TOLD_AGAIN_SECONDS
            await self._pause(seconds)

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        self._wake.clear()

    async def _reconcile(self) -> None:
        """Look at the stream and at its leases, and take those that should be one's own."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._look_at:
            await self._look()
            self._look_at = loop.time() + self._pace.discover_seconds
        asked_at = loop.time()
        leases = await self._leases().all()
        self._sharing.look(leases, loop.time())
        if self._lacks_children(leases):
            self._look_at = min(self._look_at, loop.time() + MISSING_CHILD_SECONDS)
        others = {lease.shard_id for lease in leases if self._sharing.is_anothers(lease, asked_at)}
        self.elsewhere = frozenset(others - self._works.keys())
        for taking in self._takings(leases, asked_at):
            await self._take(taking)

    def _takings(self, leases: Sequence[Lease], asked_at: float) -> list[Taking]:
        """Return the leases to take. With a leader, give back those of shards that its group reads elsewhere."""
        if self.leader is None:
            return self._sharing.takings(self._shards, leases, self._works.keys(), asked_at)
        elsewhere = self.leader.elsewhere
        for shard_id in self._running.keys() & elsewhere:
            self._running[shard_id].stop()
        free = self._sharing.free(self._shards, leases, self._works.keys(), asked_at)
        return [taking for taking in free if taking.shard_id not in elsewhere]

    def _lacks_children(self, leases: Sequence[Lease]) -> bool:
        """Whether a shard has ended, and what comes after it is not listed yet."""
        leaves = {shard.id for shard in self._shards} - {shard.parent for shard in self._shards}
        self._childless = {lease.shard_id for lease in leases if lease.ended and lease.shard_id in leaves}
        return not self._shards or bool(self._childless)

    async def _look(self) -> None:
        stream = await stream_of(self._wire, self._table.name, self._prefix)
        if stream != self._stream:
            if self._stream:
                logger.error("%s HAS ANOTHER STREAM: it is read from its start.", self._table.name)
                await self._stop()
            self._stream = stream
            self._listing, self._childless = ShardListing(self._wire, stream, self._pace.discover_seconds), set()
            self._sharing = LeaseBalancer(self._instance_id, self._pace.lease_seconds)
            self._gone.clear()
        self._shards = await self._listing.refresh(self._childless)

    async def _take(self, taking: Taking) -> None:
        asked_at = asyncio.get_running_loop().time()
        lease = await self._leases().take(taking.shard_id, taking.seen)
        if lease is None:
            return  # another instance was faster
        if self._is_spent(lease.shard_id):
            await self._leases().end(lease)
            self._look_again()
            return
        logger.info("Shard %s of %s is read here from now on", lease.shard_id, self._table.name)
        work = ShardWorker(
            self._table.name,
            lease,
            self._cursor(lease),
            self._leases,
            self._batches,
            self._metrics,
            self._wire.now,
            self._pace,
            held_at=asked_at,
            # Who held it until now stops when it learns of the loss, and by itself after this time if it does not.
            wait=self._pace.lease_seconds if taking.alive else 0.0,
        )
        self._running[lease.shard_id] = work
        self._works[lease.shard_id] = asyncio.create_task(self._work(work, lease.shard_id), name=lease.shard_id)

    def _cursor(self, lease: Lease) -> Cursor:
        """Return what reads the shard: of a leader for both, else what the leader does not read."""
        cursor = ShardCursor(self._wire, self._stream, lease.shard_id, lease.checkpoint)
        if self.leader is None:
            return LeadingCursor(cursor, self.pages.open(self._stream, lease.shard_id, lease.checkpoint))
        patience = self._pace.follow_seconds
        return FollowingCursor(cursor, self.leader.pages, self._stream, lease.shard_id, patience=patience)

    async def _work(self, work: ShardWorker, shard_id: str) -> None:
        stream = self._stream
        try:
            await work.run()
        except ShardGone as gone:
            if shard_id not in self._gone:
                self._gone.add(shard_id)
                self._metrics.lost(self._table.name)
                logger.error("CHANGES MAY BE LOST: %s", gone)
            self._listing.expire()
            self._look_at = 0.0
        except Exception:
            logger.exception("Shard %s of %s went wrong; it is taken up again", shard_id, self._table.name)
        finally:
            if self._running.get(shard_id) is work:
                del self._works[shard_id], self._running[shard_id]
                self.pages.close(stream, shard_id)
        if work.ended:
            self._look_again()

    def _is_spent(self, shard_id: str) -> bool:
        """Whether it is gone although it is listed, and others come after it, which shall not wait for it for ever."""
        return shard_id in self._gone and any(shard.parent == shard_id for shard in self._shards)

    def _look_again(self) -> None:
        self._look_at = 0.0
        self._wake.set()

    async def _stop(self) -> None:
        tasks = list(self._works.values())
        if not tasks:
            return
        for work in self._running.values():
            work.stop()
        try:
            await asyncio.wait(tasks, timeout=self._pace.stop_seconds)
        finally:
            for task in tasks:
                task.cancel()
        await asyncio.wait(tasks)

    def _leases(self) -> Leases:
        leased = f"{self._stream} {self._group}" if self._group else self._stream
        return Leases(
            self._open_store(), CONSUMER_TABLE, leased, self._instance_id, self._now(), self._pace.lease_seconds
        )
