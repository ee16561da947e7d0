"""What an operation did to DynamoDB, in words that its author understands: by call and by field.

Nothing is estimated: units, counts and times are those of the calls. Where one call answers several fields, DynamoDB
tells what it cost by table and not by key; its units are then dealt out to the keys evenly, in halves, so that the
fields' shares add up to exactly what was reported.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from datastore.dynamodb.codec import Item, decode_item
from datastore.explain.trace import Details, TracedRead
from datastore.keyspace import TABLES_BY_NAME
from datastore.model.access_patterns import WRITES
from datastore.session.metering import Call, Meter

MOST_CALLS = 200
MOST_KEYS = 100
MOST_KEYS_IN_ALL = 2000
MOST_FIELDS = 500
MOST_CHARACTERS = 200

# What differs between the pages of one Query.
_OF_A_PAGE = ("ExclusiveStartKey", "Limit")

Units = tuple[float, float]
Hide = Callable[[str], str]


@dataclass(slots=True)
class _Entry:
    """Calls that belong together: the pages of a Query or a Scan, or the rounds of a batch."""

    calls: list[Call]
    asks: tuple[TracedRead, ...]

    @property
    def first(self) -> Call:
        return self.calls[0]

    @property
    def details(self) -> Iterator[Details]:
        return (call.details for call in self.calls if call.details is not None)

    def shares(self, prefix: str) -> list[Units]:
        """What each ask has cost, in their order."""
        shares = [(0.0, 0.0)] * len(self.asks)
        for table, units in _added(self.details).items():
            name = (table or "").removeprefix(prefix)
            # A transaction is one ask, whatever tables it writes to.
            own = [at for at, ask in enumerate(self.asks) if ask.table == name] or [0]
            parts = zip(_dealt(units[0], len(own)), _dealt(units[1], len(own)), strict=True)
            for at, part in zip(own, parts, strict=True):
                shares[at] = _sum(shares[at], part)
        return shares


@dataclass(slots=True)
class _Row:
    """A field, and what it asked for."""

    patterns: dict[str, None] = field(default_factory=dict)
    calls: dict[int, None] = field(default_factory=dict)
    reads: int = 0
    writes: int = 0
    hits: int = 0
    shared: int = 0
    units: Units = (0.0, 0.0)


def explained(taken: Meter, *, prefix: str, estimate: float, source: str | None, hide: Hide) -> dict[str, Any]:
    """The explanation as JSON: see docs/edge.md.

    `prefix` is what tables' names begin with, `source` the field on whose behalf is done what no field asked for (that
    of a subscription), `hide` makes texts of keys fit for the reader.
    """
    calls = sorted(taken.calls, key=lambda call: call.started_at)
    entries = list(_entries(calls))
    told = _told_calls(entries, prefix, source, hide)
    rows = _rows(entries, taken, prefix, source)
    explanation: dict[str, Any] = {
        "estimate": estimate,
        "units": _units(_total(_entry_units(entry) for entry in entries)),
        "requests": len(calls),
        "retries": sum(call.attempts - 1 for call in calls),
        "ms": _milliseconds(max((call.started_at + call.seconds for call in calls), default=0.0) - _begin(calls)),
        "calls": told,
        "fields": [_told_row(path, row) for path, row in list(rows.items())[:MOST_FIELDS]],
    }
    omitted = {"calls": len(entries) - len(told), "fields": max(len(rows) - MOST_FIELDS, 0)}
    if any(omitted.values()):
        explanation["omitted"] = omitted
    return explanation


def _entries(calls: Iterable[Call]) -> Iterator[_Entry]:
    """The calls as they belong together, in the order of their beginnings."""
    found: list[_Entry] = []
    open_entries: dict[Any, _Entry] = {}
    for call in calls:
        asks = call.details.asks if call.details is not None else ()
        place = _continued(call, asks)
        entry = open_entries.get(place)
        if entry is not None and _continues(call):
            entry.calls.append(call)
            continue
        open_entries[place] = entry = _Entry([call], asks or (TracedRead(None, "", ""),))
        found.append(entry)
    yield from found


def _continued(call: Call, asks: tuple[TracedRead, ...]) -> Any:
    """What all pages or rounds of one question have in common, and others do not."""
    if call.operation == "BatchGetItem":
        return id(asks)
    if call.operation not in ("Query", "Scan"):
        return id(call)
    rest = {name: value for name, value in call.request.items() if name not in _OF_A_PAGE}
    field_of = asks[0].field if asks else None
    return call.operation, field_of, orjson.dumps(rest, option=orjson.OPT_SORT_KEYS)


def _continues(call: Call) -> bool:
    return call.operation == "BatchGetItem" or "ExclusiveStartKey" in call.request


def _told_calls(entries: Sequence[_Entry], prefix: str, source: str | None, hide: Hide) -> list[dict[str, Any]]:
    told, room = list[dict[str, Any]](), MOST_KEYS_IN_ALL
    start = _begin([entry.first for entry in entries])
    for number, entry in enumerate(entries[:MOST_CALLS], 1):
        one = _told_call(number, entry, prefix, source, hide, min(room, MOST_KEYS), start)
        room -= len(one.get("keys", ()))
        told.append(one)
    return told


def _told_call(
    number: int, entry: _Entry, prefix: str, source: str | None, hide: Hide, room: int, start: float
) -> dict[str, Any]:
    call, details = entry.first, list(entry.details)
    told: dict[str, Any] = {
        "id": number,
        "operation": call.operation,
        "tables": [name.removeprefix(prefix) for name in call.tables],
    }
    if call.index is not None:
        told["index"] = call.index
    told["patterns"] = list(dict.fromkeys(pattern for part in entry.calls for pattern in part.patterns))
    told |= _question(call, prefix, hide, room)
    told["pages"] = len(entry.calls)
    if call.operation.startswith(WRITES):
        told["written"] = sum(part.written for part in details)
    else:
        told["read"] = sum(part.read for part in details)
        told["returned"] = sum(part.returned for part in details)
    told["units"] = _units(_entry_units(entry))
    told["retries"] = sum(part.attempts - 1 for part in entry.calls)
    told["at"] = _milliseconds(call.started_at - start)
    told["ms"] = _milliseconds(sum(part.seconds for part in entry.calls))
    if entry.calls[-1].failed:
        told["failed"] = True
    told["fields"] = list(dict.fromkeys(ask.field or source for ask in entry.asks))
    return told


def _question(call: Call, prefix: str, hide: Hide, room: int) -> dict[str, Any]:
    """What was asked for: a condition with its values, or keys, of which there is room for so many."""
    request = call.request
    if call.operation in ("Query", "Scan"):
        expressions = {"condition": request.get("KeyConditionExpression"), "filter": request.get("FilterExpression")}
        told: dict[str, Any] = {name: text for name, text in expressions.items() if text}
        values = request.get("ExpressionAttributeValues") or {}
        if values:
            told["values"] = {name.removeprefix(":"): _value(value, hide) for name, value in sorted(values.items())}
        return told
    keys = list(_keys(call, prefix))
    told = {"keys": [{name: _value(value, hide) for name, value in key.items()} for key in keys[:room]]}
    return told | ({"omittedKeys": len(keys) - room} if len(keys) > room else {})


def _keys(call: Call, prefix: str) -> Iterator[Item]:
    """The keys of what is read or written by point, undecoded."""
    request = call.request
    if "TableName" in request:
        yield _key(request, request["TableName"], prefix)
    for table, wanted in (request.get("RequestItems") or {}).items():
        if isinstance(wanted, Mapping):
            yield from wanted["Keys"]
            continue
        for write in wanted:
            yield from (_key(body, table, prefix) for body in write.values())
    for action in request.get("TransactItems") or ():
        yield from (_key(body, body["TableName"], prefix) for body in action.values())


def _key(body: Mapping[str, Any], table: str, prefix: str) -> Item:
    if "Key" in body:
        return dict(body["Key"])
    names = TABLES_BY_NAME[table.removeprefix(prefix)].key_attributes()
    return {name: body["Item"][name] for name in names}


def _value(raw: Any, hide: Hide) -> Any:
    """A value as JSON holds it: long texts are cut short, what is neither text nor number is told as text."""
    value = decode_item({"value": raw})["value"]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float) and abs(value) < 2**53:
        return value
    text = hide(value if isinstance(value, str) else str(value))
    return text if len(text) <= MOST_CHARACTERS else text[:MOST_CHARACTERS] + "…"


def _rows(entries: Sequence[_Entry], taken: Meter, prefix: str, source: str | None) -> dict[str | None, _Row]:
    rows: dict[str | None, _Row] = {}
    numbers: dict[int, int] = {}
    for number, entry in enumerate(entries, 1):
        writes = entry.first.operation.startswith(WRITES)
        for ask, share in zip(entry.asks, entry.shares(prefix), strict=True):
            row = rows.setdefault(ask.field or source, _Row())
            row.patterns |= {ask.pattern: None} if ask.pattern else {}
            row.calls[number] = None
            row.reads += not writes
            row.writes += writes
            row.units = _sum(row.units, share)
            numbers[id(ask)] = number
    for hit in taken.hits:
        row = rows.setdefault(hit.field or source, _Row())
        row.patterns[hit.pattern] = None
        row.hits += 1
        row.shared += hit.ask is not None and hit.ask.shared
        if id(hit.ask) in numbers:
            row.calls[numbers[id(hit.ask)]] = None
    return dict(sorted(rows.items(), key=lambda row: (row[0] or "").split(".")))


def _told_row(path: str | None, row: _Row) -> dict[str, Any]:
    return {
        "path": path,
        "patterns": list(row.patterns),
        "calls": sorted(number for number in row.calls if number <= MOST_CALLS),
        "reads": row.reads,
        "writes": row.writes,
        "hits": row.hits,
        "units": _units(row.units),
    } | ({"shared": row.shared} if row.shared else {})


def _begin(calls: Sequence[Call]) -> float:
    return calls[0].started_at if calls else 0.0


def _entry_units(entry: _Entry) -> Units:
    return _total(_added(entry.details).values())


def _added(details: Iterable[Details]) -> dict[str | None, Units]:
    """The units of several calls, by table."""
    found: dict[str | None, Units] = {}
    for part in details:
        for table, units in part.units.items():
            found[table] = _sum(found.get(table, (0.0, 0.0)), units)
    return found


def _total(parts: Iterable[Units]) -> Units:
    total = 0.0, 0.0
    for part in parts:
        total = _sum(total, part)
    return total


def _sum(one: Units, other: Units) -> Units:
    return one[0] + other[0], one[1] + other[1]


def _dealt(units: float, parts: int) -> list[float]:
    """So many units in parts, of halves as equal as can be; what is no half goes to the first."""
    halves = int(units * 2)
    shares = [(halves * (at + 1) // parts - halves * at // parts) / 2 for at in range(parts)]
    shares[0] += units - halves / 2
    return shares


def _units(units: Units) -> dict[str, float]:
    return {"read": units[0], "write": units[1]}


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 2)
