"""The cost of the relay through Redis: CPU of the leader and of the receivers, and latency from a write to an event.

The CPU is that of processes that do nothing else (benchmarks/bus_receiver.py), at the same time on the same changes.
"""

import asyncio
import shutil
import socket
import statistics
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from redis.asyncio import Redis

from benchmarks.bus_receiver import ReceiverState, receiver, receiver_state
from benchmarks.child import Child
from benchmarks.measuring import median_ratio
from benchmarks.rivals import PeersMissing
from benchmarks.text_table import table
from datastore.change_streams.change import Change
from datastore.change_streams.change_feed import ChangeFeed
from datastore.change_streams.change_subscription import ChangeSubscription
from datastore.change_streams.relay.bus import Bus
from datastore.change_streams.shards.shard_reader import Wire
from datastore.database import Database, StoreOptions, open_database
from datastore.dynamodb.codec import encode_item
from datastore.keyspace.sightings import BLIP
from datastore.redis.failures import REDIS_AWAY

POLL_SECONDS = 0.02
AWS_POLL_SECONDS = 0.25
GATEWAYS = (1, 2, 4)
# The rates in changes per second, the most calls per second that write them, and the number of different items.
RATES = (20, 500)
WRITES = 20
ITEMS = 100
WARM_UP = 1000
ARRIVAL_SECONDS = 60.0
KINDS = ("direct", "relayer", "receiver", "redis")
# A lower rate is measured with as many changes as this one, and therefore takes longer.
LEAST_RATE = 50

# For each round its seconds, and the CPU seconds by kind of process.
Rows = Sequence[tuple[float, Mapping[str, float]]]


@dataclass(frozen=True, slots=True)
class Cost:
    """The CPU by kind of process, including Redis, at one rate of changes."""

    #: Changes per second.
    rate: int
    changes: int
    #: CPU ms for 1,000 changes by round, minus the median CPU without changes.
    above_idle: dict[str, list[float]]
    #: The median share of a CPU in total.
    share: dict[str, float]


@dataclass(frozen=True, slots=True)
class BusResult:
    """The result of the benchmark. Latencies are in ms from an acknowledged write to an event, as p50 and p99."""

    costs: list[Cost]
    #: The share of a CPU without changes, by kind of process.
    idle: dict[str, float]
    without_bus: tuple[float, float]
    at_leader: tuple[float, float]
    elsewhere: tuple[float, float]
    #: GetRecords calls per second without a bus and with it, by number of gateways.
    reads: dict[str, tuple[float, float]]


class IdleStream:
    """A fake client of a stream with one shard and no changes. It counts the GetRecords calls."""

    reads = 0

    async def call(self, operation: str, payload: dict[str, Any], /, *, timeout: float) -> dict[str, Any]:  # noqa: ASYNC109
        await asyncio.sleep(0)
        if operation == "DescribeTable":
            return {"Table": {"LatestStreamArn": "arn"}}
        if operation == "DescribeStream":
            return {"StreamDescription": {"Shards": [{"ShardId": "shard"}]}}
        if operation == "GetShardIterator":
            return {"ShardIterator": "0"}
        self.reads += 1
        return {"Records": [], "NextShardIterator": "0"}

    def now(self) -> datetime:
        return datetime.now(UTC)


async def measure(rounds: int, effort: float) -> BusResult:
    """Measure costs, latencies and reads. Raises `PeersMissing` without a redis-server."""
    with _redis() as url:
        seconds = max(1.0, 4 * effort)
        costs, idle = await _costs(url, rounds, seconds)
        writes = max(20, round(300 * effort))
        without_bus, _ = await _latencies(None, writes)
        at_leader, elsewhere = await _latencies(url, writes)
        reads = {
            str(gateways): (await _reads(None, gateways, seconds), await _reads(url, gateways, seconds))
            for gateways in GATEWAYS
        }
    return BusResult(costs, idle, without_bus, at_leader, elsewhere, reads)


@contextmanager
def _redis() -> Iterator[str]:
    """Start an empty Redis, and yield its URL."""
    binary = shutil.which("redis-server")
    if binary is None:
        raise PeersMissing("redis-server is needed to measure the bus.")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([binary, "--port", str(port), "--save", ""], stdout=subprocess.DEVNULL)
    try:
        yield f"redis://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


