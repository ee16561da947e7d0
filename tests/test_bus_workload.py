"""Whatever happens to Redis and to the processes on a bus, in any order: each follower sees each write once."""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest
from bus_hosts import Hosts, Process, take
from redis_server import RedisServer

from datastore.changes import Following
from datastore.database import Database

# BUS_EVENTS=200 takes some minutes.
EVENTS = int(os.environ.get("BUS_EVENTS", "10"))
KINDS = ("join", "join", "leave", "vanish", "flush", "restart", "hang", "trim", "copy", "go back", "nothing")


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    server = RedisServer()
    yield server
    server.close()


@pytest.fixture
async def hosts(database: Database, redis: RedisServer) -> AsyncIterator[Hosts]:
    async with AsyncExitStack() as stack:
        yield Hosts(database.client, database.prefix, redis, stack)


class Workload:
    """`seen` is what each process's follower has to see: all that was written since it began."""

    def __init__(self, hosts: Hosts, redis: RedisServer, chance: random.Random) -> None:
        self.hosts = hosts
        self.redis = redis
        self.chance = chance
        self.seen: dict[Process, tuple[Following[int], list[int]]] = {}
        self.checked: set[Process] = set()
        self.copy = redis.copy()

    async def write(self) -> None:
        written = await self.hosts.write(self.chance.randrange(6))
        for _, expected in self.seen.values():
            expected += written

    async def check(self, process: Process) -> None:
        """A few that were written just before it began may be seen, too, but in their order."""
        events, expected = self.seen[process]
        if not expected:
            return
        told = await take(events, 1)
        while told[-1] < expected[0] and process not in self.checked:
            told += await take(events, 1)
        told += await take(events, len(expected) - 1)
        assert told == [*range(told[0], expected[0]), *expected]
        expected.clear()
        self.checked.add(process)

    async def happen(self, kind: str) -> None:
        if kind == "join" and len(self.seen) < 4:
            process = self.hosts.process(patience=0.5, lease_seconds=2)
            self.seen[process] = await self.hosts.follow(process), []
        elif kind in ("leave", "vanish") and len(self.seen) > 1:
            process = self.chance.choice([*self.seen])
            await self.check(process)
            del self.seen[process]
            await (process.vanish() if kind == "vanish" else process.close())
        elif kind == "flush":
            self.redis.client.flushall()
        elif kind == "trim":
            for key in self.redis.client.scan_iter("*:changes"):
                self.redis.client.xtrim(key, maxlen=self.chance.randrange(3), approximate=False)
        elif kind == "copy":
            self.copy = self.redis.copy()
        elif kind == "go back":
            self.redis.go_back(self.copy)
        elif kind == "restart":
            self.redis.kill()
            await self.write()
            await asyncio.sleep(self.chance.choice((0, 1)))
            self.redis.start()
        elif kind == "hang":
            self.redis.pause()
            await self.write()
            await asyncio.sleep(self.chance.choice((0.1, 1)))
            self.redis.go_on()


@pytest.mark.timeout(60 + 5 * EVENTS)
async def test_each_write_is_seen_once_by_all_who_follow(hosts: Hosts, redis: RedisServer) -> None:
    workload = Workload(hosts, redis, random.Random(int(os.environ.get("BUS_SEED", "5"))))
    await workload.happen("join")
    for _ in range(EVENTS):
        await workload.write()
        await workload.happen(workload.chance.choice(KINDS))
        await workload.write()
        if workload.chance.random() < 0.5:
            await workload.check(workload.chance.choice([*workload.seen]))
    for process in workload.seen:
        await workload.check(process)
