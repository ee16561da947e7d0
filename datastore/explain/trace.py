"""The trace of an explained operation: which field caused which call (see `report`)."""

from collections.abc import Hashable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from datastore.model.access_patterns import WRITES, AccessPattern

# The field on whose behalf something is asked, as a path without list positions: `homeFeed.nodes.post.author`.
asking: ContextVar[str | None] = ContextVar("asking", default=None)


@dataclass(slots=True, eq=False)
class TracedRead:
    """A question that was put to DynamoDB. `field` is who asked first, None when it was nobody in particular.

    `ahead` tells that it was read for one who will ask in a moment, and has not asked yet; `shared` that another
    operation's read has answered it.
    """

    field: str | None
    pattern: str
    table: str
    ahead: bool = False
    shared: bool = False


@dataclass(frozen=True, slots=True)
class SharedRead:
    """A question that needed no call of its own: `ask` has its answer, or (None) a write or another operation has."""

    field: str | None
    pattern: str
    ask: TracedRead | None


@dataclass(frozen=True, slots=True)
class Details:
    """What is known of a call beside what is known of every call.

    `asks` are the questions it answers, in the order of its keys. `read` and `returned` count items (ScannedCount and
    Count), `written` those put, updated or deleted. `units` are what was consumed, for reading and for writing, by the
    table's full name where DynamoDB tells it.
    """

    asks: tuple[TracedRead, ...]
    read: int
    returned: int
    written: int
    units: Mapping[str | None, tuple[float, float]]


class ReadTrace:
    """The questions of a loader that asks each only once, and the hits of those who ask again."""

    def __init__(self, hits: list[SharedRead]) -> None:
        self._hits = hits
        self._asks: dict[Hashable, TracedRead] = {}
        self._written: set[Hashable] = set()

    def note(self, what: Hashable, pattern: AccessPattern, *, known: bool, ahead: bool = False) -> None:
        """Somebody asks for `what`; `known` tells that it is read already, or on its way."""
        if not known:
            self._written.discard(what)
            self._asks[what] = TracedRead(asking.get(), pattern.id, pattern.table.name, ahead)
            return
        ask = self._asks.get(what)
        if ahead:
            return
        if ask is not None and ask.ahead:
            ask.field, ask.ahead = asking.get(), False
            if ask.shared:
                self._hits.append(SharedRead(ask.field, pattern.id, ask))
        else:
            self._hits.append(SharedRead(asking.get(), pattern.id, None if what in self._written else ask))

    def of(self, what: Iterable[Hashable]) -> tuple[TracedRead, ...]:
        return tuple(self._asks[one] for one in what)

    def shared(self, what: Hashable) -> None:
        """Another operation's read has answered it."""
        ask = self._asks[what]
        ask.shared = True
        if not ask.ahead:
            self._hits.append(SharedRead(ask.field, ask.pattern, ask))

    def written(self, what: Hashable) -> None:
        """A write tells it from now on, whatever was read."""
        self._written.add(what)


def details_of(
    operation: str, payload: Mapping[str, Any], answer: Mapping[str, Any], asks: tuple[TracedRead, ...]
) -> Details:
    """What a call's request and answer tell; the answer of one that failed is empty."""
    returned = _returned(answer)
    return Details(
        asks,
        read=int(answer.get("ScannedCount", returned)),
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
