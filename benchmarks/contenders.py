"""Whole servers side by side: each is started on the same store, checked, and measured in turns with the others."""

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
from benchmarks.load import ask_once, closed_loop, requests
from benchmarks.measuring import percentile
from benchmarks.processes import cpu_seconds, resident_mb
from benchmarks.server import serving
from benchmarks.workload_data import VIEWER
from benchmarks.workloads import Body, Workload

# It signs cursors, which all make alike.
SECRET = "a secret that is for measurements alone, and the same in each contender"
CONCURRENCY = 16


@dataclass(frozen=True, slots=True)
class Running:
    """A server that is up, and the headers with which it is asked."""

    url: str
    pid: int
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Contender:
    """A server that can be started on a store, given by its URL. So many rounds go before the first that counts."""

    name: str
    start: Callable[[str], AbstractAsyncContextManager[Running]]
    warm_up: int = 1


@asynccontextmanager
async def _gateway(store_url: str, *options: str) -> AsyncIterator[Running]:
    async with serving(store_url, secret=SECRET, options=options) as server:
        yield Running(server.url, server.pid, {"Authorization": f"Bearer {server.sign(VIEWER)}"})


OURS = Contender("this gateway", _gateway)
LOGGING = Contender("this gateway, logging", lambda store_url: _gateway(store_url, "--log", os.devnull))


@dataclass(slots=True)
class Result:
    """What one contender took for one workload; each round has an entry in `cpu` (ms per request) and `rate`."""

    contender: str
    workload: str
    concurrency: int
    calls: Mapping[str, int]
    cpu: list[float] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    rss: float = 0.0

    @property
    def figures(self) -> dict[str, Any]:
        """What is told of it: medians over the rounds, latencies over all requests."""
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
class Answered:
    """What a contender answers, and the calls it makes of DynamoDB for that, by operation."""

    data: Body
    calls: Mapping[str, int]


class Disagreement(Exception):
    """Two contenders do not do the same."""


async def measure(
    contenders: Sequence[Contender],
    workloads: Sequence[Workload],
    store_url: str,
    rounds: int,
    effort: float,
    concurrencies: Sequence[int] = (CONCURRENCY,),
) -> list[Result]:
    """Check that all do the same, and measure them in turns: A B C …, A B C …; the first is the one that others must
    agree with.

    `effort` scales the number of requests. Raises `Disagreement`.
    """
    checked = await check(contenders, workloads, store_url)
    measured = [
        (contender, workload, Result(contender.name, workload.name, at_once, checked[workload.name].calls))
        for workload, at_once, contender in itertools.product(workloads, concurrencies, contenders)
    ]
    async with AsyncExitStack() as stack:
        servers = {one.name: await stack.enter_async_context(one.start(store_url)) for one in contenders}
        for contender, workload in itertools.product(contenders, workloads):
            total = int(contender.warm_up * workload.requests * effort)
            await _ask(servers[contender.name], workload, total, CONCURRENCY)
        for _ in range(rounds):
            for contender, workload, result in measured:
                await _round(servers[contender.name], workload, int(workload.requests * effort), result)
    return [result for _, _, result in measured]


async def check(contenders: Sequence[Contender], workloads: Sequence[Workload], store_url: str) -> dict[str, Answered]:
    """What all of them answer, by workload. Raises `Disagreement` where one answers or asks for something else."""
    agreed: dict[str, Answered] = {}
    async with counting(store_url) as counter:
        for contender in contenders:
            async with contender.start(counter.url) as server:
                for workload in workloads:
                    await ask_once(server.url, server.headers, workload)
                    counter.begin()
                    data = await ask_once(server.url, server.headers, workload)
                    answered = Answered(data, dict(counter.calls))
                    _agree(contender.name, workload.name, answered, agreed.setdefault(workload.name, answered))
    return agreed


def _agree(contender: str, workload: str, answered: Answered, agreed: Answered) -> None:
    if answered.data != agreed.data:
        raise Disagreement(f"{workload}: {contender} answers something else at {_first(answered.data, agreed.data)}")
    if answered.calls != agreed.calls:
        raise Disagreement(f"{workload}: {contender} makes other calls: {answered.calls}, not {agreed.calls}")


def _first(one: Any, other: Any, path: str = "data") -> str:
    """Where two answers differ first, and how."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return next(_first(one[name], other[name], f"{path}.{name}") for name in one if one[name] != other[name])
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return next(_first(mine, theirs, f"{path}[{at}]") for at, (mine, theirs) in pairs if mine != theirs)
    return f"{path}: {str(one)[:200]}, not {str(other)[:200]}"


async def _round(server: Running, workload: Workload, total: int, result: Result) -> None:
    gc.collect()
    cpu, began = cpu_seconds(server.pid), time.perf_counter()
    seconds = await _ask(server, workload, total, result.concurrency)
    wall, used = time.perf_counter() - began, cpu_seconds(server.pid) - cpu
    result.cpu.append(used * 1000 / len(seconds))
    result.rate.append(len(seconds) / wall)
    result.seconds += seconds
    result.rss = resident_mb(server.pid)


async def _ask(server: Running, workload: Workload, total: int, concurrency: int) -> list[float]:
    """At least once on each connection; the seconds each took."""
    asked = requests(server.url.partition("//")[2], server.headers, workload)
    return await closed_loop(server.url, asked, max(total, concurrency), concurrency)
