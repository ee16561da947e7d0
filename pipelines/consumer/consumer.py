"""A consumer of a table's stream. Any number of instances share the shards; one instance at a time reads a shard.

Each shard has a lease (datastore/change_streams/leases.py). An instance renews its leases while it works, acquires free
and expired leases, and releases its leases when it stops.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from datastore.change_streams.leases import Lease, Leases
from datastore.change_streams.shards.listing import ShardListing
from datastore.change_streams.shards.shard_reader import ListedShard, ShardCursor, ShardGone, Wire, stream_of
from datastore.dynamodb.retry.backoff import Backoff
from datastore.keyspace.feeds.pipeline import CONSUMER_TABLE
from datastore.model.access_patterns import Table
from datastore.primitives.retries import OutageLog, retry
from datastore.primitives.tasks import cancel
from datastore.session.store import Store
from pipelines.consumer.batches import RETRIES, BatchProcessor
from pipelines.consumer.failures import is_store_error
from pipelines.consumer.handlers import Handler
from pipelines.consumer.lease_balancer import LeaseBalancer, LeaseCandidate
from pipelines.consumer.metrics import StreamMetrics
from pipelines.consumer.shard_worker import ConsumerIntervals, ShardWorker
from pipelines.consumer.shared_pages import Cursor, FollowingCursor, LeadingCursor, SharedPages

# The pause before the next listing: AWS may list the children of a shard a moment after it has ended.
MISSING_CHILD_SECONDS = 1.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Instance:
    """The process as the consumers in it identify it, and its access to the tables."""

    wire: Wire
    prefix: str
    #: Opens a store for each piece of work.
    open_store: Callable[[], Store]
    #: Is unique to this run.
    instance_id: str
    #: Dates stored items and metrics. No clock decides which consumer reads a shard.
    now: Callable[[], datetime]


class Consumer:
    """A consumer, which passes its share of a table's stream to the handlers.

    Consumers of different groups read a stream independently: each group has its own leases and checkpoints.

    A consumer with a `leader`, the consumer of another group in this process, works on the leader's shards and takes
    the pages that the leader reads (see `shared_pages`). It leaves shards that the leader's group reads in another
    process to the consumer there, and takes shards that the leader's group does not read.
    """

    #: The pages that this instance shares with a consumer that follows it.
    pages: SharedPages
    #: The shards that other instances of the group hold.
    elsewhere: frozenset[str]
    #: The consumer whose pages this one takes.
    leader: "Consumer | None"

    def __init__(
        self,
        instance: Instance,
        table: Table,
        handlers: Sequence[Handler],
        metrics: StreamMetrics,
        *,
        group: str = "",
        leader: "Consumer | None" = None,
        pace: ConsumerIntervals = ConsumerIntervals(),  # noqa: B008 - frozen
        retries: Backoff = RETRIES,
    ) -> None:
        self.pages = SharedPages()
        self.elsewhere = frozenset()
        self.leader = leader
        self._instance = instance
        self._group = group
        self._wire = instance.wire
        self._table = table
        self._full_name = instance.prefix + table.name
        self._batches = BatchProcessor(
            handlers, instance.open_store, instance.now, metrics, retries=retries, outage=pace.outage
        )
        self._metrics = metrics
        self._pace = pace
        self._stream = ""
        self._listing = ShardListing(self._wire, "", pace.discover_seconds)
        self._shards: Sequence[ListedShard] = ()
        self._childless: set[str] = set()  # the shards that have ended, and whose children are not listed yet
        self._refresh_at = 0.0
        self._balancer = LeaseBalancer(instance.instance_id, pace.lease_seconds)
        self._missing_shards: set[str] = set()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._workers: dict[str, ShardWorker] = {}
        self._wake = asyncio.Event()

    @property
    def working(self) -> set[str]:
        """The ids of the shards that this instance reads."""
        return set(self._tasks)

    async def run(self) -> None:
        """Consume until cancelled, then finish the current batches and release the leases."""
        try:
            await self._reconcile_forever()
        finally:
            await self._stop()

    async def _reconcile_forever(self) -> None:
        outage = OutageLog(self._log_outage)
        while True:
            await retry(self._reconcile, self._pace.outage.endless_delays(), lambda _: True, outage)
            seconds = min(self._pace.renew_seconds, self._refresh_at - asyncio.get_running_loop().time())
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
            self._wake.clear()

    def _log_outage(self, problem: Exception) -> None:
        if is_store_error(problem):
            logger.warning("The stream of %s is not available; the consumer tries again: %s", self._full_name, problem)
        else:
            logger.error("Assigning the shards of %s failed; it is retried", self._full_name, exc_info=problem)

    async def _reconcile(self) -> None:
        """List the shards and leases, and acquire the leases that belong to this instance's share."""
        loop = asyncio.get_running_loop()
        if loop.time() >= self._refresh_at:
            await self._refresh_shards()
            self._refresh_at = loop.time() + self._pace.discover_seconds
        read_at = loop.time()
        leases = await self._leases().all()
        self._balancer.observe(leases, loop.time())
        if self._lacks_children(leases):
            self._refresh_at = min(self._refresh_at, loop.time() + MISSING_CHILD_SECONDS)
        others = {lease.shard_id for lease in leases if self._balancer.is_held_by_other(lease, read_at)}
        self.elsewhere = frozenset(others - self._tasks.keys())
        for candidate in self._to_acquire(leases, read_at):
            await self._acquire(candidate)

    def _to_acquire(self, leases: Sequence[Lease], read_at: float) -> list[LeaseCandidate]:
        """Return the leases to acquire. With a leader, release shards that its group reads in another process."""
        if self.leader is None:
            return self._balancer.to_acquire(self._shards, leases, self._tasks.keys(), read_at)
        elsewhere = self.leader.elsewhere
        for shard_id in self._workers.keys() & elsewhere:
            self._workers[shard_id].stop()
        free = self._balancer.all_free(self._shards, leases, self._tasks.keys(), read_at)
        return [candidate for candidate in free if candidate.shard_id not in elsewhere]

    def _lacks_children(self, leases: Sequence[Lease]) -> bool:
        """Return whether no shard is listed, or a shard has ended and its children are not listed yet."""
        leaves = {shard.id for shard in self._shards} - {shard.parent for shard in self._shards}
        self._childless = {lease.shard_id for lease in leases if lease.ended and lease.shard_id in leaves}
        return not self._shards or bool(self._childless)

    async def _refresh_shards(self) -> None:
        stream = await stream_of(self._wire, self._table.name, self._instance.prefix)
        if stream != self._stream:
            if self._stream:
                logger.error("%s HAS ANOTHER STREAM: the consumer reads it from the start.", self._full_name)
                await self._stop()
            self._stream = stream
            self._listing, self._childless = ShardListing(self._wire, stream, self._pace.discover_seconds), set()
            self._balancer = LeaseBalancer(self._instance.instance_id, self._pace.lease_seconds)
            self._missing_shards.clear()
        self._shards = await self._listing.refresh(self._childless)

    async def _acquire(self, candidate: LeaseCandidate) -> None:
        read_at = asyncio.get_running_loop().time()
        lease = await self._leases().acquire(candidate.shard_id, candidate.seen)
        if lease is None:
            return  # another instance was faster
        if self._is_trimmed(lease.shard_id):
            await self._leases().end(lease)
            self._refresh_soon()
            return
        logger.info("This instance reads shard %s of %s from now on", lease.shard_id, self._full_name)
        worker = ShardWorker(
            self._table.name,
            self._full_name,
            lease,
            self._cursor(lease),
            self._leases,
            self._batches,
            self._metrics,
            self._wire.now,
            self._pace,
            held_at=read_at,
            # The former holder stops when it notices the loss, at the latest when its lease expires.
            wait=self._pace.lease_seconds if candidate.may_be_active else 0.0,
        )
        self._workers[lease.shard_id] = worker
        self._tasks[lease.shard_id] = asyncio.create_task(self._work(worker, lease.shard_id), name=lease.shard_id)

    def _cursor(self, lease: Lease) -> Cursor:
        """Return a cursor that publishes its pages; with a leader, a cursor that takes the leader's pages."""
        cursor = ShardCursor(self._wire, self._stream, lease.shard_id, lease.checkpoint)
        if self.leader is None:
            return LeadingCursor(cursor, self.pages.open(self._stream, lease.shard_id, lease.checkpoint))
        page_timeout = self._pace.follow_seconds
        return FollowingCursor(cursor, self.leader.pages, self._stream, lease.shard_id, page_timeout=page_timeout)

    async def _work(self, worker: ShardWorker, shard_id: str) -> None:
        stream = self._stream
        try:
            await worker.run()
        except ShardGone as gone:
            if shard_id not in self._missing_shards:
                self._missing_shards.add(shard_id)
                self._metrics.changes_lost(self._table.name)
                logger.error("CHANGES OF %s MAY BE LOST: %s", self._full_name, gone)
            self._listing.expire()
            self._refresh_at = 0.0
        except Exception:
            logger.exception("Reading shard %s of %s failed; it is retried", shard_id, self._full_name)
        finally:
            if self._workers.get(shard_id) is worker:
                del self._tasks[shard_id], self._workers[shard_id]
                self.pages.close(stream, shard_id)
        if worker.ended:
            self._refresh_soon()

    def _is_trimmed(self, shard_id: str) -> bool:
        """Return whether a listed shard no longer exists and has children, which must not wait for it forever."""
        return shard_id in self._missing_shards and any(shard.parent == shard_id for shard in self._shards)

    def _refresh_soon(self) -> None:
        self._refresh_at = 0.0
        self._wake.set()

    async def _stop(self) -> None:
        tasks = list(self._tasks.values())
        if not tasks:
            return
        for worker in self._workers.values():
            worker.stop()
        try:
            await asyncio.wait(tasks, timeout=self._pace.stop_seconds)
        finally:
            await cancel(*tasks)

    def _leases(self) -> Leases:
        instance, leased = self._instance, f"{self._stream} {self._group}" if self._group else self._stream
        store, now = instance.open_store(), instance.now()
        return Leases(store, CONSUMER_TABLE, leased, instance.instance_id, now, self._pace.lease_seconds)
