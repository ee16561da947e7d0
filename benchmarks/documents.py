"""How long documents take to be refused or accepted: every hostile shape, in CPU time of this process."""

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
LONGEST_TOLD = 60


@dataclass(frozen=True, slots=True)
class DocumentCost:
    """What became of one shape, and the least milliseconds it took over all rounds, at the size that takes longest."""

    shape: str
    size: int
    milliseconds: float
    became: str


def measure(rounds: int) -> list[DocumentCost]:
    """The slowest first. Nothing is kept from one document to the next but what the schema remembers."""
    documents = Documents(schema.build())
    found: dict[str, DocumentCost] = {}
    for size in SIZES:
        for shape, text in shapes(size).items():
            cost = DocumentCost(shape, len(text), *_least(documents, text, rounds))
            if shape not in found or cost.milliseconds > found[shape].milliseconds:
                found[shape] = cost
    return sorted(found.values(), key=lambda cost: -cost.milliseconds)


def _least(documents: Documents, text: str, rounds: int) -> tuple[float, str]:
    least, became = float("inf"), ""
    for _ in range(max(2, rounds)):
        began = time.process_time()
        became = _became(documents, text)
        least = min(least, time.process_time() - began)
    return least * 1000, became


def _became(documents: Documents, text: str) -> str:
    try:
        estimate = documents.check(text).operations[0].estimate({}).units
    except DocumentRejected as rejected:
        return str(format_errors(rejected.errors)[0]["message"])
    return f"accepted: {estimate:g} read units"


def report(costs: Sequence[DocumentCost]) -> Iterator[str]:
    """The figures as a table."""
    yield "Documents: CPU ms from the text to the estimate or the errors as they are told, the least of all rounds"
    rows = [
        [cost.shape, str(cost.size), f"{cost.milliseconds:.2f}", " ".join(cost.became.split())[:LONGEST_TOLD]]
        for cost in costs
    ]
    yield from table(["shape", "bytes", "CPU ms", "what became of it"], rows)


def figures(costs: Sequence[DocumentCost]) -> list[dict[str, Any]]:
    return [asdict(cost) for cost in costs]
