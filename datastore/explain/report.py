"""What an operation did to DynamoDB, in words that its author understands: by call and by field.

Nothing is estimated: units, counts and times are those of the calls. Where one call answers several fields, DynamoDB
tells what it cost by table and not by key; its units are then dealt out to the keys evenly, in halves, so that the
fields' shares add up to exactly what was reported.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from datastore.dynamodb.calls import Call, CallDetails, TracedRead
from datastore.dynamodb.codec import Item, decode_item
from datastore.keyspace import TABLES_BY_NAME
from datastore.model.access_patterns import WRITES
from datastore.session.metering import Meter

MAX_CALLS = 200
MAX_KEYS = 100
MAX_TOTAL_KEYS = 2000
MAX_FIELDS = 500
MAX_CHARACTERS = 200

# What differs between the pages of one Query.
_PAGE_PARAMETERS = ("ExclusiveStartKey", "Limit")

Units = tuple[float, float]
Hide = Callable[[str], str]


@dataclass(slots=True)
class _CallGroup:
    """Calls that belong together: the pages of a Query or a Scan, or the rounds of a batch."""

    calls: list[Call]
    asks: tuple[TracedRead, ...]

    @property
    def first(self) -> Call:
        return self.calls[0]

    @property
    def details(self) -> Iterator[CallDetails]:
        return (call.details for call in self.calls if call.details is not None)

    def shares(self, prefix: str) -> list[Units]:
        """What each ask has cost, in their order."""
        shares = [(0.0, 0.0)] * len(self.asks)
        for table, units in _units_by_table(self.details).items():
            name = (table or "").removeprefix(prefix)
            # A transaction is one ask, whatever tables it writes to.
            own = [at for at, ask in enumerate(self.asks) if ask.table == name] or [0]
            parts = zip(_split_evenly(units[0], len(own)), _split_evenly(units[1], len(own)), strict=True)
            for at, part in zip(own, parts, strict=True):
                shares[at] = _sum(shares[at], part)
        return shares


@dataclass(slots=True)
class _FieldRow:
    """A field, and what it asked for."""

    patterns: dict[str, None] = field(default_factory=dict)
    calls: dict[int, None] = field(default_factory=dict)
    reads: int = 0
    writes: int = 0
    hits: int = 0
    shared: int = 0
    units: Units = (0.0, 0.0)


def explanation_of(taken: Meter, *, prefix: str, estimate: float, source: str | None, hide: Hide) -> dict[str, Any]:
    """The explanation as JSON: see docs/observability.md.

    `prefix` is what tables' names begin with, `source` the field on whose behalf is done what no field asked for (that
    of a subscription), `hide` makes texts of keys fit for the reader.
    """
    calls = sorted(taken.calls, key=lambda call: call.started_at)
    entries = list(_call_groups(calls))
    call_objects = _call_objects(entries, prefix, source, hide)
    rows = _field_rows(entries, taken, prefix, source)
    explanation: dict[str, Any] = {
        "estimate": estimate,
        "units": _units(_total(_group_units(entry) for entry in entries)),
        "requests": len(calls),
        "retries": sum(call.attempts - 1 for call in calls),
        "ms": _milliseconds(max((call.started_at + call.seconds for call in calls), default=0.0) - _start_of(calls)),
        "calls": call_objects,
        "fields": [_field_object(path, row) for path, row in list(rows.items())[:MAX_FIELDS]],
    }
    omitted = {"calls": len(entries) - len(call_objects), "fields": max(len(rows) - MAX_FIELDS, 0)}
    if any(omitted.values()):
        explanation["omitted"] = omitted
    return explanation


def _call_groups(calls: Iterable[Call]) -> Iterator[_CallGroup]:
    """The calls as they belong together, in the order of their beginnings."""
    found: list[_CallGroup] = []
    open_entries: dict[Any, _CallGroup] = {}
    for call in calls:
        asks = call.details.traced if call.details is not None else ()
        place = _grouping_key(call, asks)
        entry = open_entries.get(place)
        if entry is not None and _is_continuation(call):
            entry.calls.append(call)
            continue
        open_entries[place] = entry = _CallGroup([call], asks or (TracedRead(None, "", ""),))
        found.append(entry)
    yield from found


def _grouping_key(call: Call, asks: tuple[TracedRead, ...]) -> Any:
    """What all pages or rounds of one question have in common, and others do not."""
    if call.operation == "BatchGetItem":
        return id(asks)
    if call.operation not in ("Query", "Scan"):
        return id(call)
    rest = {name: value for name, value in call.request.items() if name not in _PAGE_PARAMETERS}
    field_of = asks[0].field if asks else None
    return call.operation, field_of, orjson.dumps(rest, option=orjson.OPT_SORT_KEYS)


def _is_continuation(call: Call) -> bool:
    return call.operation == "BatchGetItem" or "ExclusiveStartKey" in call.request


def _call_objects(entries: Sequence[_CallGroup], prefix: str, source: str | None, hide: Hide) -> list[dict[str, Any]]:
    objects, room = list[dict[str, Any]](), MAX_TOTAL_KEYS
    start = _start_of([entry.first for entry in entries])
    for number, entry in enumerate(entries[:MAX_CALLS], 1):
        call = _call_object(number, entry, prefix, source, hide, min(room, MAX_KEYS), start)
        room -= len(call.get("keys", ()))
        objects.append(call)
    return objects


def _call_object(
    number: int, entry: _CallGroup, prefix: str, source: str | None, hide: Hide, room: int, start: float
) -> dict[str, Any]:
    call, details = entry.first, list(entry.details)
    entry_object: dict[str, Any] = {
        "id": number,
        "operation": call.operation,
        "tables": [name.removeprefix(prefix) for name in call.tables],
    }
    if call.index is not None:
        entry_object["index"] = call.index
    entry_object["patterns"] = list(dict.fromkeys(pattern for part in entry.calls for pattern in part.patterns))
    entry_object |= _request_object(call, prefix, hide, room)
    entry_object["pages"] = len(entry.calls)
    if call.operation.startswith(WRITES):
        entry_object["written"] = sum(part.written for part in details)
    else:
        entry_object["read"] = sum(part.scanned for part in details)
        entry_object["returned"] = sum(part.returned for part in details)
    entry_object["units"] = _units(_group_units(entry))
    entry_object["retries"] = sum(part.attempts - 1 for part in entry.calls)
    entry_object["at"] = _milliseconds(call.started_at - start)
    entry_object["ms"] = _milliseconds(sum(part.seconds for part in entry.calls))
    if entry.calls[-1].failed:
        entry_object["failed"] = True
    entry_object["fields"] = list(dict.fromkeys(ask.field or source for ask in entry.asks))
    return entry_object


def _request_object(call: Call, prefix: str, hide: Hide, room: int) -> dict[str, Any]:
    """Return the request: a condition with its values, or keys, of which `room` are listed."""
    request = call.request
    if call.operation in ("Query", "Scan"):
        expressions = {"condition": request.get("KeyConditionExpression"), "filter": request.get("FilterExpression")}
        request_object: dict[str, Any] = {name: text for name, text in expressions.items() if text}
        values = request.get("ExpressionAttributeValues") or {}
        if values:
            request_object["values"] = {
                name.removeprefix(":"): _value(value, hide) for name, value in sorted(values.items())
            }
        return request_object
    keys = list(_keys(call, prefix))
    request_object = {"keys": [{name: _value(value, hide) for name, value in key.items()} for key in keys[:room]]}
    return request_object | ({"omittedKeys": len(keys) - room} if len(keys) > room else {})


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
    """Return a value for JSON: long texts are shortened, and values other than texts and numbers become texts."""
    value = decode_item({"value": raw})["value"]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float) and abs(value) < 2**53:
        return value
    text = hide(value if isinstance(value, str) else str(value))
    return text if len(text) <= MAX_CHARACTERS else text[:MAX_CHARACTERS] + "…"


def _field_rows(
    entries: Sequence[_CallGroup], taken: Meter, prefix: str, source: str | None
) -> dict[str | None, _FieldRow]:
    rows: dict[str | None, _FieldRow] = {}
    numbers: dict[int, int] = {}
    for number, entry in enumerate(entries, 1):
        writes = entry.first.operation.startswith(WRITES)
        for ask, share in zip(entry.asks, entry.shares(prefix), strict=True):
            row = rows.setdefault(ask.field or source, _FieldRow())
            row.patterns |= {ask.pattern: None} if ask.pattern else {}
            row.calls[number] = None
            row.reads += not writes
            row.writes += writes
            row.units = _sum(row.units, share)
            numbers[id(ask)] = number
    for hit in taken.hits:
        row = rows.setdefault(hit.field or source, _FieldRow())
        row.patterns[hit.pattern] = None
        row.hits += 1
        row.shared += hit.traced is not None and hit.traced.from_other_request
        if id(hit.traced) in numbers:
            row.calls[numbers[id(hit.traced)]] = None
    return dict(sorted(rows.items(), key=lambda row: (row[0] or "").split(".")))


def _field_object(path: str | None, row: _FieldRow) -> dict[str, Any]:
    return {
        "path": path,
        "patterns": list(row.patterns),
        "calls": sorted(number for number in row.calls if number <= MAX_CALLS),
        "reads": row.reads,
        "writes": row.writes,
        "hits": row.hits,
        "units": _units(row.units),
    } | ({"shared": row.shared} if row.shared else {})


def _start_of(calls: Sequence[Call]) -> float:
    return calls[0].started_at if calls else 0.0


def _group_units(entry: _CallGroup) -> Units:
    return _total(_units_by_table(entry.details).values())


def _units_by_table(details: Iterable[CallDetails]) -> dict[str | None, Units]:
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


def _split_evenly(units: float, parts: int) -> list[float]:
    """So many units in parts, of halves as equal as can be; what is no half goes to the first."""
    halves = int(units * 2)
    shares = [(halves * (at + 1) // parts - halves * at // parts) / 2 for at in range(parts)]
    shares[0] += units - halves / 2
    return shares


def _units(units: Units) -> dict[str, float]:
    return {"read": units[0], "write": units[1]}


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 2)
