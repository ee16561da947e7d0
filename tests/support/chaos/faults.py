"""Kills, pauses and restarts of the processes of a deployment, each until the process works again."""

import asyncio
import os
import signal
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

import aiohttp

from datastore.change_streams.leases import Leases
from datastore.change_streams.shards.shard_reader import stream_of
from datastore.errors import DomainError
from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.keyspace.feeds.pipeline import CONSUMER_TABLE
from datastore.keyspace.feeds.table import FEED
from datastore.matches.active_matches import ActiveMatches
from datastore.model.access_patterns import Table
from tests.support.chaos.schedule import ENGINE, ENGINE_PROCESS, KILL, PlannedFault
from tests.support.chaos.traffic import PROBE
from tests.support.deployment import CRICKETS, FEEDS, GATEWAYS, MATCH, STATISTICS, wait_for
from tests.support.loaded_deployment import LoadedDeployment

BACK_SECONDS = 90.0
ENDED_SECONDS = 40.0


class NotBack(AssertionError):
    """A process does not work again, or does not end."""


@dataclass(frozen=True)
class Outage:
    """A fault from its beginning to the moment at which the process worked again, by the monotonic clock.

    `ended` is the moment at which the process was started again, or continued.
    """

    fault: PlannedFault
    began: float
    ended: float
    back: float

    def overlaps(self, other: "Outage") -> bool:
        return self.began < other.back and other.began < self.back


class FaultInjector:
    """Injects faults, and records them in `outages`."""

    def __init__(self, world: LoadedDeployment, http: aiohttp.ClientSession) -> None:
        self._world = world
        self._deployment = world.deployment
        self._http = http
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.outages: list[Outage] = []

    def is_busy(self, process: str) -> bool:
        return self._lock_of(process).locked()

    def _lock_of(self, process: str) -> asyncio.Lock:
        return self._locks[ENGINE if process == ENGINE_PROCESS else process]

    async def inject(self, fault: PlannedFault) -> None:
        """Kill or pause a process. Return when it works again.

        Raises: `NotBack`.
        """
        async with self._lock_of(fault.process):
            began = time.monotonic()
            if fault.process == ENGINE_PROCESS:
                await self._harm_engine_process(fault)
            else:
                await self._harm(fault)
            ended = time.monotonic()
            await self._until(self._recovery_of(fault.process), f"{fault.name}: the process does not come back")
            self.outages.append(Outage(fault, began, ended, time.monotonic()))

    async def _harm(self, fault: PlannedFault) -> None:
        part = self._deployment.parts[fault.process]
        if fault.kind == KILL:
            await asyncio.to_thread(part.kill)
            await asyncio.sleep(fault.seconds)
            part.begin_unheard()
            return
        part.pause()
        try:
            await asyncio.sleep(fault.seconds)
        finally:
            part.go_on()

    async def _harm_engine_process(self, fault: PlannedFault) -> None:
        """Kill or pause the engine's own process. Its service starts it again."""

        async def is_signalled() -> bool:
            with suppress(ProcessLookupError):
                process = self._deployment.engine_child()
                if process:
                    os.kill(process, signal.SIGKILL if fault.kind == KILL else signal.SIGSTOP)
                    stopped.append(process)
            return bool(stopped)

        stopped: list[int] = []
        await self._until(is_signalled, "The engine's service does not start its process")
        if fault.kind != KILL:
            await asyncio.sleep(fault.seconds)
            with suppress(ProcessLookupError):
                os.kill(stopped[0], signal.SIGCONT)

    async def restart_in_turn(self) -> None:
        """Replace the gateways, then the pipelines, one after another, as docs/upgrading.md describes.

        Raises: `NotBack`.
        """
        for name in (*GATEWAYS, *FEEDS, STATISTICS):
            part = self._deployment.parts[name]

            async def has_ended() -> bool:
                return not self._deployment.parts[name].is_running  # noqa: B023 - awaited within this turn

            async with self._lock_of(name):
                part.terminate()
                await self._until(has_ended, f"{name} does not end", ENDED_SECONDS)
                part.begin_unheard()
                await self._until(self._recovery_of(name), f"restart {name}: the process does not come back")

    async def _until(self, holds: Callable[[], Awaitable[bool]], problem: str, seconds: float = BACK_SECONDS) -> None:
        try:
            await wait_for(holds, seconds)
        except AssertionError:
            raise NotBack(f"{problem} within {seconds:.0f} s.") from None

    # The checks of recovery

    def _recovery_of(self, process: str) -> Callable[[], Awaitable[bool]]:
        part = self._deployment.parts[ENGINE if process == ENGINE_PROCESS else process]
        works = part.is_ready
        if part is self._deployment.parts[ENGINE]:
            works = self._is_answered
        elif process in FEEDS:
            works = partial(self._is_read, FEED, FEEDS)
        elif process == STATISTICS:
            works = partial(self._is_read, EARTHQUAKES, (STATISTICS,))
        elif process in CRICKETS:
            works = self._is_match_polled

        async def is_back() -> bool:
            return part.is_running and await works()

        return is_back

    async def _is_answered(self) -> bool:
        """Return whether a query that reads the store is answered."""
        try:
            async with self._http.post(
                f"{self._deployment.urls[0]}/graphql", json=PROBE, timeout=aiohttp.ClientTimeout(3)
            ) as response:
                answer = await response.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return False
        return "errors" not in answer

    async def _is_read(self, table: Table, processes: Sequence[str]) -> bool:
        """Return whether running instances own the leases of a table's stream."""
        served = self._world.served
        assert served.database is not None
        try:
            stream = await stream_of(served.database.client, table.name, served.database.prefix)
            leases = await Leases(served.store(), CONSUMER_TABLE, stream, "nobody", datetime.now(UTC)).all()
        except DomainError:
            return False
        # A lease that was released has no owner.
        return bool(leases) and all(self._deployment.is_instance(lease.owner or "", processes) for lease in leases)

    async def _is_match_polled(self) -> bool:
        """Return whether a running instance polls the match."""
        try:
            active = await ActiveMatches(self._world.served.store(), datetime.now(UTC)).latest(MATCH)
        except DomainError:
            return False
        return active is not None and active.instance_id in {self._deployment.parts[name].instance for name in CRICKETS}
