"""The figures as one table in plain text, and as JSON."""

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import orjson

from benchmarks.clients import OURS, ClientResult
from benchmarks.queries import QueryResult
from benchmarks.subscriptions import SubscriptionResult

LIBRARIES = (
    ("aiohttp", "orjson", "uvloop", "uvicorn", "starlette"),
    ("strawberry-graphql", "graphql-core", "boto3", "aiobotocore"),
)


@dataclass(frozen=True, slots=True)
class Report:
    """Everything that was measured."""

    clients: Sequence[ClientResult]
    queries: Sequence[QueryResult]
    subscriptions: SubscriptionResult
    rounds: int
    seconds: float

    def text(self) -> str:
        blocks = (self._head(), _clients(self.clients), _queries(self.queries), _subscriptions(self.subscriptions))
        return "\n\n".join("\n".join(block) for block in blocks)

    def json(self) -> bytes:
        body = {
            "machine": machine(),
            "rounds": self.rounds,
            "clients": [_told(result) for result in self.clients],
            "queries": [result.figures for result in self.queries],
            "subscriptions": asdict(self.subscriptions),
        }
        return orjson.dumps(body, option=orjson.OPT_INDENT_2)

    def _head(self) -> Iterator[str]:
        told = machine()
        yield f"{told['cpus']} CPUs ({told['cpu']}), {told['system']}, Python {told['python']}"
        for libraries in LIBRARIES:
            yield ", ".join(f"{name} {told['libraries'][name]}" for name in libraries)
        yield f"{told['date']}: medians over {_rounds(self.rounds)}, {self.seconds:.0f} s in all"


def _rounds(number: int) -> str:
    return "1 round" if number == 1 else f"{number} rounds"


def machine() -> dict[str, Any]:
    """Where the figures come from."""
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "cpus": os.cpu_count(),
        "cpu": _cpu(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "libraries": {name: version(name) for names in LIBRARIES for name in names},
    }


def _cpu() -> str:
    """The processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _told(result: ClientResult) -> dict[str, Any]:
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
    yield from _table(head, rows)


def _queries(results: Sequence[QueryResult]) -> Iterator[str]:
    yield "Gateway: CPU ms per request of the server process, and what the request asks of DynamoDB"
    head = ["query", "at a time", "CPU ms", "req/s", "p50 ms", "p99 ms", "read units", "DynamoDB calls"]
    rows = [
        [
            told["query"],
            str(told["concurrency"]),
            f"{told['cpu_ms']:.2f}",
            f"{told['requests_per_second']:.0f}",
            f"{told['p50_ms']:.1f}",
            f"{told['p99_ms']:.1f}",
            f"{told['read_units']:g}",
            _calls(told["calls"]),
        ]
        for told in (result.figures for result in results)
    ]
    yield from _table(head, rows)


def _calls(calls: Mapping[str, float]) -> str:
    return " + ".join(f"{number:g} {operation}" for operation, number in calls.items())


def _subscriptions(result: SubscriptionResult) -> Iterator[str]:
    yield "Subscriptions: CPU ms of the server process per 1,000 deliveries; lag from the write to the subscriber"
    head = ["subscribers", "events/s", "deliveries", "missing", "CPU ms", "p50 lag ms", "p99 lag ms"]
    figures = (result.cpu_ms, result.lag_p50_ms, result.lag_p99_ms)
    counts = (result.subscribers, result.events_per_second, result.deliveries, result.missing)
    yield from _table(head, [[*map(str, counts), *(f"{figure:.0f}" for figure in figures)]])


def _table(head: list[str], rows: list[list[str]]) -> Iterator[str]:
    """Texts to the left, figures to the right."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    figures = [cell.replace(".", "").isdigit() for cell in rows[0]]
    for row in (head, ["─" * width for width in widths], *rows):
        cells = zip(row, widths, figures, strict=True)
        yield "  ".join(cell.rjust(width) if figure else cell.ljust(width) for cell, width, figure in cells).rstrip()
