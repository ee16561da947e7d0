"""The trace of an explained operation: which field caused which call (see `report`)."""

from collections.abc import Hashable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from datastore.model.access_patterns import WRITES, AccessPattern

# The field on whose behalf something is asked, as a path without list positions: `homeFeed.nodes.post.author`.
current_field: ContextVar[str | None] = ContextVar("asking", default=None)


@dataclass(slots=True, eq=False)
class TracedRead:
    """A question that was put to DynamoDB. `field` is who asked first, None when it was nobody in particular.

    `ahead` tells that it was read for one who will ask in a moment, and has not asked yet; `shared` that another
    operation's read has answered it.
    """

    field: str | None
    pattern: str
    table: str
    prefetched: bool = False
    from_other_request: bool = False


@dataclass(frozen=True, slots=True)
class SharedRead:
    """A question that needed no call of its own: `ask` has its answer, or (None) a write or another operation has."""

    field: str | None
    pattern: str
    traced: TracedRead | None


@dataclass(frozen=True, slots=True)
class CallDetails:
    """What is known of a call beside what is known of every call.

    `asks` are the questions it answers, in the order of its keys. `read` and `returned` count items (ScannedCount and
    Count), `written` those put, updated or deleted. `units` are what was consumed, for reading and for writing, by the
    table's full name where DynamoDB tells it.
    """

    traced: tuple[TracedRead, ...]
    scanned: int
    returned: int
    written: int
    units: Mapping[str | None, tuple[float, float]]


class ReadTrace:
    """The questions of a loader that asks each only once, and the hits of those who ask again."""

    def __init__(self, hits: list[SharedRead]) -> None:
        self._hits = hits
        self._reads: dict[Hashable, TracedRead] = {}
        self._written: set[Hashable] = set()

    def record(self, address: Hashable, pattern: AccessPattern, *, is_loaded: bool, prefetched: bool = False) -> None:
        """Somebody asks for `what`; `known` tells that it is read already, or on its way."""
        if not is_loaded:
            self._written.discard(address)
            self._reads[address] = TracedRead(current_field.get(), pattern.id, pattern.table.name, prefetched)
            return
        read = self._reads.get(address)
        if prefetched:
            return
        if read is not None and read.prefetched:
            read.field, read.prefetched = current_field.get(), False
            if read.from_other_request:
                self._hits.append(SharedRead(read.field, pattern.id, read))
        else:
            self._hits.append(SharedRead(current_field.get(), pattern.id, None if address in self._written else read))

    def traced(self, address: Iterable[Hashable]) -> tuple[TracedRead, ...]:
        return tuple(self._reads[one] for one in address)

    def mark_shared(self, address: Hashable) -> None:
        """Another operation's read has answered it."""
        read = self._reads[address]
        read.from_other_request = True
        if not read.prefetched:
            self._hits.append(SharedRead(read.field, read.pattern, read))

    def mark_written(self, address: Hashable) -> None:
        """A write tells it from now on, whatever was read."""
        self._written.add(address)


def call_details(
    operation: str, payload: Mapping[str, Any], answer: Mapping[str, Any], traced: tuple[TracedRead, ...]
) -> CallDetails:
    """What a call's request and answer tell; the answer of one that failed is empty."""
    returned = _returned(answer)
    return CallDetails(
        traced,
        scanned=int(answer.get("ScannedCount", returned)),
        returned=returned,
        written=_written(operation, payload, answer) if answer else 0,
        units=_units(operation, answer),
    )


def _returned(answer: Mapping[str, Any]) -> int:
    if "Count" in answer:
        return int(answer["Count"])
    if "Responses" in answer:
        return sum(map(len, answer["Responses"].values()))
    return 1 if answer.get("Item") else 0


def _written(operation: str, payload: Mapping[str, Any], answer: Mapping[str, Any]) -> int:
    if not operation.startswith(WRITES):
        return 0
    if operation == "BatchWriteItem":
        left = answer.get("UnprocessedItems") or {}
        return sum(map(len, payload["RequestItems"].values())) - sum(map(len, left.values()))
    if operation == "TransactWriteItems":
        return sum("ConditionCheck" not in action for action in payload["TransactItems"])
    return 1


def _units(operation: str, answer: Mapping[str, Any]) -> dict[str | None, tuple[float, float]]:
    """DynamoDB tells reading and writing apart for transactions only; other calls do either."""
    consumed = answer.get("ConsumedCapacity") or ()
    found: dict[str | None, tuple[float, float]] = {}
    for entry in [consumed] if isinstance(consumed, dict) else consumed:
        units = float(entry.get("CapacityUnits", 0.0))
        default = 0.0 if "ReadCapacityUnits" in entry or not operation.startswith(WRITES) else units
        written = float(entry.get("WriteCapacityUnits", default))
        read, before = units - written, found.get(entry.get("TableName"), (0.0, 0.0))
        found[entry.get("TableName")] = before[0] + read, before[1] + written
    return found
