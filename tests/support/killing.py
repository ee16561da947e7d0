"""Kills processes of a deployment at random moments, restarts them, and measures the time of recovery."""

import asyncio
import os
import random
import signal
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median

import aiohttp

from datastore.change_streams.leases import Leases
from datastore.change_streams.shards.shard_reader import stream_of
from datastore.errors import DomainError
from datastore.keyspace.feeds.pipeline import CONSUMER_TABLE
from datastore.keyspace.feeds.table import FEED
from datastore.matches.active_matches import ActiveMatches
from tests.support.deployment import CRICKETS, FEEDS, GATEWAYS, MATCH, Deployment, wait_for
from tests.support.remote import Remote

# A service manager restarts this fast.
RESTART_SECONDS = 0.1


@dataclass(frozen=True)
class Outage:
    """The time from a kill to the recovery, by the monotonic clock."""

    began: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.began

    def overlaps(self, other: "Outage") -> bool:
        return self.began < other.ended and other.began < self.ended


class Killer:
    """Kills each kind of process `kills` times, with pauses of `pause` seconds, all kinds concurrently."""

    def __init__(self, deployment: Deployment, served: Remote, http: aiohttp.ClientSession, seed: int) -> None:
        self.deployment = deployment
        self.served = served
        self.http = http
        self.outages: dict[str, list[Outage]] = defaultdict(list)
        self._seed = seed
        self._kinds: dict[str, Callable[[random.Random], Awaitable[Callable[[], Awaitable[bool]]]]] = {
            "engine": self._engine,
            "engine's service": self._service,
            "gateway": self._gateway,
            "feed pipeline": self._feed,
            "cricket pipeline": self._cricket,
            "Redis": self._redis,
        }

    async def run(self, kills: int, pause: float) -> None:
        async with asyncio.TaskGroup() as tasks:
            for kind in self._kinds:
                tasks.create_task(self._kill_again_and_again(kind, kills, pause))

    async def _kill_again_and_again(self, kind: str, kills: int, pause: float) -> None:
        rng = random.Random(f"{self._seed} {kind}")
        for _ in range(kills):
            await asyncio.sleep(rng.uniform(0, 2 * pause))
            began = time.monotonic()
            await wait_for(await self._kinds[kind](rng), 120)
            self.outages[kind].append(Outage(began, time.monotonic()))

    def alone(self, kind: str) -> Iterator[Outage]:
        """Yield the outages during which no other kind was down."""
        others = [outage for other, outages in self.outages.items() if other != kind for outage in outages]
        return (outage for outage in self.outages[kind] if not any(map(outage.overlaps, others)))

    def report(self) -> str:
        lines = [f"{'killed':<18} {'times':>5} {'median s':>9} {'p90 s':>7} {'longest s':>10}"]
        for kind, outages in [*self.outages.items(), ("engine alone", [*self.alone("engine")])]:
            times = sorted(outage.seconds for outage in outages)
            if times:
                p90 = times[int(0.9 * (len(times) - 1))]
                lines.append(f"{kind:<18} {len(times):>5} {median(times):>9.2f} {p90:>7.2f} {times[-1]:>10.2f}")
        return "\n".join(lines)

    # Each method kills a process of its kind and restarts it. It returns the check of its recovery.

    async def _engine(self, rng: random.Random) -> Callable[[], Awaitable[bool]]:
        """Kill the engine's own process; its service restarts it."""

        async def is_killed() -> bool:
            process = self.deployment.engine_child()
            if not process:
                return False
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:  # its service was killed at this moment
                return False
            return True

        await wait_for(is_killed, 120)
        return self._answered

    async def _service(self, rng: random.Random) -> Callable[[], Awaitable[bool]]:
        await self._again("engine")
        return self._answered

    async def _gateway(self, rng: random.Random) -> Callable[[], Awaitable[bool]]:
        name = rng.choice(GATEWAYS)
        await self._again(name)
        return lambda: self._answers(self.deployment.ports[name])

    async def _redis(self, rng: random.Random) -> Callable[[], Awaitable[bool]]:
        await self._again("redis")
        return self._answered

    async def _feed(self, rng: random.Random) -> Callable[[], Awaitable[bool]]:
        """Kill the instance that reads the stream or the one on standby."""
        await self._again(rng.choice(FEEDS))
        return self._feed_is_read

    async def _cricket(self, rng: random.Random) -> Callable[[], Awaitable[bool]]:
        await self._again(rng.choice(CRICKETS))
        return self._match_is_polled

    async def _again(self, name: str) -> None:
        part = self.deployment.parts[name]
        part.kill()
        await asyncio.sleep(RESTART_SECONDS)
        part.begin_unheard()

    # The checks of recovery

    async def _answered(self) -> bool:
        """Return whether the fastest gateway answers a query: one that has just
        started may hold a query for seconds.
        """
        asked = [asyncio.create_task(self._answers(self.deployment.ports[name])) for name in GATEWAYS]
        try:
            for first in asyncio.as_completed(asked):
                if await first:
                    return True
            return False
        finally:
            for one in asked:
                one.cancel()

    async def _answers(self, port: int) -> bool:
        body = {"query": '{ earthquake(id: "us0") { eventId } }'}
        try:
            async with self.http.post(
                f"http://127.0.0.1:{port}/graphql", json=body, timeout=aiohttp.ClientTimeout(3)
            ) as response:
                answer = await response.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return False
        return "errors" not in answer

    async def _feed_is_read(self) -> bool:
        """Return whether a running instance owns the lease."""
        assert self.served.database is not None
        try:
            stream = await stream_of(self.served.database.client, FEED.name, self.served.database.prefix)
            leases = await Leases(self.served.store(), CONSUMER_TABLE, stream, "nobody", datetime.now(UTC)).all()
        except DomainError:
            return False
        owners = {lease.owner for lease in leases}
        return bool(owners) and owners <= self.deployment.instances_of_feed()

    async def _match_is_polled(self) -> bool:
        """Return whether a running instance polls the match."""
        try:
            active = await ActiveMatches(self.served.store(), datetime.now(UTC)).latest(MATCH)
        except DomainError:
            return False
        return active is not None and active.instance_id in {self.deployment.parts[name].instance for name in CRICKETS}
