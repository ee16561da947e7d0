"""What the bus costs: CPU of who relays changes and of who gets them, and how late subscribers hear of a write.

CPU is that of processes that do nothing else (benchmarks/bus_receiver.py), all at once on the same changes.
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

from benchmarks.bus_receiver import Seen, receiver, seen
from benchmarks.child import Child
from benchmarks.measuring import median_ratio
from benchmarks.rivals import PeersMissing
from benchmarks.text_table import table
from datastore.change_streams.change_feed import ChangeFeed
from datastore.change_streams.change_subscription import ChangeSubscription
from datastore.change_streams.relay.bus import Bus
from datastore.change_streams.shards.shard_reader import Wire
from datastore.change_streams.shards.stream_reader import Change
from datastore.database import Database, StoreOptions, open_database
from datastore.dynamodb.codec import encode_item
from datastore.keyspace.sightings import BLIP
from datastore.redis.failures import REDIS_AWAY

POLL_SECONDS = 0.02
AWS_POLL_SECONDS = 0.25
GATEWAYS = (1, 2, 4)
# Changes a second, in so many calls a second at the most, of items of so many keys.
RATES = (20, 500)
WRITES = 20
ITEMS = 100
WARM_UP = 1000
ARRIVAL_SECONDS = 60.0
KINDS = ("direct", "relayer", "receiver", "redis")
# Of a slower rate so many changes are measured as if it was this one: its turn takes longer.
LEAST_RATE = 50

# Seconds, and the CPU seconds of each kind in them, round by round.
Rows = Sequence[tuple[float, Mapping[str, float]]]


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU by kind of process, Redis's among them, for changes that came at so many a second.

    `above` is what they took beyond what they take for as long without changes (the median of all rounds): ms for
    1,000 changes, round by round. `share` is the share of a CPU that they took in all, the median.
    """

    rate: int
    changes: int
    above: dict[str, list[float]]
    share: dict[str, float]


@dataclass(frozen=True, slots=True)
class BusResult:
    """Latencies in ms from an acknowledged write to a follower's event, as p50 and p99.

    `idle` is the share of a CPU of each kind of process without changes. `reads` are GetRecords calls a second by
    number of gateways, without a bus and with it.
    """

    costs: list[Cost]
    idle: dict[str, float]
    alone: tuple[float, float]
    at_holder: tuple[float, float]
    at_other: tuple[float, float]
    reads: dict[str, tuple[float, float]]


class Idle:
    """The wire to a stream of one shard without changes, which counts the calls that read it."""

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
    """Raises `PeersMissing` without a redis-server."""
    with _redis() as url:
        seconds = max(1.0, 4 * effort)
        costs, idle = await _costs(url, rounds, seconds)
        writes = max(20, round(300 * effort))
        alone, _ = await _latencies(None, writes)
        at_holder, at_other = await _latencies(url, writes)
        reads = {str(many): (await _reads(None, many, seconds), await _reads(url, many, seconds)) for many in GATEWAYS}
    return BusResult(costs, idle, alone, at_holder, at_other, reads)


@contextmanager
def _redis() -> Iterator[str]:
    """One of our own, with nothing in it."""
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
    """Of all kinds of process at once, on the same changes; and the share of a CPU of each while there are none."""
    phases = {0: 0} | {rate: round(max(rate, LEAST_RATE) * seconds) for rate in RATES}
    rows: dict[int, list[tuple[float, Mapping[str, float]]]] = {rate: [] for rate in phases}
    async with _kinds(url) as (database, children):
        await _spent(url, children, partial(_write, database, WARM_UP, max(RATES)), WARM_UP)
        for _ in range(rounds):
            for rate, changes in phases.items():
                work = partial(_write, database, changes, rate) if rate else partial(asyncio.sleep, seconds)
                rows[rate].append(await _spent(url, children, work, changes))
    idle = _shares(rows[0])
    return [_cost(rate, phases[rate], rows[rate], idle) for rate in RATES], idle


def _cost(rate: int, changes: int, rows: Rows, idle: Mapping[str, float]) -> Cost:
    above = {kind: [(cpu[kind] - idle[kind] * took) / changes * 1e6 for took, cpu in rows] for kind in KINDS}
    return Cost(rate, changes, above, _shares(rows))


def _shares(rows: Rows) -> dict[str, float]:
    return {kind: statistics.median(cpu[kind] / took for took, cpu in rows) for kind in KINDS}


@asynccontextmanager
async def _kinds(url: str) -> AsyncIterator[tuple[Database, dict[str, Child]]]:
    """A process of each kind, on one engine: the first on the bus relays."""
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
    """Seconds, and CPU seconds of each kind, until all have had so many changes. Raises when one was lost, or roles."""
    before, redis, began = await _all_seen(children), await _redis_seconds(url), time.perf_counter()
    await work()
    async with asyncio.timeout(ARRIVAL_SECONDS):
        while True:
            now = await _all_seen(children)
            if all(now[kind].changes >= before[kind].changes + changes for kind in children):
                break
            await asyncio.sleep(0.1)
    if [(one.relays, one.reads_directly) for one in now.values()] != [(0, 0), (1, 0), (0, 0)]:
        raise RuntimeError(f"They have changed their parts: {now}.")
    spent = {kind: now[kind].cpu_seconds - before[kind].cpu_seconds for kind in children}
    return time.perf_counter() - began, spent | {"redis": await _redis_seconds(url) - redis}


