"""`python -m benchmarks.scaling`: W1 and W2 with one process, one worker and several: requests a second, and their CPU.

The engine and who asks are on the same machine: what they take of it is told, too.
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
from benchmarks.load import ask_once, closed_loop, requests
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
    """A gateway with so many workers; 0 is one process that does it all."""

    workers: int
    url: str
    pid: int

    def cpu(self) -> list[float]:
        """Seconds of each of its processes."""
        return [cpu_seconds(pid) for pid in (self.pid, *children(self.pid))]


@dataclass(slots=True)
class Scaled:
    """What a workload took; each round has an entry. CPU is in milliseconds a request.

    `busiest` is the share that one process had of the gateway's CPU.
    """

    workload: Workload
    workers: int
    gateway: list[float] = field(default_factory=list)
    engine: list[float] = field(default_factory=list)
    client: list[float] = field(default_factory=list)
    busiest: list[float] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def row(self) -> list[str]:
        return [
            f"{self.workload.name} {self.workload.told}",
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
    """Each in turn, for so many rounds after one that does not count. `effort` scales the requests of a round."""
    token = Tokens(TokenSettings(secret=SECRET)).issue(VIEWER, Role.USER)
    headers = {"Authorization": f"Bearer {token}"}
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(filled_store())
        (engine,) = children(os.getpid())
        serving = [await stack.enter_async_context(_serving(store, count, headers)) for count in workers]
        found = [(one, Scaled(workload, one.workers)) for workload in MEASURED for one in serving]
        for number in range(rounds + 1):
            for one, result in found:
                total = max(int(result.workload.requests * effort), concurrency)
                counts = result if number else Scaled(result.workload, one.workers)
                await _round(one, engine, headers, total, concurrency, counts)
    return [result for _, result in found]


@asynccontextmanager
async def _serving(store: str, workers: int, headers: Mapping[str, str]) -> AsyncIterator[Serving]:
    port = free_port()
    options = ["--workers", str(workers)] if workers else []
    # As in the other measurements each request reads for itself. A line for each is written, and read by nobody.
    variables, log = {"GATEWAY_SHARED_READS": "off"}, asyncio.subprocess.DEVNULL
    process = await started(store, port, SECRET, *options, variables=variables, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}"
        async with asyncio.timeout(START_SECONDS):
            while not await _answers(url, headers):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        yield Serving(workers, url, process.pid)
    finally:
        await ended([process])


async def _answers(url: str, headers: Mapping[str, str]) -> bool:
    try:
        await ask_once(url, headers, MEASURED[0])
    except OSError:
        return False
    return True


async def _round(
    serving: Serving, engine: int, headers: Mapping[str, str], total: int, concurrency: int, result: Scaled
) -> None:
    asked = requests(serving.url.partition("//")[2], headers, result.workload)
    gc.collect()
    before, engine_before, client_before = serving.cpu(), cpu_seconds(engine), time.process_time()
    began = time.perf_counter()
    seconds = await closed_loop(serving.url, asked, total, concurrency)
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
    yield f"{concurrency} requests at a time from one client on {os.cpu_count()} CPUs, which the engine has, too;"
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
