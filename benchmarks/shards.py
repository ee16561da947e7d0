"""`python -m benchmarks.shards`: measure the process that reads a stream of 100 shards with 1,000 writes a second.

`benchmarks.stream_server` serves the stream from a separate process. The reading process runs twice: alone, and as the
leader that relays the table through the bus (a redis-server is needed). The report has its CPU and calls per second,
the latency of point reads through the same pool of connections, and the part of the stream that Redis keeps.
"""

import argparse
import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

from botocore.credentials import Credentials
from redis.asyncio import Redis

from benchmarks.bus import _redis
from benchmarks.scaling_constants import MONTH_SECONDS, price_of_stream_reads
from datastore.change_streams.change import Change
from datastore.change_streams.change_feed import ChangeFeed
from datastore.change_streams.relay.bus import Bus
from datastore.dynamodb.client import Client, Endpoint
from datastore.dynamodb.sigv4 import CredentialSource
from datastore.keyspace.matches.active_matches import ACTIVE_MATCHES
from datastore.queues import QueueLimits

POLL_SECONDS = 0.25
PROBE_SECONDS = 0.02
WARM_UP_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class ShardsResult:
    """The result of one run."""

    #: The share of a CPU.
    cpu: float
    #: GetRecords calls per second.
    calls: float
    #: Changes per second.
    changes: float
    #: The latency of point reads: median and p99.
    read_ms: float
    slow_read_ms: float
    #: The median seconds from a change to its delivery, in each half of the run.
    lags: tuple[float, float]

    @property
    def dollars(self) -> float:
        """The price of a month of GetRecords, without the free tier."""
        return self.calls * MONTH_SECONDS * price_of_stream_reads()


@contextmanager
def server(shards: int, rate: int, size: int) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = [str(option) for option in (port, shards, rate, size)]
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.stream_server", *options])
    try:
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@asynccontextmanager
async def client_at(url: str) -> AsyncIterator[Client]:
    endpoint = Endpoint(lambda: url, lambda: url, "local")
    async with Client(endpoint, CredentialSource(Credentials("local", "local"))) as client:
        yield client


async def measure(url: str, seconds: float, bus: Bus | None) -> ShardsResult:
    async with client_at(url) as client:
        calls, changes, lag, reads, lags = 0, 0, 0.0, list[float](), list[float]()
        feed = ChangeFeed(client, poll_interval=POLL_SECONDS, linger=0, bus=bus)

        def count(change: Change) -> None:
            nonlocal changes, lag
            changes += 1
            lag = time.time() - change.time.timestamp()

        async with feed.follow(ACTIVE_MATCHES, count, limits=QueueLimits(max_events=1)):
            await asyncio.sleep(WARM_UP_SECONDS)
            before, changes = await client.call("ListStreams", {}), 0
            cpu, began = time.process_time(), time.monotonic()
            while time.monotonic() - began < seconds:
                started = time.perf_counter()
                await client.call("GetItem", {"TableName": "x", "Key": {}})
                reads.append(1000 * (time.perf_counter() - started))
                lags.append(lag)
                await asyncio.sleep(PROBE_SECONDS)
            elapsed, cpu = time.monotonic() - began, time.process_time() - cpu
            after = await client.call("ListStreams", {})
            calls = after["GetRecords"] - before["GetRecords"]
            found = ShardsResult(
                cpu / elapsed,
                calls / elapsed,
                changes / elapsed,
                median(reads),
                quantiles(reads, n=100)[98],
                (median(lags[: len(lags) // 2]), median(lags[len(lags) // 2 :])),
            )
        await feed.aclose()
        return found


async def log_of(url: str) -> tuple[float, int]:
    """Return the seconds between the first and last entry of the bus's log, and its memory in Redis in bytes."""
    redis: Any = Redis.from_url(url, decode_responses=True)
    (key,) = [key async for key in redis.scan_iter() if await redis.type(key) == "stream"]
    first, last = await redis.xrange(key, count=1), await redis.xrevrange(key, count=1)
    size = await redis.memory_usage(key)
    await redis.aclose()
    return (_ms(last) - _ms(first)) / 1000, size


def _ms(entries: list[tuple[str, object]]) -> int:
    return int(entries[0][0].partition("-")[0])


def show(name: str, measured: ShardsResult) -> None:
    print(
        f"{name:<10} {100 * measured.cpu:5.1f} % of a CPU, {measured.calls:.0f} GetRecords/s, "
        f"{measured.changes:.0f} changes/s, lag {measured.lags[0]:.2f} and then {measured.lags[1]:.2f} s, "
        f"point reads {measured.read_ms:.1f} ms (p99 {measured.slow_read_ms:.1f}), "
        f"${measured.dollars:.0f} a month for GetRecords"
    )


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shards")
    parser.add_argument("--shards", type=int, default=100)
    parser.add_argument("--rate", type=int, default=1000, help="writes a second")
    parser.add_argument("--bytes", type=int, default=500, help="of an item")
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    with server(options.shards, options.rate, options.bytes) as url:
        show("alone", await measure(url, options.seconds, None))
    with server(options.shards, options.rate, options.bytes) as url, _redis() as redis:
        show("with a bus", await measure(url, options.seconds, Bus(redis, "")))
        kept, size = await log_of(redis)
        print(f"the bus's log: {kept:.1f} s, {size / 1e6:.1f} MB in Redis")


if __name__ == "__main__":
    asyncio.run(main())