async def _all_seen(children: Mapping[str, Child]) -> dict[str, Seen]:
    return {kind: await seen(child) for kind, child in children.items()}


async def _write(database: Database, changes: int, rate: int) -> None:
    """Items of `ITEMS` keys, one after the other, so that a change has both images."""
    began = time.perf_counter()
    many = max(1, rate // WRITES)
    for first in range(0, changes, many):
        puts = [{"PutRequest": {"Item": _item(number)}} for number in range(first, min(first + many, changes))]
        await database.client.call("BatchWriteItem", {"RequestItems": {BLIP.name: puts}})
        await asyncio.sleep(max(0.0, began + (first + many) / rate - time.perf_counter()))


def _item(number: int) -> dict[str, Any]:
    """Of such a size that the record of its change has some 800 bytes."""
    key = {"PK": "AREA#Harbor", "SK": f"SIGHTING#{number % ITEMS:04}"}
    return encode_item(key | {"description": "A black cat sits by the fish market. " * 3, "confirmations": number})


async def _reads(url: str | None, gateways: int, seconds: float) -> float:
    """GetRecords calls a second for one shard, read as often as on AWS."""
    wire = Idle()
    async with _following(wire, "", url, gateways, AWS_POLL_SECONDS):
        before, began = wire.reads, time.perf_counter()
        await asyncio.sleep(seconds)
        return (wire.reads - before) / (time.perf_counter() - began)


async def _redis_seconds(url: str) -> float:
    redis: Any = Redis.from_url(url)
    told = await redis.info("cpu")
    await redis.aclose()
    return float(told["used_cpu_user"] + told["used_cpu_sys"])


@asynccontextmanager
async def _following(
    wire: Wire, prefix: str, url: str | None, processes: int, poll_interval: float = POLL_SECONDS
) -> AsyncIterator[list[ChangeSubscription[Change]]]:
    """Followers in as many processes as far as the bus can tell; the first relays."""
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
    """Until it answers, and nothing in it."""
    redis: Any = Redis.from_url(url)
    async with asyncio.timeout(10):
        while True:
            with suppress(*REDIS_AWAY):
                await redis.flushall()
                break
            await asyncio.sleep(0.01)
    await redis.aclose()


async def _latencies(url: str | None, writes: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """Where the stream is read, and in another process; without a bus both read it."""
    async with open_database(StoreOptions()) as database:
        await database.create_tables()
        async with _following(database.client, "", url, 2) as following:
            told: list[list[float]] = [[], []]
            for number in range(writes):
                item = {"PK": "AREA#Harbor", "SK": f"SIGHTING#{number}"}
                await database.client.call("PutItem", {"TableName": BLIP.name, "Item": encode_item(item)})
                began = time.perf_counter()
                for times, moment in zip(told, await asyncio.gather(*map(_next, following)), strict=True):
                    times.append((moment - began) * 1000)
                await asyncio.sleep(0.007)  # out of step with the polls
    return _spread(told[0]), _spread(told[1])


async def _next(events: ChangeSubscription[Change]) -> float:
    await anext(events)
    return time.perf_counter()


def _spread(times: Sequence[float]) -> tuple[float, float]:
    return statistics.median(times), statistics.quantiles(times, n=100)[98]


def report(result: BusResult) -> Iterator[str]:
    for cost in result.costs:
        yield f"The bus: CPU ms for 1,000 changes of 800 bytes, {cost.rate} a second, {cost.changes} a round"
        rows = [_row(kind, cost, result.idle[kind]) for kind in KINDS]
        yield from table(["process", "median", "least", "most", "× direct", "% of a CPU", "% when idle"], rows)
        yield ""
    yield f"From an acknowledged write to the event of a follower, streams read every {POLL_SECONDS * 1000:.0f} ms"
    spreads = {"without a bus": result.alone, "where it is relayed": result.at_holder, "elsewhere": result.at_other}
    rows = [[name, f"{middle:.1f}", f"{far:.1f}"] for name, (middle, far) in spreads.items()]
    yield from table(["where", "p50 ms", "p99 ms"], rows)
    yield ""
    yield f"GetRecords calls a second for one shard, streams read every {AWS_POLL_SECONDS * 1000:.0f} ms"
    reads = [[many, f"{without:.1f}", f"{with_it:.1f}"] for many, (without, with_it) in result.reads.items()]
    yield from table(["gateways", "without a bus", "with it"], reads)


def _row(kind: str, cost: Cost, idle: float) -> list[str]:
    above = cost.above[kind]
    figures = [statistics.median(above), min(above), max(above)]
    ratio = median_ratio(above, cost.above["direct"])
    shares = [cost.share[kind], idle]
    return [kind, *[f"{it:.1f}" for it in figures], f"{ratio:.2f}", *[f"{share * 100:.2f}" for share in shares]]
