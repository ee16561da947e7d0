"""Processes that share a bus, each with a change feed, and the table that they follow."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from datetime import datetime
from typing import Any

import pytest

from datastore.change_streams.change_feed import ChangeFeed
from datastore.change_streams.change_subscription import ChangeSubscription
from datastore.change_streams.relay.bus import Bus
from datastore.change_streams.shards.shard_reader import Wire
from datastore.keyspace.sightings import BLIP
from datastore.queues import QueueLimits
from tests.support.changes import number_of
from tests.support.redis_server import RedisServer
from tests.support.scripted_stream import Script
from tests.support.until import until

KEYS = 7


class ReadCountingWire:
    """A wire that counts the reads of streams."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.reads = 0

    async def call(self, operation: str, payload: dict[str, Any], /, *, timeout: float) -> dict[str, Any]:  # noqa: ASYNC109
        self.reads += operation == "GetRecords"
        return await self._wire.call(operation, payload, timeout=timeout)

    def now(self) -> datetime:
        return self._wire.now()


class BusProcess:
    """A process on the bus: its wire, its bus connection and its change feed."""

    def __init__(self, wire: Wire, prefix: str, url: str, timeout_seconds: float, lease_seconds: float) -> None:
        self.wire = ReadCountingWire(wire)
        self.bus = Bus(url, prefix, timeout_seconds=timeout_seconds, lease_seconds=lease_seconds)
        self.problems: list[Exception] = []
        self.feed = ChangeFeed(
            self.wire,
            prefix=prefix,
            poll_interval=0.01,
            discover_interval=0.2,
            bus=self.bus,
            linger=0,
            on_error=lambda _, problem: self.problems.append(problem),
        )

    @property
    def source(self) -> Any:
        (source,) = self.bus._sources
        return source

    async def close(self) -> None:
        await self.feed.aclose()

    async def vanish(self) -> None:
        """Stop as a killed process does: without giving up its leases and without a message."""
        self.bus.is_away = True
        await self.close()


class Hosts:
    """Several processes and the table that they follow."""

    def __init__(self, wire: Wire, prefix: str, redis: RedisServer, stack: AsyncExitStack) -> None:
        self._wire = wire
        self._prefix = prefix
        self._redis = redis
        self._stack = stack
        self._written = 0

    def process(self, *, timeout_seconds: float = 5.0, lease_seconds: float = 60.0) -> BusProcess:
        process = BusProcess(self._wire, self._prefix, self._redis.url, timeout_seconds, lease_seconds)
        self._stack.push_async_callback(process.close)
        return process

    async def follow(self, process: BusProcess) -> ChangeSubscription[int]:
        return await self._stack.enter_async_context(
            process.feed.follow(BLIP, number_of, limits=QueueLimits(max_events=100_000))
        )

    async def write(self, many: int = 1) -> list[int]:
        """Write items. Return the numbers of the changes that the store acknowledged."""
        numbers = [*range(self._written, self._written + many)]
        self._written += many
        for number in numbers:
            item = {"PK": {"S": f"k{number % KEYS}"}, "SK": {"S": "x"}, "n": {"N": str(number)}}
            await self._wire.call("PutItem", {"TableName": self._prefix + BLIP.name, "Item": item}, timeout=10)
        return numbers


async def take_numbers(events: ChangeSubscription[int], many: int) -> list[int]:
    async with asyncio.timeout(50):
        return [await anext(events) for _ in range(many)]


def direct(*processes: BusProcess) -> bool:
    return all(process.source.is_direct for process in processes)


def on_bus(*processes: BusProcess) -> bool:
    """Return whether all of these processes read the bus, and exactly one of them relays."""
    sources = [process.source for process in processes]
    return all(one.position is not None for one in sources) and sum(one.is_relaying for one in sources) == 1


async def reads_settle(*processes: BusProcess) -> None:
    """Wait until only one of them reads the table's stream."""
    async with asyncio.timeout(50):
        while await _readers(processes) != 1:
            pass


async def _readers(processes: Sequence[BusProcess]) -> int:
    """Return how many processes read while streams were read twenty times."""
    before = [process.wire.reads for process in processes]

    def more() -> list[int]:
        return [process.wire.reads - was for process, was in zip(processes, before, strict=True)]

    await until(lambda: sum(more()) >= 20 and on_bus(*processes))
    return sum(reads > 1 for reads in more())


@pytest.fixture
async def hosts(script: Script, redis: RedisServer) -> AsyncIterator[Hosts]:
    async with AsyncExitStack() as stack:
        yield Hosts(script, "t__", redis, stack)
