"""What the bus costs: CPU of who relays changes and of who gets them, and how late subscribers hear of a write."""

import asyncio
import shutil
import socket
import statistics
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

from benchmarks.rivals import PeersMissing
from benchmarks.text_table import table
from datastore.attributes import encode_item
from datastore.bus.host import Bus
from datastore.changes import ChangeFeed, Following
from datastore.database import StoreOptions, open_database
from datastore.hub import Keeping
from datastore.keyspace.sightings import BLIP
from datastore.shards import Wire
from datastore.streams import Change

POLL_SECONDS = 0.02
AWS_POLL_SECONDS = 0.25
GATEWAYS = (1, 2, 4)
CAPACITY = 1_000_000


@dataclass(frozen=True, slots=True)
class BusResult:
    """CPU in ms for 1,000 changes; latencies in ms from an acknowledged write to a follower's event, as p50 and p99.

    `reads` are GetRecords calls a second by number of gateways, without a bus and with it.
    """

    read: float
    relayed: float
    received: float
    redis: float
    alone: tuple[float, float]
    at_holder: tuple[float, float]
    at_other: tuple[float, float]
    reads: dict[int, tuple[float, float]]


class Canned:
    """The wire to a stream of one shard that gives its changes when it is told to, and costs next to nothing."""

    def __init__(self, changes: int) -> None:
        self._records = [_record(number) for number in range(1, changes + 1)]
        self.may_give = False
        self.reads = 0

    async def call(self, operation: str, payload: dict[str, Any], /, *, timeout: float) -> dict[str, Any]:  # noqa: ASYNC109
        await asyncio.sleep(0)
        if operation == "DescribeTable":
            return {"Table": {"LatestStreamArn": "arn"}}
        if operation == "DescribeStream":
            return {"StreamDescription": {"Shards": [{"ShardId": "shard"}]}}
        if operation == "GetShardIterator":
            return {"ShardIterator": payload.get("SequenceNumber", "0")}
        self.reads += 1
        start = int(payload["ShardIterator"])
        end = min(start + payload["Limit"], len(self._records)) if self.may_give else start
        return {"Records": self._records[start:end], "NextShardIterator": str(end)}


def _record(number: int) -> dict[str, Any]:
    """A change of an item of some 350 bytes."""
    key = {"PK": "AREA#Harbor", "SK": f"SIGHTING#2026-06-25T12:00:00Z#{number:06}"}
    item = key | {
        "sightingId": f"{number:06}",
        "area": "Harbor",
        "category": "Cats",
        "description": "A black cat with white paws sits on the wall beside the fish market.",
        "reporterId": "ada",
        "reportedAt": "2026-06-25T12:00:00Z",
        "confirmations": number,
    }
    body = {
        "Keys": encode_item(key),
        "OldImage": encode_item(item),
        "NewImage": encode_item(item),
        "SequenceNumber": str(number),
        "ApproximateCreationDateTime": 1_782_388_800.0,
    }
    return {"eventName": "MODIFY", "dynamodb": body}


async def measure(rounds: int, effort: float) -> BusResult:
    """The median of the rounds. Raises `PeersMissing` without a redis-server."""
    changes = max(1000, round(10_000 * effort))
    with _redis() as url:
        costs = [await _costs(url, changes) for _ in range(rounds)]
        writes = max(20, round(300 * effort))
        alone, _ = await _latencies(None, writes)
        at_holder, at_other = await _latencies(url, writes)
        seconds = max(1.0, 4 * effort)
        reads = {many: (await _reads(None, many, seconds), await _reads(url, many, seconds)) for many in GATEWAYS}
    read, relayed, received, redis = (statistics.median(one) for one in zip(*costs, strict=True))
    return BusResult(read, relayed, received, redis, alone, at_holder, at_other, reads)


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


async def _costs(url: str, changes: int) -> tuple[float, float, float, float]:
    """CPU for 1,000 changes: to read them directly, to relay them, to get them by the bus, and Redis's for both."""
    direct, _ = await _cpu(None, 1, changes)
    one, _ = await _cpu(url, 1, changes)
    three, redis = await _cpu(url, 3, changes)
    received = (three - one) / 2
    return direct, one - received, received, redis


async def _cpu(url: str | None, processes: int, changes: int) -> tuple[float, float]:
    wire = Canned(changes)
    async with _following(wire, "", url, processes) as following:
        redis = 0.0 if url is None else await _redis_seconds(url)
        began = time.process_time()
        wire.may_give = True
        for events in following:
            for _ in range(changes):
                await anext(events)
        spent = time.process_time() - began
        redis = 0.0 if url is None else await _redis_seconds(url) - redis
    return spent / changes * 1e6, redis / changes * 1e6


async def _reads(url: str | None, gateways: int, seconds: float) -> float:
    """GetRecords calls a second for one shard, read as often as on AWS."""
    wire = Canned(0)
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
) -> AsyncIterator[list[Following[Change]]]:
    """Followers in as many processes as far as the bus can tell; the first relays."""
    if url is not None:
        await _wait_for(url)
    async with AsyncExitStack() as stack:
        following = []
        for _ in range(processes):
            bus = None if url is None else Bus(url, prefix)
            feed = ChangeFeed(wire, prefix=prefix, poll_interval=poll_interval, bus=bus)
            stack.push_async_callback(feed.aclose)
            following.append(
                await stack.enter_async_context(
                    feed.follow(BLIP, lambda change: change, keeping=Keeping(most=CAPACITY))
                )
            )
        yield following


async def _wait_for(url: str) -> None:
    """Until it answers, and nothing in it."""
    redis: Any = Redis.from_url(url)
    async with asyncio.timeout(10):
        while True:
            with suppress(OSError, ConnectionError):
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


async def _next(events: Following[Change]) -> float:
    await anext(events)
    return time.perf_counter()


def _spread(times: Sequence[float]) -> tuple[float, float]:
    return statistics.median(times), statistics.quantiles(times, n=100)[98]


def report(result: BusResult) -> Iterator[str]:
    yield "The bus: CPU ms for 1,000 changes of an item of 350 bytes, both images"
    yield from table(
        ["what", "CPU ms"],
        [
            ["reads the stream itself, without a bus", f"{result.read:.1f}"],
            ["reads it and relays", f"{result.relayed:.1f}"],
            ["gets it by the bus", f"{result.received:.1f}"],
            ["Redis, with three processes", f"{result.redis:.1f}"],
        ],
    )
    yield ""
    yield f"From an acknowledged write to the event of a follower, streams read every {POLL_SECONDS * 1000:.0f} ms"
    spreads = {"without a bus": result.alone, "where it is relayed": result.at_holder, "elsewhere": result.at_other}
    rows = [[name, f"{middle:.1f}", f"{far:.1f}"] for name, (middle, far) in spreads.items()]
    yield from table(["where", "p50 ms", "p99 ms"], rows)
    yield ""
    yield f"GetRecords calls a second for one shard, streams read every {AWS_POLL_SECONDS * 1000:.0f} ms"
    reads = [[str(many), f"{without:.1f}", f"{with_it:.1f}"] for many, (without, with_it) in result.reads.items()]
    yield from table(["gateways", "without a bus", "with it"], reads)
