"""Requests to read as JSON, from templates: what is the same every time is written once, values are put in between.

A template is made for each table or access pattern, the tables' prefix, and which clauses and options a request has.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson

from datastore.dynamodb.codec import encode, encode_item
from datastore.dynamodb.prepared_request import PreparedRequest
from datastore.model.access_patterns import AccessPattern, Table, aliases_in, values_in
from datastore.model.composite_keys import Key

_json = orjson.dumps
# All there are, with room to spare: patterns are few, and each is asked in two or three ways.
KEPT = 4096


def _escaped(value: Any) -> bytes:
    """As JSON, for a text in which `%b` is replaced."""
    return _json(value).replace(b"%", b"%%")


class PointRequests:
    """GetItem and BatchGetItem for one table by its full name."""

    __slots__ = ("_entry", "_get", "_key", "_names", "_options", "_sorts", "_tables")

    def __init__(self, table: Table, name: str, consistent: bool) -> None:
        self._tables = (name,)
        self._sorts = table.sort is not None
        self._names = table.key_attributes()
        self._key = b"{" + b",".join([_escaped(name) + b':{"S":%b}' for name in self._names]) + b"}"
        request: dict[str, Any] = {"TableName": name, "ReturnConsumedCapacity": "TOTAL"}
        request |= {"ConsistentRead": True} if consistent else {}
        self._get = _escaped(request)[:-1] + b',"Key":' + self._key + b"}"
        self._entry = _json(name) + b':{"Keys":['
        self._options = b'],"ConsistentRead":true' if consistent else b"]"

    def get_item(self, key: Key) -> PreparedRequest:
        partition, sort = key
        texts = (_json(partition), _json(sort)) if self._sorts else (_json(partition),)
        return PreparedRequest(self._get % texts, self._tables)

    def entry(self, keys: Sequence[Key], attributes: tuple[str, ...] | None = None) -> bytes:
        """What `batch_get_item` asks of this table: whole items, or these attributes of them and the key."""
        text = self._key
        if self._sorts:
            texts = [text % (_json(partition), _json(sort)) for partition, sort in keys]
        else:
            texts = [text % _json(partition) for partition, _ in keys]
        shown = b"" if attributes is None else _projection(tuple(dict.fromkeys(self._names + attributes)))
        return b"".join((self._entry, b",".join(texts), self._options, shown, b"}"))


@lru_cache(KEPT)
def _projection(attributes: tuple[str, ...]) -> bytes:
    return b"," + _json(_shown(attributes))[1:-1]


def _shown(attributes: Sequence[str]) -> dict[str, Any]:
    # As in `declarations.aliases_in`: an alias cannot hold a `#`.
    names = {f"#{attribute.replace('#', '__')}": attribute for attribute in attributes}
    return {"ProjectionExpression": ", ".join(names), "ExpressionAttributeNames": names}


@lru_cache(KEPT)
def point_requests(table: Table, prefix: str, consistent: bool) -> PointRequests:
    """Those for a table under a prefix."""
    return PointRequests(table, prefix + table.name, consistent)


def batch_get_item(entries: Mapping[str, bytes]) -> PreparedRequest:
    """A BatchGetItem of an `entry` for each table by its full name."""
    body = b'{"RequestItems":{' + b",".join(entries.values()) + b'},"ReturnConsumedCapacity":"TOTAL"}'
    return PreparedRequest(body, tuple(entries))


class QueryRequest:
    """A Query but for its values: `head` is its JSON up to there, `names` are those that it needs.

    A limit and a start key come behind them, if it has them.
    """

    __slots__ = ("_head", "_index", "_places", "_tables")

    def __init__(self, head: bytes, names: Sequence[str], table: str, index: str | None) -> None:
        self._head = head + b',"ExpressionAttributeValues":' if names else head
        self._places = [(f":{name}", name) for name in names]
        self._tables = (table,)
        self._index = index

    def prepared(
        self, values: Mapping[str, Any], limit: int | None, start: Mapping[str, Any] | None
    ) -> PreparedRequest:
        """The request with these values, `start` being a key as `decode_item` makes it.

        Raises `KeyError` for a value that is missing, `TypeError` for one that JSON does not hold, `ValueError` for one
        that DynamoDB does not.
        """
        encoded: dict[str, dict[str, Any]] = {}
        for placeholder, name in self._places:
            value = values[name]
            encoded[placeholder] = {"S": value} if type(value) is str else encode(value)
        body = self._head + _json(encoded) if encoded else self._head
        end = b"}" if limit is None else b',"Limit":%d}' % limit
        if start is not None:
            end = b',"ExclusiveStartKey":' + _json(encode_item(start)) + end
        return PreparedRequest(body + end, self._tables, self._index)


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
        names = request.get("ExpressionAttributeNames", {})
        request |= _shown(attributes)
        request["ExpressionAttributeNames"] |= names
    return QueryRequest(_json(request)[:-1], sorted(used), prefix + pattern.table.name, pattern.index)