async def _costs(url: str, rounds: int, seconds: float) -> tuple[list[Cost], dict[str, float]]:
    """Measure all kinds of process at the same time. Return the costs, and the share of a CPU without changes."""
    phases = {0: 0} | {rate: round(max(rate, LEAST_RATE) * seconds) for rate in RATES}
    rows: dict[int, list[tuple[float, Mapping[str, float]]]] = {rate: [] for rate in phases}
    async with _processes(url) as (database, children):
        await _spent(url, children, partial(_write, database, WARM_UP, max(RATES)), WARM_UP)
        for _ in range(rounds):
            for rate, changes in phases.items():
                work = partial(_write, database, changes, rate) if rate else partial(asyncio.sleep, seconds)
                rows[rate].append(await _spent(url, children, work, changes))
    idle = _shares(rows[0])
    return [_cost(rate, phases[rate], rows[rate], idle) for rate in RATES], idle


def _cost(rate: int, changes: int, rows: Rows, idle: Mapping[str, float]) -> Cost:
    above_idle = {kind: [(cpu[kind] - idle[kind] * took) / changes * 1e6 for took, cpu in rows] for kind in KINDS}
    return Cost(rate, changes, above_idle, _shares(rows))


def _shares(rows: Rows) -> dict[str, float]:
    return {kind: statistics.median(cpu[kind] / took for took, cpu in rows) for kind in KINDS}


@asynccontextmanager
async def _processes(url: str) -> AsyncIterator[tuple[Database, dict[str, Child]]]:
    """Start a process of each kind on one engine. The first one on the bus becomes the leader."""
    await _wait_for(url)
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(open_database(StoreOptions()))
        assert database.engine is not None
        await database.create_tables()
        children = {
            kind: await stack.enter_async_context(receiver(database.engine.endpoint, bus))
            for kind, bus in {"direct": None, "relayer": url, "receiver": url}.items()
        }
        yield database, children


async def _spent(
    url: str, children: Mapping[str, Child], work: Callable[[], Awaitable[object]], changes: int
) -> tuple[float, dict[str, float]]:
    """Do `work` and wait until all processes received `changes`. Return the seconds, and the CPU seconds by kind.

    Raises `TimeoutError` if a change was lost, and `RuntimeError` if the leader changed.
    """
    before, redis, began = await _states(children), await _redis_seconds(url), time.perf_counter()
    await work()
    async with asyncio.timeout(ARRIVAL_SECONDS):
        while True:
            now = await _states(children)
            if all(now[kind].changes >= before[kind].changes + changes for kind in children):
                break
            await asyncio.sleep(0.1)
    if [(state.relays, state.reads_directly) for state in now.values()] != [(0, 0), (1, 0), (0, 0)]:
        raise RuntimeError(f"The processes changed their roles during a round: {now}.")
    spent = {kind: now[kind].cpu_seconds - before[kind].cpu_seconds for kind in children}
    return time.perf_counter() - began, spent | {"redis": await _redis_seconds(url) - redis}


async def _states(children: Mapping[str, Child]) -> dict[str, ReceiverState]:
    return {kind: await receiver_state(child) for kind, child in children.items()}


