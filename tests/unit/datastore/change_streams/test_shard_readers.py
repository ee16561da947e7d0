"""More than two processes read one shard: each lowers its rate, and no subscriber misses a change or gets one twice."""

import asyncio
import heapq
import random
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import replace

import aiohttp
import pytest

from datastore.change_streams.shards.read_pace import (
    FIRST_INTERVAL_SECONDS,
    MAX_CONCURRENCY,
    MAX_INTERVAL_SECONDS,
    ReadPace,
    StreamReads,
)
from datastore.database import StoreOptions
from datastore.dynamodb.http1 import HttpLimits
from datastore.keyspace.earthquakes import EARTHQUAKES
from server.settings import Settings
from tests.support.bus_gateways import metric_value
from tests.support.earthquake_samples import put_raw
from tests.support.fault_proxy import Proxy
from tests.support.ports import free_port
from tests.support.redis_server import RedisServer, redis
from tests.support.served import Clock, Listener, Served, Tidied, listening
from tests.support.shard_limits import ShardLimits, Shared
from tests.support.until import until

__all__ = ["redis"]

QUAKES = "subscription { earthquakeDetected { eventId } }"
GATEWAYS = 3
# As often as on AWS.
POLL_SECONDS = 0.25
HOUR = 3600.0


class Readers:
    """Several readers of one shard, at a virtual clock."""

    def __init__(self, many: int, seed: int, later: int = 0) -> None:
        rng = random.Random(seed)
        self.now = 0.0
        self.read, self.throttled = Counter[int](), Counter[int]()
        self._shard = Shared(lambda: self.now)
        self._paces = [ReadPace(POLL_SECONDS, rng.random) for _ in range(many + later)]
        self._due = [(0.0 if number < many else 60.0, number) for number in range(many + later)]

    def run(self, until: float) -> None:
        while self._due[0][0] < until:
            self.now, number = heapq.heappop(self._due)
            pace = self._paces[number]
            if self._shard.admits():
                pace.answered()
                self.read[number] += 1
                pause = pace.pause()
            else:
                self.throttled[number] += 1
                pause = pace.throttled()
            heapq.heappush(self._due, (self.now + pause, number))


@pytest.mark.parametrize(
    ("many", "most_seconds", "most_throttled"),
    [(2, 0.7, 0.02), (3, 1.0, 0.03), (5, 1.8, 0.04), (10, 4, 0.06), (20, 8, 0.08), (30, 12, 0.1)],
)
def test_readers_share_the_reads_of_a_shard_and_few_calls_are_throttled(
    many: int, most_seconds: float, most_throttled: float
) -> None:
    """Check the figures in docs/reliability.md."""
    readers = Readers(many, seed=many)
    readers.run(600)
    readers.read.clear()
    readers.throttled.clear()
    readers.run(600 + HOUR)

    total = readers.read.total()
    assert many * HOUR / total < most_seconds
    assert min(readers.read.values()) > HOUR / MAX_INTERVAL_SECONDS
    assert readers.throttled.total() < most_throttled * (total + readers.throttled.total())


@pytest.mark.parametrize("many", [10, 30])
def test_readers_that_begin_at_once_are_throttled_a_few_times_each(many: int) -> None:
    readers = Readers(many, seed=many)
    readers.run(600)
    assert readers.throttled.total() < 15 * many


def test_readers_that_come_later_get_their_share() -> None:
    readers = Readers(1, seed=4, later=2)
    readers.run(120)
    readers.read.clear()
    readers.run(1920)
    assert min(readers.read.values()) > readers.read.total() / 3 / 2
    assert len(readers.read) == 3


def test_a_reader_without_others_reads_at_its_configured_rate() -> None:
    readers = Readers(1, seed=1)
    readers.run(100)
    assert readers.throttled[0] == 0
    assert readers.read[0] == pytest.approx(400, rel=0.02)


def test_a_pace_returns_to_its_interval_and_is_bounded() -> None:
    pace = ReadPace(POLL_SECONDS, lambda: 0.5)
    assert pace.throttled() == 2 * POLL_SECONDS > FIRST_INTERVAL_SECONDS
    for _ in range(20):
        pace.throttled()
    assert pace.interval == MAX_INTERVAL_SECONDS
    assert 600 < seconds_to_full_rate(pace) < 700


def seconds_to_full_rate(pace: ReadPace) -> float:
    """Return the time that a reader takes once it is the only one."""
    seconds = 0.0
    while pace.is_slowed:
        seconds += pace.pause()
        pace.answered()
    assert pace.interval == POLL_SECONDS
    return seconds


