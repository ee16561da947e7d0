"""Comparison of whole servers: all run on the same store, are checked for equal results, and are measured in turns."""

import gc
import itertools
import os
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks.counting_proxy import counting
from benchmarks.load import closed_loop, requests, send_once
from benchmarks.measuring import percentile
from benchmarks.processes import cpu_seconds, resident_mb
from benchmarks.server import serving
from benchmarks.workload_data import VIEWER
from benchmarks.workloads import Body, Workload

# Signs the cursors, which must be equal for all contenders.
SECRET = "a secret that is for measurements alone, and the same in each contender"
CONCURRENCY = 16


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A running server, and the headers of requests to it."""

    url: str
    pid: int
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Contender:
    """A server to compare."""

    name: str
    #: Starts the server on the store with this URL.
    start: Callable[[str], AbstractAsyncContextManager[RunningServer]]
    #: The number of discarded rounds before the first measured one.
    warm_up: int = 1


@asynccontextmanager
async def _gateway(store_url: str, *options: str) -> AsyncIterator[RunningServer]:
    async with serving(store_url, secret=SECRET, options=options) as server:
        yield RunningServer(server.url, server.pid, {"Authorization": f"Bearer {server.sign(VIEWER)}"})


OURS = Contender("this gateway", _gateway)
LOGGING = Contender("this gateway, logging", lambda store_url: _gateway(store_url, "--log", os.devnull))


@dataclass(slots=True)
class Result:
    """The figures of one contender and workload."""

    contender: str
    workload: str
    concurrency: int
    #: DynamoDB calls by operation.
    calls: Mapping[str, int]
    #: CPU ms per request, by round.
    cpu: list[float] = field(default_factory=list)
    #: Requests per second, by round.
    rate: list[float] = field(default_factory=list)
    #: The latencies of all requests.
    seconds: list[float] = field(default_factory=list)
    #: The server's resident memory in MB after the last round.
    rss: float = 0.0

    @property
    def figures(self) -> dict[str, Any]:
        """The reported figures: medians over the rounds, latencies over all requests."""
        return {
            "contender": self.contender,
            "workload": self.workload,
            "concurrency": self.concurrency,
            "calls": dict(self.calls),
            "cpu_ms": median(self.cpu),
            "rounds": self.cpu,
            "requests_per_second": median(self.rate),
            "p50_ms": percentile(self.seconds, 0.50) * 1000,
            "p99_ms": percentile(self.seconds, 0.99) * 1000,
            "rss_mb": self.rss,
        }


@dataclass(frozen=True, slots=True)
class CheckedResponse:
    """A contender's response, and its DynamoDB calls for it by operation."""

    data: Body
    calls: Mapping[str, int]


class Disagreement(Exception):
    """Two contenders return different data or make different calls."""


async def measure(
    contenders: Sequence[Contender],
    workloads: Sequence[Workload],
    store_url: str,
    rounds: int,
    effort: float,
    concurrencies: Sequence[int] = (CONCURRENCY,),
) -> list[Result]:
    """Check that all contenders agree with the first one, and measure them in turns: A B C …, A B C ….

    `effort` scales the number of requests. Raises `Disagreement`.
    """
    checked = await check(contenders, workloads, store_url)
    measured = [
        (contender, workload, Result(contender.name, workload.name, concurrency, checked[workload.name].calls))
        for workload, concurrency, contender in itertools.product(workloads, concurrencies, contenders)
    ]
    async with AsyncExitStack() as stack:
        servers = {
            contender.name: await stack.enter_async_context(contender.start(store_url)) for contender in contenders
        }
        for contender, workload in itertools.product(contenders, workloads):
            total = int(contender.warm_up * workload.requests * effort)
            await _send_all(servers[contender.name], workload, total, CONCURRENCY)
        for _ in range(rounds):
            for contender, workload, result in measured:
                await _round(servers[contender.name], workload, int(workload.requests * effort), result)
    return [result for _, _, result in measured]


async def check(
    contenders: Sequence[Contender], workloads: Sequence[Workload], store_url: str
) -> dict[str, CheckedResponse]:
    """Return the common responses, by workload. Raises `Disagreement` if contenders differ in data or calls."""
    agreed: dict[str, CheckedResponse] = {}
    async with counting(store_url) as counter:
        for contender in contenders:
            async with contender.start(counter.url) as server:
                for workload in workloads:
                    await send_once(server.url, server.headers, workload)
                    counter.begin()
                    data = await send_once(server.url, server.headers, workload)
                    answered = CheckedResponse(data, dict(counter.calls))
                    _agree(contender.name, workload.name, answered, agreed.setdefault(workload.name, answered))
    return agreed


def _agree(contender: str, workload: str, answered: CheckedResponse, agreed: CheckedResponse) -> None:
    if answered.data != agreed.data:
        raise Disagreement(
            f"{workload}: {contender} returns other data at {_first_difference(answered.data, agreed.data)}"
        )
    if answered.calls != agreed.calls:
        raise Disagreement(f"{workload}: {contender} makes other calls: {answered.calls}, not {agreed.calls}")


def _first_difference(one: Any, other: Any, path: str = "data") -> str:
    """Describe the first difference between two different values."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return next(
            _first_difference(one[name], other[name], f"{path}.{name}") for name in one if one[name] != other[name]
        )
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return next(
            _first_difference(left, right, f"{path}[{index}]") for index, (left, right) in pairs if left != right
        )
    return f"{path}: {str(one)[:200]}, not {str(other)[:200]}"


async def _round(server: RunningServer, workload: Workload, total: int, result: Result) -> None:
    gc.collect()
    cpu, began = cpu_seconds(server.pid), time.perf_counter()
    seconds = await _send_all(server, workload, total, result.concurrency)
    wall, used = time.perf_counter() - began, cpu_seconds(server.pid) - cpu
    result.cpu.append(used * 1000 / len(seconds))
    result.rate.append(len(seconds) / wall)
    result.seconds += seconds
    result.rss = resident_mb(server.pid)


async def _send_all(server: RunningServer, workload: Workload, total: int, concurrency: int) -> list[float]:
    """Send `total` requests, at least one on each connection. Return the latency of each in seconds."""
    encoded = requests(server.url.partition("//")[2], server.headers, workload)
    return await closed_loop(server.url, encoded, max(total, concurrency), concurrency)
