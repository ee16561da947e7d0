"""The figures of the photo library, and the report that has them too."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from benchmarks.documents import DocumentCost, figures, report
from benchmarks.photos import SIZE, PhotoCost
from benchmarks.report import Report
from benchmarks.text_table import table

NOTHING = "–"


@dataclass
class FullReport(Report):
    """Everything that was measured; None is what was left out."""

    photos: Sequence[PhotoCost] | None = None
    documents: Sequence[DocumentCost] | None = None

    def text(self) -> str:
        blocks = [super().text()]
        if self.photos is not None:
            blocks.append("\n".join(photos(self.photos)))
        if self.documents is not None:
            blocks.append("\n".join(report(self.documents)))
        return "\n\n".join(blocks)

    def json(self) -> bytes:
        body = orjson.loads(super().json()) | {
            "photos": [cost.figures for cost in self.photos or ()],
            "documents": figures(self.documents or ()),
        }
        return orjson.dumps(body, option=orjson.OPT_INDENT_2)


def photos(costs: Sequence[PhotoCost]) -> Iterator[str]:
    yield f"The photo library at {SIZE} items: CPU ms of the server process, and what is asked of DynamoDB, each time"
    head = ["what is asked", "CPU ms", "p50 ms", "p99 ms", "read units", "write units", "DynamoDB calls"]
    yield from table(head, [_row(cost.figures) for cost in costs])


def _row(told: Mapping[str, Any]) -> list[str]:
    return [
        told["name"],
        f"{told['cpu_ms']:.2f}",
        f"{told['p50_ms']:.1f}",
        f"{told['p99_ms']:.1f}",
        f"{told['read_units']:g}",
        f"{told['write_units']:g}",
        _calls(told["calls"]),
    ]


def _calls(calls: Mapping[str, float]) -> str:
    return " + ".join(f"{round(number, 1):g} {operation}" for operation, number in calls.items()) or NOTHING