async def test_reads_of_many_shards_leave_connections_to_others() -> None:
    reads, started, go_on = StreamReads(), 0, asyncio.Event()

    async def read() -> int:
        nonlocal started
        started += 1
        await go_on.wait()
        return 1

    waiting = [asyncio.ensure_future(reads.read("t", ReadPace(1.0), read)) for _ in range(3 * MAX_CONCURRENCY)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert started == MAX_CONCURRENCY < HttpLimits().connections / 2
    go_on.set()
    assert await asyncio.gather(*waiting) == [1] * 3 * MAX_CONCURRENCY


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, poll_interval=POLL_SECONDS)


@pytest.fixture
def limits() -> ShardLimits:
    return ShardLimits()


async def gateways(
    stack: AsyncExitStack, settings: Settings, engine: str, options: StoreOptions, clock: Clock, limits: ShardLimits
) -> list[Served]:
    """Start three gateways, each behind its own proxy, that share the limits of the engine's shards."""
    http = await stack.enter_async_context(aiohttp.ClientSession())
    found = []
    for number in range(GATEWAYS):
        proxy = await stack.enter_async_context(Proxy(engine))
        proxy.always = limits.of(f"gateway {number}")
        another = replace(settings, port=free_port())
        gateway = Tidied(another, replace(options, store=proxy.url), now=clock)
        await stack.enter_async_context(gateway.running())
        await stack.enter_async_context(listening(gateway))
        found.append(Served(gateway, another.url, http, clock))
    return found


async def received_ids(listener: Listener, many: int) -> list[str]:
    return [(await listener.event())["earthquakeDetected"]["eventId"] for _ in range(many)]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    logger = "datastore.change_streams.shards.read_pace"
    found = [record.getMessage() for record in caplog.records if record.name == logger]
    return [message for message in found if message.startswith("GetRecords is throttled on the stream of")]


@pytest.mark.proof
async def test_gateways_without_a_bus_share_a_shard_and_deliver_each_event_once(
    settings: Settings,
    engine: str,
    store_options: StoreOptions,
    clock: Clock,
    limits: ShardLimits,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with AsyncExitStack() as stack:
        three = await gateways(stack, settings, engine, store_options, clock, limits)
        listeners = [await served.listen(QUAKES) for served in three]
        for served in three:
            await served.settle(EARTHQUAKES)
        await until_all_are_throttled(limits, 1)
        ids = [f"us{number}" for number in range(9)]
        for number, id in enumerate(ids):
            await put_raw(three[number % GATEWAYS], id)

        assert [await received_ids(listener, len(ids)) for listener in listeners] == [ids] * GATEWAYS
        assert [await metric_value(served, "gateway_stream_shards_read") for served in three] == [1] * GATEWAYS
        assert min([await metric_value(served, "gateway_stream_reads_throttled_total") for served in three]) > 0
        assert (
            min([await metric_value(served, "gateway_stream_read_interval_seconds") for served in three]) > POLL_SECONDS
        )
        for listener in listeners:
            await listener.socket.close()
    assert len(warnings(caplog)) == GATEWAYS
    assert "Set GATEWAY_BUS" in warnings(caplog)[0]


@pytest.mark.proof
async def test_one_gateway_reads_by_the_bus_and_all_share_the_shard_while_redis_is_away(
    settings: Settings,
    redis: RedisServer,
    engine: str,
    store_options: StoreOptions,
    clock: Clock,
    limits: ShardLimits,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with AsyncExitStack() as stack:
        three = await gateways(stack, replace(settings, bus=redis.url), engine, store_options, clock, limits)
        listeners = [await served.listen(QUAKES) for served in three]
        for served in three:
            await served.settle(EARTHQUAKES)
        ids = [f"us{number}" for number in range(15)]
        for id in ids[:5]:
            await put_raw(three[0], id)
        by_bus = [await received_ids(listener, 5) for listener in listeners]
        assert (len(limits.read), limits.throttled.total(), warnings(caplog)) == (1, 0, [])

        redis.kill()
        await until_all_are_throttled(limits, 1)
        for id in ids[5:10]:
            await put_raw(three[0], id)
        directly = [await received_ids(listener, 5) for listener in listeners]
        redis.start()
        await until(lambda: [reads_directly(served) for served in three] == [False] * GATEWAYS)
        for id in ids[10:]:
            await put_raw(three[0], id)
        again = [await received_ids(listener, 5) for listener in listeners]

        assert (by_bus, directly, again) == ([ids[:5]] * GATEWAYS, [ids[5:10]] * GATEWAYS, [ids[10:]] * GATEWAYS)
        assert sum([await metric_value(served, "gateway_stream_shards_read") for served in three]) == 1
        for listener in listeners:
            await listener.socket.close()


def reads_directly(served: Served) -> bool:
    bus = served.gateway.bus
    assert bus is not None
    return bus.is_away or bus.direct_tables > 0


async def until_all_are_throttled(limits: ShardLimits, times: int) -> None:
    await until(lambda: len(limits.throttled) == GATEWAYS and min(limits.throttled.values()) >= times)
