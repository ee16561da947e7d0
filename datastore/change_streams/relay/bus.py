"""A process's client of the bus: one connection that reads the changes of all tables that the process follows."""

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import datetime
from functools import partial

from datastore.change_streams.change_source import ChangeSink
from datastore.change_streams.relay import RelayMetrics
from datastore.change_streams.relay.commands import (
    LEASE_SECONDS,
    TIMEOUT_SECONDS,
    BusUnavailable,
    RelayCommands,
    Relayed,
    entry_time_ms,
)
from datastore.change_streams.relay.follower import BusSource
from datastore.change_streams.relay.publisher import MakeReader, Page, new_id
from datastore.change_streams.shards.shard_reader import time_of
from datastore.primitives.retries import OutageLog
from datastore.primitives.tasks import cancel

RETRY_SECONDS = 0.5
# The interval between probes while no table is followed: nothing else would notice that Redis fails.
IDLE_SECONDS = 5.0

logger = logging.getLogger(__name__)


class Bus:
    """The bus at a `url`, for the tables of a `prefix`.

    While Redis fails, tables' streams are read directly, and Redis is probed every half second. While no table is
    followed, Redis is probed every five seconds.
    """

    #: Whether Redis has failed and no probe has succeeded since.
    is_away: bool

    def __init__(
        self,
        url: str,
        prefix: str,
        *,
        timeout_seconds: float = TIMEOUT_SECONDS,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        self.commands = RelayCommands(url, prefix, timeout_seconds=timeout_seconds, lease_seconds=lease_seconds)
        self.prefix = prefix
        self.instance = new_id()
        self.is_away = False
        self._relayed = self._received = self._outages = 0
        self._relay_lag = self._receipt_lag = 0.0
        self._sources: set[BusSource] = set()
        self._changed = asyncio.Event()
        self._outage = OutageLog(
            partial(logger.warning, "The bus is away, tables' streams are read directly: %s"),
            partial(logger.info, "The bus is back."),
        )
        self._tasks: list[asyncio.Task[None]] = []

    def source(
        self,
        table: str,
        sink: ChangeSink,
        make: MakeReader,
        on_error: Callable[[str, Exception], None],
        now: Callable[[], datetime],
    ) -> BusSource:
        """Return a source that follows a table. It creates readers of the table's stream on demand by `make`.

        `now` returns the store's time.
        """
        self._start_tasks()
        return BusSource(self, table, sink, make, on_error, now)

    async def start(self) -> None:
        """Probe Redis, so that `is_away` is known before the first table is followed, and again from time to time."""
        await self._probe()
        self._start_tasks()

    def _start_tasks(self) -> None:
        if not self._tasks:
            self._tasks = [asyncio.create_task(self._receive(), name="changes by the bus")]
            self._tasks.append(asyncio.create_task(self._probe_forever(), name="probe of the bus"))

    async def aclose(self) -> None:
        """Close the connection. All sources must be stopped before."""
        await cancel(*self._tasks)
        await self.commands.aclose()

    def register_metrics(self, metrics: RelayMetrics) -> None:
        """Add the metrics of the bus to a registry."""
        gauge, count = metrics.gauge, metrics.count
        gauge(
            "gateway_bus_away",
            "1 while tables' streams are read directly because Redis is away.",
            lambda: self.is_away,
        )
        gauge(
            "gateway_bus_tables_relayed",
            "Tables whose streams this process reads for all.",
            lambda: sum(source.is_relaying for source in self._sources),
        )
        gauge(
            "gateway_bus_tables_direct",
            "Tables whose streams this process reads for itself only.",
            lambda: self.direct_tables,
        )
        gauge(
            "gateway_bus_relay_lag_seconds",
            "Seconds from DynamoDB's time of a change, to about a second, to the bus: the last change.",
            lambda: self._relay_lag,
        )
        gauge(
            "gateway_bus_receipt_lag_seconds",
            "Seconds from the bus to this process, by both clocks: the last change.",
            lambda: self._receipt_lag,
        )
        count("gateway_bus_relayed", "Changes that this process read for all.", lambda: self._relayed)
        count("gateway_bus_received", "Changes that this process received from the bus.", lambda: self._received)
        count("gateway_bus_outages", "Outages of Redis.", lambda: self._outages)

    @property
    def direct_tables(self) -> int:
        """The number of tables whose streams this process reads for itself only."""
        return sum(source.is_direct for source in self._sources)

    # Called by the sources

    def mark_unavailable(self, problem: Exception) -> None:
        """Do without the bus until a probe succeeds. All sources are woken now, and when the probe succeeds."""
        if self.is_away:
            return
        self.is_away = True
        self._outages += 1
        self._outage.record_failure(problem)
        self._wake_all()

    def follow(self, source: BusSource) -> None:
        """Deliver the entries after its `position` to a source, while it has one."""
        self._sources.add(source)
        self._changed.set()

    def forget(self, source: BusSource) -> None:
        self._sources.discard(source)

    def count_relayed(self, page: Page, now: datetime) -> None:
        self._relayed += len(page)
        changed_at = time_of(page[-1])
        if changed_at is not None:
            self._relay_lag = max(0.0, (now - changed_at).total_seconds())

    def count_received(self, entry: Relayed, changes: int) -> None:
        self._received += changes
        self._receipt_lag = max(0.0, time.time() - entry_time_ms(entry.id) / 1000)

    # Background tasks

    async def _receive(self) -> None:
        while True:
            following = {source.table: source for source in self._sources if source.position is not None}
            if self.is_away or not following:
                self._changed.clear()
                await self._changed.wait()
                continue
            positions = {table: source.position for table, source in following.items() if source.position is not None}
            try:
                pages = await self.commands.read(positions)
            except BusUnavailable as problem:
                self.mark_unavailable(problem)
                continue
            except Exception as problem:  # without this task no follower would receive changes
                logger.exception("The entries of the bus cannot be read; tables' streams are read directly.")
                self.mark_unavailable(BusUnavailable(repr(problem)))
                continue
            for table, entries in pages.items():
                try:
                    await following[table].receive(positions[table], entries)
                except Exception as problem:  # other tables are not affected
                    following[table].mark_inconsistent(problem)

    async def _probe_forever(self) -> None:
        idle_seconds = 0.0
        while True:
            await asyncio.sleep(RETRY_SECONDS)
            idle_seconds = 0.0 if self._sources else idle_seconds + RETRY_SECONDS
            if self.is_away or idle_seconds >= IDLE_SECONDS:
                idle_seconds = 0.0
                await self._probe()

    async def _probe(self) -> None:
        try:
            await self.commands.probe()
        except Exception as problem:  # an unknown one would end the task, and the bus would stay away
            if self.is_away:
                self._outage.record_failure(problem)
            else:
                self.mark_unavailable(problem)
            return
        if self.is_away:
            self._outage.record_success()
            self.is_away = False
            self._changed.set()
            self._wake_all()

    def _wake_all(self) -> None:
        for source in self._sources:
            source.wake()
