"""Random failures of Redis and of the processes on a bus: each follower sees each write once."""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial

import pytest

from datastore.change_streams.change_subscription import ChangeSubscription
from datastore.database import Database
from datastore.keyspace.sightings import BLIP
from tests.support.bus_hosts import KEYS, BusProcess, Hosts, take_numbers
from tests.support.redis_server import RedisServer, redis
from tests.support.split_stream import SplitStream

__all__ = ["redis"]

# BUS_EVENTS=200 takes some minutes.
EVENTS = int(os.environ.get("BUS_EVENTS", "10"))
KINDS = ("join", "join", "leave", "vanish", "flush", "restart", "hang", "trim", "copy", "go back", "split", "split")


@pytest.fixture
def stream(database: Database) -> SplitStream:
    return SplitStream(database.client)


@pytest.fixture
async def hosts(stream: SplitStream, database: Database, redis: RedisServer) -> AsyncIterator[Hosts]:
    async with AsyncExitStack() as stack:
        yield Hosts(stream, database.prefix, redis, stack)


@dataclass(eq=False)
class RelayFollower:
    """A subscriber of one process. `expected` holds the writes that it has to see: those since its start or its last
    check.

    `last` is the latest number of each key.
    """

    events: ChangeSubscription[int]
    expected: list[int] = field(default_factory=list)
    last: dict[int, int] = field(default_factory=dict)

    async def check(self) -> None:
        """Check that all writes of each key arrive in order.

        Some that were written before the start may arrive, too, each once.
        """
        missing = set(self.expected)
        self.expected.clear()
        while missing:
            (number,) = await take_numbers(self.events, 1)
            key = number % KEYS
            assert self.last.get(key) in (None, number - KEYS)
            self.last[key] = number
            missing.discard(number)


class RelayWorkload:
    def __init__(
        self, hosts: Hosts, split: Callable[[random.Random], Awaitable[None]], redis: RedisServer, rng: random.Random
    ) -> None:
        self.hosts = hosts
        self.split = split
        self.redis = redis
        self.rng = rng
        self.followers: dict[BusProcess, RelayFollower] = {}
        self.copy = redis.copy()

    async def write(self, many: int | None = None) -> None:
        written = await self.hosts.write(self.rng.randrange(6) if many is None else many)
        for follower in self.followers.values():
            follower.expected += written

    async def happen(self, kind: str) -> None:
        if kind == "join" and len(self.followers) < 4:
            process = self.hosts.process(timeout_seconds=0.5, lease_seconds=2)
            self.followers[process] = RelayFollower(await self.hosts.follow(process))
        elif kind in ("leave", "vanish") and len(self.followers) > 1:
            process = self.rng.choice([*self.followers])
            await self.followers.pop(process).check()
            await (process.vanish() if kind == "vanish" else process.close())
        elif kind == "flush":
            self.redis.client.flushall()
        elif kind == "trim":
            for key in self.redis.client.scan_iter("*:changes"):
                self.redis.client.xtrim(key, maxlen=self.rng.randrange(3), approximate=False)
        elif kind == "copy":
            self.copy = self.redis.copy()
        elif kind == "go back":
            self.redis.go_back(self.copy)
        elif kind == "restart":
            self.redis.kill()
            await self.write()
            await asyncio.sleep(self.rng.choice((0, 1)))
            self.redis.start()
        elif kind == "hang":
            self.redis.pause()
            await self.write()
            await asyncio.sleep(self.rng.choice((0.1, 1)))
            self.redis.go_on()
        elif kind == "split":  # with records to be read before and after it
            await self.write(2 * KEYS)
            await self.split(self.rng)
            await self.write(2 * KEYS)


@pytest.mark.timeout(60 + 5 * EVENTS)
async def test_each_write_is_seen_once_by_all_subscribers(
    hosts: Hosts, stream: SplitStream, database: Database, redis: RedisServer
) -> None:
    split = partial(stream.split, database.prefix + BLIP.name)
    workload = RelayWorkload(hosts, split, redis, random.Random(int(os.environ.get("BUS_SEED", "5"))))
    await workload.happen("join")
    for _ in range(EVENTS):
        await workload.write()
        await workload.happen(workload.rng.choice(KINDS))
        await workload.write()
        if workload.rng.random() < 0.5:
            await workload.rng.choice([*workload.followers.values()]).check()
    for _ in range(2):  # a repeated change would come before the next write
        await workload.write(KEYS)
        for follower in workload.followers.values():
            await follower.check()
