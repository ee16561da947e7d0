"""Plain-text tables of the photo library's figures, and the full report."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from benchmarks import subscriber_report, workload_report
from benchmarks.bus import BusResult
from benchmarks.bus import report as bus_report
from benchmarks.contenders import Result
from benchmarks.documents import DocumentCost, figures, report
from benchmarks.photos import SIZE, PhotoCost
from benchmarks.report import Report
from benchmarks.slow_readers import SlowReadersResult
from benchmarks.slow_readers import report as slow_readers_report
from benchmarks.subscribers import SubscribersResult
from benchmarks.text_table import table

EMPTY = "–"


@dataclass
class FullReport(Report):
    """The figures of all parts; None for parts that were not measured."""

    photos: Sequence[PhotoCost] | None = None
    documents: Sequence[DocumentCost] | None = None
    workloads: Sequence[Result] | None = None
    peers: Sequence[Result] | None = None
    growth: Sequence[Result] | None = None
    subscribers: SubscribersResult | None = None
    bus: BusResult | None = None
    slow: SlowReadersResult | None = None

    def text(self) -> str:
        blocks = [super().text()]
        if self.photos is not None:
            blocks.append("\n".join(photos(self.photos)))
        if self.documents is not None:
            blocks.append("\n".join(report(self.documents)))
        if self.workloads is not None:
            blocks.append("\n".join(workload_report.workloads(self.workloads)))
        blocks += ["\n".join(workload_report.peers(results)) for results in (self.peers, self.growth) if results]
        if self.subscribers is not None:
            blocks.append("\n".join(subscriber_report.subscribers(self.subscribers)))
        if self.bus is not None:
            blocks.append("\n".join(bus_report(self.bus)))
        if self.slow is not None:
            blocks.append("\n".join(slow_readers_report(self.slow)))
        return "\n\n".join(blocks)

    def json(self) -> bytes:
        body = orjson.loads(super().json()) | {
            "photos": [cost.figures for cost in self.photos or ()],
            "documents": figures(self.documents or ()),
            "workloads": [result.figures for result in self.workloads or ()],
            "peers": [result.figures for result in self.peers or ()],
            "growth": [result.figures for result in self.growth or ()],
            "bus": self.bus,
            "slow": self.slow,
            "subscribers": None if self.subscribers is None else self.subscribers.figures,
        }
        return orjson.dumps(body, option=orjson.OPT_INDENT_2)


def photos(costs: Sequence[PhotoCost]) -> Iterator[str]:
    yield f"The photo library at {SIZE} items: CPU ms of the server process and DynamoDB calls of each request"
    head = ["request", "CPU ms", "p50 ms", "p99 ms", "read units", "write units", "DynamoDB calls"]
    yield from table(head, [_row(cost.figures) for cost in costs])


def _row(figures: Mapping[str, Any]) -> list[str]:
    return [
        figures["name"],
        f"{figures['cpu_ms']:.2f}",
        f"{figures['p50_ms']:.1f}",
        f"{figures['p99_ms']:.1f}",
        f"{figures['read_units']:g}",
        f"{figures['write_units']:g}",
        _calls(figures["calls"]),
    ]


def _calls(calls: Mapping[str, float]) -> str:
    return " + ".join(f"{round(number, 1):g} {operation}" for operation, number in calls.items()) or EMPTY