async def _write(database: Database, changes: int, rate: int) -> None:
    """Write `changes` items at `rate`. `ITEMS` keys are reused, so that most changes have an old and a new image."""
    began = time.perf_counter()
    batch = max(1, rate // WRITES)
    for first in range(0, changes, batch):
        puts = [{"PutRequest": {"Item": _item(number)}} for number in range(first, min(first + batch, changes))]
        await database.client.call("BatchWriteItem", {"RequestItems": {BLIP.name: puts}})
        await asyncio.sleep(max(0.0, began + (first + batch) / rate - time.perf_counter()))


def _item(number: int) -> dict[str, Any]:
    """Return an item whose stream record has about 800 bytes."""
    key = {"PK": "AREA#Harbor", "SK": f"SIGHTING#{number % ITEMS:04}"}
    return encode_item(key | {"description": "A black cat sits by the fish market. " * 3, "confirmations": number})


async def _reads(url: str | None, gateways: int, seconds: float) -> float:
    """Return the GetRecords calls per second for one shard at the poll interval of AWS."""
    wire = IdleStream()
    async with _subscriptions(wire, "", url, gateways, AWS_POLL_SECONDS):
        before, began = wire.reads, time.perf_counter()
        await asyncio.sleep(seconds)
        return (wire.reads - before) / (time.perf_counter() - began)


async def _redis_seconds(url: str) -> float:
    redis: Any = Redis.from_url(url)
    usage = await redis.info("cpu")
    await redis.aclose()
    return float(usage["used_cpu_user"] + usage["used_cpu_sys"])


@asynccontextmanager
async def _subscriptions(
    wire: Wire, prefix: str, url: str | None, processes: int, poll_interval: float = POLL_SECONDS
) -> AsyncIterator[list[ChangeSubscription[Change]]]:
    """Yield one subscription for each of `processes` change feeds, which the bus treats as processes.

    The first one becomes the leader.
    """
    if url is not None:
        await _wait_for(url)
    async with AsyncExitStack() as stack:
        following = []
        for _ in range(processes):
            bus = None if url is None else Bus(url, prefix)
            feed = ChangeFeed(wire, prefix=prefix, poll_interval=poll_interval, bus=bus)
            stack.push_async_callback(feed.aclose)
            following.append(await stack.enter_async_context(feed.follow(BLIP, lambda change: change)))
        yield following


async def _wait_for(url: str) -> None:
    """Wait until Redis answers, and delete its contents."""
    redis: Any = Redis.from_url(url)
    async with asyncio.timeout(10):
        while True:
            with suppress(*REDIS_AWAY):
                await redis.flushall()
                break
            await asyncio.sleep(0.01)
    await redis.aclose()


async def _latencies(url: str | None, writes: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """Return the latencies at the leader and at another process. Without a bus both read the stream."""
    async with open_database(StoreOptions()) as database:
        await database.create_tables()
        async with _subscriptions(database.client, "", url, 2) as following:
            latencies: list[list[float]] = [[], []]
            for number in range(writes):
                item = {"PK": "AREA#Harbor", "SK": f"SIGHTING#{number}"}
                await database.client.call("PutItem", {"TableName": BLIP.name, "Item": encode_item(item)})
                began = time.perf_counter()
                for times, moment in zip(latencies, await asyncio.gather(*map(_next, following)), strict=True):
                    times.append((moment - began) * 1000)
                await asyncio.sleep(0.007)  # out of step with the polls
    return _spread(latencies[0]), _spread(latencies[1])


async def _next(events: ChangeSubscription[Change]) -> float:
    await anext(events)
    return time.perf_counter()


def _spread(times: Sequence[float]) -> tuple[float, float]:
    """Return p50 and p99."""
    return statistics.median(times), statistics.quantiles(times, n=100)[98]


def report(result: BusResult) -> Iterator[str]:
    for cost in result.costs:
        yield f"The bus: CPU ms for 1,000 changes of 800 bytes, {cost.rate} a second, {cost.changes} a round"
        rows = [_row(kind, cost, result.idle[kind]) for kind in KINDS]
        yield from table(["process", "median", "least", "most", "× direct", "% of a CPU", "% when idle"], rows)
        yield ""
    yield f"From an acknowledged write to the event of a subscriber, streams read every {POLL_SECONDS * 1000:.0f} ms"
    spreads = {"without a bus": result.without_bus, "at the leader": result.at_leader, "elsewhere": result.elsewhere}
    rows = [[name, f"{middle:.1f}", f"{far:.1f}"] for name, (middle, far) in spreads.items()]
    yield from table(["where", "p50 ms", "p99 ms"], rows)
    yield ""
    yield f"GetRecords calls a second for one shard, streams read every {AWS_POLL_SECONDS * 1000:.0f} ms"
    reads = [[gateways, f"{without:.1f}", f"{with_bus:.1f}"] for gateways, (without, with_bus) in result.reads.items()]
    yield from table(["gateways", "without a bus", "with it"], reads)


def _row(kind: str, cost: Cost, idle: float) -> list[str]:
    above_idle = cost.above_idle[kind]
    figures = [statistics.median(above_idle), min(above_idle), max(above_idle)]
    ratio = median_ratio(above_idle, cost.above_idle["direct"])
    shares = [cost.share[kind], idle]
    return [kind, *[f"{value:.1f}" for value in figures], f"{ratio:.2f}", *[f"{share * 100:.2f}" for share in shares]]
