"""The CPU time to check hostile documents, for every shape."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import schema
from benchmarks.hostile_documents import shapes
from benchmarks.text_table import table
from server.documents.document_cache import DocumentRejected, Documents
from server.operations.outcome import format_errors

SIZES = (1_024, 2_048, 4_096, 8_192, 16_384)
MAX_OUTCOME_LENGTH = 60


@dataclass(frozen=True, slots=True)
class DocumentCost:
    """The outcome and the lowest CPU time of all rounds for one shape, at the size that takes longest."""

    shape: str
    size: int
    milliseconds: float
    outcome: str


def measure(rounds: int) -> list[DocumentCost]:
    """Measure all shapes. Return the slowest first. Documents share no caches except those of the schema."""
    documents = Documents(schema.build())
    found: dict[str, DocumentCost] = {}
    for size in SIZES:
        for shape, text in shapes(size).items():
            cost = DocumentCost(shape, len(text), *_least(documents, text, rounds))
            if shape not in found or cost.milliseconds > found[shape].milliseconds:
                found[shape] = cost
    return sorted(found.values(), key=lambda cost: -cost.milliseconds)


def _least(documents: Documents, text: str, rounds: int) -> tuple[float, str]:
    least, outcome = float("inf"), ""
    for _ in range(max(2, rounds)):
        began = time.process_time()
        outcome = _outcome(documents, text)
        least = min(least, time.process_time() - began)
    return least * 1000, outcome


def _outcome(documents: Documents, text: str) -> str:
    try:
        estimate = documents.check(text).operations[0].estimate({}).units
    except DocumentRejected as rejected:
        return str(format_errors(rejected.errors)[0]["message"])
    return f"accepted: {estimate:g} read units"


def report(costs: Sequence[DocumentCost]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "Documents: CPU ms from the text to the estimate or the encoded errors, the lowest of all rounds"
    rows = [
        [cost.shape, str(cost.size), f"{cost.milliseconds:.2f}", " ".join(cost.outcome.split())[:MAX_OUTCOME_LENGTH]]
        for cost in costs
    ]
    yield from table(["shape", "bytes", "CPU ms", "outcome"], rows)


def figures(costs: Sequence[DocumentCost]) -> list[dict[str, Any]]:
    return [asdict(cost) for cost in costs]
