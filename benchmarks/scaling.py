"""`python -m benchmarks.scaling`: requests per second and CPU of W1 and W2 with no, one and several workers.

The engine and the client run on the same machine. Their CPU is reported, too.
"""

import argparse
import asyncio
import gc
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from statistics import median

from benchmarks.contenders import CONCURRENCY, SECRET
from benchmarks.load import closed_loop, requests, send_once
from benchmarks.measuring import percentile, run
from benchmarks.processes import children, cpu_seconds
from benchmarks.rolling import ended, started
from benchmarks.server import free_port
from benchmarks.speed import filled_store
from benchmarks.text_table import table
from benchmarks.workload_data import VIEWER
from benchmarks.workloads import WORKLOADS, Workload
from datastore.model.identity import Role
from server.security.jwt import Tokens, TokenSettings

START_SECONDS = 60.0
MEASURED = [workload for workload in WORKLOADS if workload.name in ("W1", "W2")]
HEAD = ("workload", "workers", "CPU ms", "req/s", "p50 ms", "p99 ms", "busiest", "engine ms", "client ms")


@dataclass(frozen=True, slots=True)
class Serving:
    """A running gateway."""

    #: The number of workers; 0 is one process for everything.
    workers: int
    url: str
    pid: int

    def cpu(self) -> list[float]:
        """Return the CPU seconds of each of its processes."""
        return [cpu_seconds(pid) for pid in (self.pid, *children(self.pid))]


@dataclass(slots=True)
class Scaled:
    """The figures of a workload, by round. CPU is in milliseconds per request."""

    workload: Workload
    workers: int
    gateway: list[float] = field(default_factory=list)
    engine: list[float] = field(default_factory=list)
    client: list[float] = field(default_factory=list)
    #: The busiest process's share of the gateway's CPU.
    busiest: list[float] = field(default_factory=list)
    #: Requests per second.
    rate: list[float] = field(default_factory=list)
    #: The latencies of all requests.
    seconds: list[float] = field(default_factory=list)

    def row(self) -> list[str]:
        return [
            f"{self.workload.name} {self.workload.title}",
            str(self.workers or "none"),
            f"{median(self.gateway):.3f}",
            f"{median(self.rate):.0f}",
            f"{percentile(self.seconds, 0.5) * 1000:.1f}",
            f"{percentile(self.seconds, 0.99) * 1000:.1f}",
            f"{median(self.busiest):.2f}",
            f"{median(self.engine):.3f}",
            f"{median(self.client):.3f}",
        ]


async def measure(workers: Sequence[int], rounds: int, effort: float, concurrency: int = CONCURRENCY) -> list[Scaled]:
    """Measure the gateways in turns for `rounds` rounds, after a discarded one. `effort` scales the requests."""
    token = Tokens(TokenSettings(secret=SECRET)).issue(VIEWER, Role.USER)
    headers = {"Authorization": f"Bearer {token}"}
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(filled_store())
        (engine,) = children(os.getpid())
        serving = [await stack.enter_async_context(_serving(store, count, headers)) for count in workers]
        found = [(gateway, Scaled(workload, gateway.workers)) for workload in MEASURED for gateway in serving]
        for number in range(rounds + 1):
            for gateway, result in found:
                total = max(int(result.workload.requests * effort), concurrency)
                measured = result if number else Scaled(result.workload, gateway.workers)
                await _round(gateway, engine, headers, total, concurrency, measured)
    return [result for _, result in found]


@asynccontextmanager
async def _serving(store: str, workers: int, headers: Mapping[str, str]) -> AsyncIterator[Serving]:
    port = free_port()
    options = ["--workers", str(workers)] if workers else []
    # As in the other measurements requests share no reads. The log line of each request is written and discarded.
    variables, log = {"GATEWAY_SHARED_READS": "off"}, asyncio.subprocess.DEVNULL
    process = await started(store, port, SECRET, *options, variables=variables, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        async with asyncio.timeout(START_SECONDS):
            while not await _is_ready(url, headers):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        yield Serving(workers, url, process.pid)
    finally:
        await ended([process])


async def _is_ready(url: str, headers: Mapping[str, str]) -> bool:
    try:
        await send_once(url, headers, MEASURED[0])
    except OSError:
        return False
    return True


async def _round(
    serving: Serving, engine: int, headers: Mapping[str, str], total: int, concurrency: int, result: Scaled
) -> None:
    encoded = requests(serving.url.partition("//")[2], headers, result.workload)
    gc.collect()
    before, engine_before, client_before = serving.cpu(), cpu_seconds(engine), time.process_time()
    began = time.perf_counter()
    seconds = await closed_loop(serving.url, encoded, total, concurrency)
    wall = time.perf_counter() - began
    client, by_engine = time.process_time() - client_before, cpu_seconds(engine) - engine_before
    used = [after - earlier for after, earlier in zip(serving.cpu(), before, strict=True)]
    result.gateway.append(sum(used) * 1000 / total)
    result.engine.append(by_engine * 1000 / total)
    result.client.append(client * 1000 / total)
    result.busiest.append(max(used) / sum(used))
    result.rate.append(total / wall)
    result.seconds += seconds


def text(results: Sequence[Scaled], concurrency: int) -> Iterator[str]:
    yield f"{concurrency} requests at a time from one client on {os.cpu_count()} CPUs, shared with the engine;"
    yield "CPU ms per request of all the gateway's processes, of the engine and of the client"
    yield from table(HEAD, [result.row() for result in results])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2], metavar="N", help="0 is without workers")
    parser.add_argument("--rounds", type=int, default=7, metavar="N")
    parser.add_argument("--effort", type=float, default=3.0, metavar="X", help="1 is 1,000 of W1 and 250 of W2 a round")
    parser.add_argument("--concurrency", type=int, default=CONCURRENCY, metavar="N", help="requests at a time")
    given = parser.parse_args()
    results = run(measure(given.workers, given.rounds, given.effort, given.concurrency))
    print("\n".join(text(results, given.concurrency)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
