"""Requests to read as JSON, from templates: what is the same every time is written once, values are put in between.

A template is made for each table or access pattern, the tables' prefix, and which clauses and options a request has.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from datastore.attributes import encode, encode_item
from datastore.declarations import AccessPattern, Table, aliases_in, values_in
from datastore.keyspace.parts import Key
from datastore.requests import Prepared

_json = orjson.dumps
# All there are, with room to spare: patterns are few, and each is asked in two or three ways.
KEPT = 4096


class PointRequests:
    """GetItem and BatchGetItem for one table by its full name."""

    __slots__ = ("_before", "_between", "_entry", "_entry_end", "_get", "_sorts", "_tables")

    def __init__(self, table: Table, name: str, consistent: bool) -> None:
        self._tables = (name,)
        self._sorts = table.sort is not None
        self._before = b"{" + _json(table.partition) + b':{"S":'
        self._between = b"}," + _json(table.sort or "") + b':{"S":'
        request: dict[str, Any] = {"TableName": name, "ReturnConsumedCapacity": "TOTAL"}
        request |= {"ConsistentRead": True} if consistent else {}
        self._get = _json(request)[:-1] + b',"Key":'
        self._entry = _json(name) + b':{"Keys":['
        self._entry_end = b'],"ConsistentRead":true}' if consistent else b"]}"

    def get_item(self, key: Key) -> Prepared:
        return Prepared(self._get + self._key(key) + b"}", self._tables)

    def entry(self, keys: Sequence[Key]) -> bytes:
        """What `batch_get_item` asks of this table."""
        return self._entry + b",".join(map(self._key, keys)) + self._entry_end

    def _key(self, key: Key) -> bytes:
        partition, sort = key
        if self._sorts:
            return self._before + _json(partition) + self._between + _json(sort) + b"}}"
        return self._before + _json(partition) + b"}}"


@lru_cache(KEPT)
def point_requests(table: Table, prefix: str, consistent: bool) -> PointRequests:
    """Those for a table under a prefix."""
    return PointRequests(table, prefix + table.name, consistent)


def batch_get_item(entries: Mapping[str, bytes]) -> Prepared:
    """A BatchGetItem of an `entry` for each table by its full name."""
    body = b'{"RequestItems":{' + b",".join(entries.values()) + b'},"ReturnConsumedCapacity":"TOTAL"}'
    return Prepared(body, tuple(entries))


class QueryRequest(NamedTuple):
    """A Query but for its values: `names` are those, in their order, and each of `pieces` but the last is before one.

    `ends` is what closes it, after a start key and a limit, if it has them.
    """

    names: tuple[str, ...]
    pieces: tuple[bytes, ...]
    tables: tuple[str, ...]
    of_index: str | None

    def prepared(self, values: Mapping[str, Any], limit: int | None, start: Mapping[str, Any] | None) -> Prepared:
        """The request with these values, `start` being a key as `decode_item` makes it.

        Raises `KeyError` for a value that is missing, `TypeError` for one that JSON does not hold, `ValueError` for one
        that DynamoDB does not.
        """
        parts: list[bytes] = []
        for piece, name in zip(self.pieces, self.names, strict=False):
            value = values[name]
            parts += (piece, b'{"S":%b}' % _json(value) if type(value) is str else _json(encode(value)))
        parts.append(self.pieces[-1])
        if limit is not None:
            parts.append(b',"Limit":%d' % limit)
        if start is not None:
            parts += (b',"ExclusiveStartKey":', _json(encode_item(start)))
        parts.append(b"}")
        return Prepared(b"".join(parts), self.tables, self.of_index)


def filtered(
    pattern: AccessPattern, prefix: str, given: Collection[str], *expressions: str
) -> tuple[dict[str, Any], frozenset[str]]:
    """What a Query and a Scan have in common, and the names of the values that it needs.

    A clause of the filter counts if all its values are `given`; `expressions` are those that the request has besides.
    """
    clauses = [clause for clause in pattern.filter if values_in(clause) <= set(given)]
    request: dict[str, Any] = {"TableName": prefix + pattern.table.name, "ReturnConsumedCapacity": "TOTAL"}
    request |= {"IndexName": pattern.index} if pattern.index is not None else {}
    request |= {"ConsistentRead": True} if pattern.consistent else {}
    request |= {"FilterExpression": " AND ".join(clauses)} if clauses else {}
    names = aliases_in(*expressions, *clauses)
    request |= {"ExpressionAttributeNames": names} if names else {}
    return request, values_in(*expressions, *clauses)


@lru_cache(KEPT)
def query_request(
    pattern: AccessPattern,
    prefix: str,
    given: tuple[str, ...],
    backward: bool | None,
    attributes: tuple[str, ...] | None,
) -> QueryRequest:
    """The template of a pattern's Query for the values that are `given`. `backward` is None where items are counted."""
    request, used = filtered(pattern, prefix, given, pattern.key)
    request |= {"KeyConditionExpression": pattern.key}
    request |= {"Select": "COUNT"} if backward is None else {"ScanIndexForward": pattern.descending is backward}
    if attributes is not None:
        shown = {f"#{attribute}": attribute for attribute in attributes}
        request["ProjectionExpression"] = ", ".join(shown)
        request["ExpressionAttributeNames"] = {**request.get("ExpressionAttributeNames", {}), **shown}
    names = tuple(sorted(used))
    head = _json(request)[:-1]
    if not names:
        return QueryRequest((), (head,), (prefix + pattern.table.name,), pattern.index)
    places = [_json(f":{name}") + b":" for name in names]
    pieces = (head + b',"ExpressionAttributeValues":{' + places[0], *[b"," + place for place in places[1:]], b"}")
    return QueryRequest(names, pieces, (prefix + pattern.table.name,), pattern.index)
