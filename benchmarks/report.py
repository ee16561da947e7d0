"""The report of a run, as plain text and as JSON."""

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson

from benchmarks import subscriber_report, workload_report
from benchmarks.clients import OURS, ClientResult
from benchmarks.contenders import Result
from benchmarks.queries import QueryResult
from benchmarks.subscribers import SubscribersResult
from benchmarks.text_table import table

LIBRARIES = (
    ("aiohttp", "orjson", "uvloop", "uvicorn", "starlette"),
    ("strawberry-graphql", "graphql-core", "boto3", "aiobotocore"),
)


@dataclass(slots=True)
class Report:
    """The figures of the parts; None for parts that were not measured."""

    rounds: int
    seconds: float = 0.0
    clients: Sequence[ClientResult] | None = None
    queries: Sequence[QueryResult] | None = None
    workloads: Sequence[Result] | None = None
    peers: Sequence[Result] | None = None
    growth: Sequence[Result] | None = None
    subscribers: SubscribersResult | None = None

    def text(self) -> str:
        blocks: list[Iterator[str]] = [self._head()]
        if self.clients is not None:
            blocks.append(_clients(self.clients))
        if self.queries is not None:
            blocks.append(_queries(self.queries))
        if self.workloads is not None:
            blocks.append(workload_report.workloads(self.workloads))
        blocks += [workload_report.peers(results) for results in (self.peers, self.growth) if results]
        if self.subscribers is not None:
            blocks.append(subscriber_report.subscribers(self.subscribers))
        return "\n\n".join("\n".join(block) for block in blocks)

    def json(self) -> bytes:
        body = {
            "machine": machine(),
            "rounds": self.rounds,
            "clients": [_client_figures(result) for result in self.clients or ()],
            "queries": [result.figures for result in self.queries or ()],
            "workloads": [result.figures for result in self.workloads or ()],
            "peers": [result.figures for result in self.peers or ()],
            "growth": [result.figures for result in self.growth or ()],
            "subscribers": None if self.subscribers is None else self.subscribers.figures,
        }
        return orjson.dumps(body, option=orjson.OPT_INDENT_2)

    def _head(self) -> Iterator[str]:
        facts = machine()
        yield f"{facts['cpus']} CPUs ({facts['cpu']}), {facts['system']}, Python {facts['python']}"
        for libraries in LIBRARIES:
            yield ", ".join(f"{name} {facts['libraries'][name]}" for name in libraries)
        yield f"{facts['date']}: medians over {_rounds(self.rounds)}, {self.seconds:.0f} s in all"


def _rounds(number: int) -> str:
    return "1 round" if number == 1 else f"{number} rounds"


def machine() -> dict[str, Any]:
    """Return the date, the machine, and the versions of Python and the libraries."""
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "cpus": os.cpu_count(),
        "cpu": _cpu(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "libraries": {name: version(name) for names in LIBRARIES for name in names},
    }


def _cpu() -> str:
    """Return the name of the processor, or of its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _client_figures(result: ClientResult) -> dict[str, Any]:
    return {
        "operation": result.operation,
        "concurrency": result.concurrency,
        "cpu_ms": {name: result.median(name) for name in result.rounds},
        "ratio_to_ours": {name: result.ratio(name) for name in result.rounds},
        "rounds": result.rounds,
    }


def _clients(results: Sequence[ClientResult]) -> Iterator[str]:
    names = list(results[0].rounds)
    rivals = [name for name in names if name != OURS]
    yield f"DynamoDB client: CPU ms per call of the calling process; × is the ratio to ours ({OURS})"
    head = ["call", "at a time", *(part for name in names for part in ((name, "×") if name in rivals else (name,)))]
    rows = [
        [
            result.operation,
            str(result.concurrency),
            *(
                part
                for name in names
                for part in (f"{result.median(name):.3f}", *([f"{result.ratio(name):.2f}"] if name in rivals else ()))
            ),
        ]
        for result in results
    ]
    yield from table(head, rows)


def _queries(results: Sequence[QueryResult]) -> Iterator[str]:
    yield "Gateway: CPU ms per request of the server process, and what the request asks of DynamoDB"
    head = ["query", "at a time", "CPU ms", "req/s", "p50 ms", "p99 ms", "read units", "DynamoDB calls"]
    rows = [
        [
            figures["query"],
            str(figures["concurrency"]),
            f"{figures['cpu_ms']:.2f}",
            f"{figures['requests_per_second']:.0f}",
            f"{figures['p50_ms']:.1f}",
            f"{figures['p99_ms']:.1f}",
            f"{figures['read_units']:g}",
            _calls(figures["calls"]),
        ]
        for figures in (result.figures for result in results)
    ]
    yield from table(head, rows)


def _calls(calls: Mapping[str, float]) -> str:
    return " + ".join(f"{number:g} {operation}" for operation, number in calls.items())
