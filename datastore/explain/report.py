"""The report of an explained operation: its calls to DynamoDB, and the units of each call and field.

Units, counts and times are measured, not estimated. DynamoDB reports the units of a call by table and not by key. If
one call serves several fields, its units are divided evenly among the keys, in halves of a unit, so that the shares of
the fields add up to the reported sum.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, NamedTuple

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

# The parameters that differ between the pages of one Query.
_PAGE_PARAMETERS = ("ExclusiveStartKey", "Limit")

Redact = Callable[[str], str]


class Units(NamedTuple):
    """Read and write units."""

    read: float = 0.0
    write: float = 0.0

    def plus(self, other: tuple[float, float]) -> "Units":
        return Units(self.read + other[0], self.write + other[1])


@dataclass(slots=True)
class _CallGroup:
    """Calls that belong together: the pages of a Query or a Scan, or the rounds of a batch."""

    calls: list[Call]
    traced: tuple[TracedRead, ...]

    @property
    def first(self) -> Call:
        return self.calls[0]

    @property
    def details(self) -> Iterator[CallDetails]:
        return (call.details for call in self.calls if call.details is not None)

    def shares(self, prefix: str) -> list[Units]:
        """Return the units of each traced read, in their order."""
        shares = [Units()] * len(self.traced)
        for table, units in self.units_by_table().items():
            name = (table or "").removeprefix(prefix)
            # A transaction is traced as one write, although it may write to several tables.
            own = [at for at, read in enumerate(self.traced) if read.table == name] or [0]
            parts = zip(_split_evenly(units.read, len(own)), _split_evenly(units.write, len(own)), strict=True)
            for at, part in zip(own, parts, strict=True):
                shares[at] = shares[at].plus(part)
        return shares

    def units_by_table(self) -> dict[str | None, Units]:
        found: dict[str | None, Units] = {}
        for details in self.details:
            for table, units in details.units.items():
                found[table] = found.get(table, Units()).plus(units)
        return found

    def units(self) -> Units:
        return _total(self.units_by_table().values())


@dataclass(slots=True)
class _FieldRow:
    """The reads and writes of one field. `patterns` and `calls` are ordered sets."""

    patterns: dict[str, None] = field(default_factory=dict)
    calls: dict[int, None] = field(default_factory=dict)
    reads: int = 0
    writes: int = 0
    hits: int = 0
    shared: int = 0
    units: Units = Units()  # noqa: RUF009 - a tuple


def explanation_of(meter: Meter, *, prefix: str, estimate: float, source: str | None, redact: Redact) -> dict[str, Any]:
    """Return the report as JSON: see docs/observability.md.

    `prefix` is removed from the names of tables. `source` is the field to which calls outside of all fields are
    attributed: the field of a subscription. `redact` is applied to the texts of keys.
    """
    calls = sorted(meter.calls, key=lambda call: call.started_at)
    groups = list(_call_groups(calls))
    call_objects = _call_objects(groups, prefix, source, redact)
    rows = _field_rows(groups, meter, prefix, source)
    explanation: dict[str, Any] = {
        "estimate": estimate,
        "units": _total(group.units() for group in groups)._asdict(),
        "requests": len(calls),
        "retries": sum(call.attempts - 1 for call in calls),
        "ms": _milliseconds(max((call.started_at + call.seconds for call in calls), default=0.0) - _start_of(calls)),
        "calls": call_objects,
        "fields": [_field_object(path, row) for path, row in list(rows.items())[:MAX_FIELDS]],
    }
    omitted = {"calls": len(groups) - len(call_objects), "fields": max(len(rows) - MAX_FIELDS, 0)}
    if any(omitted.values()):
        explanation["omitted"] = omitted
    return explanation


def _call_groups(calls: Iterable[Call]) -> Iterator[_CallGroup]:
    """Yield groups of calls, in the order of their first calls."""
    found: list[_CallGroup] = []
    open_groups: dict[Any, _CallGroup] = {}
    for call in calls:
        traced = call.details.traced if call.details is not None else ()
        key = _grouping_key(call, traced)
        group = open_groups.get(key)
        if group is not None and _is_continuation(call):
            group.calls.append(call)
            continue
        open_groups[key] = group = _CallGroup([call], traced or (TracedRead(None, "", ""),))
        found.append(group)
    yield from found


def _grouping_key(call: Call, traced: tuple[TracedRead, ...]) -> Any:
    """Return a key that all pages of one Query or Scan, or all rounds of one batch, share."""
    if call.operation == "BatchGetItem":
        return id(traced)
    if call.operation not in ("Query", "Scan"):
        return id(call)
    rest = {name: value for name, value in call.request.items() if name not in _PAGE_PARAMETERS}
    field_of = traced[0].field if traced else None
    return call.operation, field_of, orjson.dumps(rest, option=orjson.OPT_SORT_KEYS)


def _is_continuation(call: Call) -> bool:
    return call.operation == "BatchGetItem" or "ExclusiveStartKey" in call.request


def _call_objects(
    groups: Sequence[_CallGroup], prefix: str, source: str | None, redact: Redact
) -> list[dict[str, Any]]:
    objects, room = list[dict[str, Any]](), MAX_TOTAL_KEYS
    start = _start_of([group.first for group in groups])
    for number, group in enumerate(groups[:MAX_CALLS], 1):
        call = _call_object(number, group, prefix, source, redact, min(room, MAX_KEYS), start)
        room -= len(call.get("keys", ()))
        objects.append(call)
    return objects


def _call_object(
    number: int, group: _CallGroup, prefix: str, source: str | None, redact: Redact, room: int, start: float
) -> dict[str, Any]:
    call, details = group.first, list(group.details)
    call_object: dict[str, Any] = {
        "id": number,
        "operation": call.operation,
        "tables": [name.removeprefix(prefix) for name in call.tables],
    }
    if call.index is not None:
        call_object["index"] = call.index
    call_object["patterns"] = list(dict.fromkeys(pattern for part in group.calls for pattern in part.patterns))
    call_object |= _request_object(call, prefix, redact, room)
    call_object["pages"] = len(group.calls)
    if call.operation.startswith(WRITES):
        call_object["written"] = sum(part.written for part in details)
    else:
        call_object["read"] = sum(part.scanned for part in details)
        call_object["returned"] = sum(part.returned for part in details)
    call_object["units"] = group.units()._asdict()
    call_object["retries"] = sum(part.attempts - 1 for part in group.calls)
    call_object["at"] = _milliseconds(call.started_at - start)
    call_object["ms"] = _milliseconds(sum(part.seconds for part in group.calls))
    if group.calls[-1].failed:
        call_object["failed"] = True
    call_object["fields"] = list(dict.fromkeys(read.field or source for read in group.traced))
    return call_object


def _request_object(call: Call, prefix: str, redact: Redact, room: int) -> dict[str, Any]:
    """Return the request: a condition with its values, or at most `room` keys."""
    request = call.request
    if call.operation in ("Query", "Scan"):
        expressions = {"condition": request.get("KeyConditionExpression"), "filter": request.get("FilterExpression")}
        request_object: dict[str, Any] = {name: text for name, text in expressions.items() if text}
        values = request.get("ExpressionAttributeValues") or {}
        if values:
            request_object["values"] = {
                name.removeprefix(":"): _value(value, redact) for name, value in sorted(values.items())
            }
        return request_object
    keys = list(_keys(call, prefix))
    request_object = {"keys": [{name: _value(value, redact) for name, value in key.items()} for key in keys[:room]]}
    return request_object | ({"omittedKeys": len(keys) - room} if len(keys) > room else {})


def _keys(call: Call, prefix: str) -> Iterator[Item]:
    """Yield the keys of a point read or a write, undecoded."""
    request = call.request
    if "TableName" in request:
        yield _key(request, request["TableName"], prefix)
    for table, writes_or_keys in (request.get("RequestItems") or {}).items():
        if isinstance(writes_or_keys, Mapping):
            yield from writes_or_keys["Keys"]
            continue
        for write in writes_or_keys:
            yield from (_key(body, table, prefix) for body in write.values())
    for action in request.get("TransactItems") or ():
        yield from (_key(body, body["TableName"], prefix) for body in action.values())


def _key(body: Mapping[str, Any], table: str, prefix: str) -> Item:
    if "Key" in body:
        return dict(body["Key"])
    names = TABLES_BY_NAME[table.removeprefix(prefix)].key_attributes()
    return {name: body["Item"][name] for name in names}


def _value(raw: Any, redact: Redact) -> Any:
    """Return a value for JSON: long texts are shortened, and values other than texts and numbers become texts."""
    value = decode_item({"value": raw})["value"]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int | float) and abs(value) < 2**53:
        return value
    text = redact(value if isinstance(value, str) else str(value))
    return text if len(text) <= MAX_CHARACTERS else text[:MAX_CHARACTERS] + "…"


def _field_rows(
    groups: Sequence[_CallGroup], meter: Meter, prefix: str, source: str | None
) -> dict[str | None, _FieldRow]:
    rows: dict[str | None, _FieldRow] = {}
    numbers: dict[int, int] = {}
    for number, group in enumerate(groups, 1):
        writes = group.first.operation.startswith(WRITES)
        for read, share in zip(group.traced, group.shares(prefix), strict=True):
            row = rows.setdefault(read.field or source, _FieldRow())
            row.patterns |= {read.pattern: None} if read.pattern else {}
            row.calls[number] = None
            row.reads += not writes
            row.writes += writes
            row.units = row.units.plus(share)
            numbers[id(read)] = number
    for hit in meter.hits:
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
        "units": row.units._asdict(),
    } | ({"shared": row.shared} if row.shared else {})


def _start_of(calls: Sequence[Call]) -> float:
    return calls[0].started_at if calls else 0.0


def _total(parts: Iterable[Units]) -> Units:
    return reduce(Units.plus, parts, Units())


def _split_evenly(units: float, parts: int) -> list[float]:
    """Divide units into parts, as evenly as halves of a unit allow. A remainder below a half goes to the first part."""
    halves = int(units * 2)
    shares = [(halves * (at + 1) // parts - halves * at // parts) / 2 for at in range(parts)]
    shares[0] += units - halves / 2
    return shares


def _milliseconds(seconds: float) -> float:
    return round(seconds * 1000, 2)
