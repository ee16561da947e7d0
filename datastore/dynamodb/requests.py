"""Requests to DynamoDB as JSON: prepared requests, templates for reads, and expressions.

There is one template for each table or access pattern, table prefix, and combination of clauses and options. It holds
the JSON that these requests share. Filling in a template is faster than serializing the whole request.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

import orjson
from msgspec import Struct

from datastore.dynamodb.codec import encode, encode_item
from datastore.dynamodb.retry.classify import RequestRefused
from datastore.model.access_patterns import AccessPattern, Table, aliases_in, values_in
from datastore.model.composite_keys import Key

_json = orjson.dumps
# More than the templates that occur: patterns are few, and each is used with two or three sets of options.
TEMPLATE_CACHE_SIZE = 4096


class PreparedRequest(Struct, eq=False, gc=False):
    """A serialized request: its JSON body, and the full names of its tables and its index."""

    body: bytes
    tables: tuple[str, ...]
    index: str | None = None
    _payload: Mapping[str, Any] | None = None

    @property
    def payload(self) -> Mapping[str, Any]:
        """The body as parsed JSON. It is parsed at the first access."""
        if self._payload is None:
            self._payload = orjson.loads(self.body)
        return self._payload

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> "PreparedRequest":
        """Serialize a request.

        Raises:
            RequestRefused: JSON cannot hold a value, such as a lone surrogate.
        """
        try:
            body = orjson.dumps(payload)
        except TypeError as problem:
            raise RequestRefused("SerializationException", str(problem)) from problem
        prepared = cls(body, _tables(payload), payload.get("IndexName"))
        prepared._payload = payload
        return prepared


def _tables(payload: Mapping[str, Any]) -> tuple[str, ...]:
    if "TableName" in payload:
        return (payload["TableName"],)
    if "RequestItems" in payload:
        return tuple(payload["RequestItems"])
    actions = payload.get("TransactItems", ())
    return tuple(dict.fromkeys(body["TableName"] for action in actions for body in action.values()))


def _escaped(value: Any) -> bytes:
    """Return the value as JSON with `%` doubled, for a `%b` format."""
    return _json(value).replace(b"%", b"%%")


class PointReadTemplate:
    """A template of GetItem and BatchGetItem for one table."""

    __slots__ = ("_entry", "_get", "_has_sort", "_key", "_key_names", "_options", "_tables")

    def __init__(self, table: Table, table_name: str, consistent: bool) -> None:
        self._tables = (table_name,)
        self._has_sort = table.sort is not None
        self._key_names = table.key_attributes()
        self._key = b"{" + b",".join([_escaped(name) + b':{"S":%b}' for name in self._key_names]) + b"}"
        request: dict[str, Any] = {"TableName": table_name, "ReturnConsumedCapacity": "TOTAL"}
        request |= {"ConsistentRead": True} if consistent else {}
        self._get = _escaped(request)[:-1] + b',"Key":' + self._key + b"}"
        self._entry = _json(table_name) + b':{"Keys":['
        self._options = b'],"ConsistentRead":true' if consistent else b"]"

    def get_item(self, key: Key) -> PreparedRequest:
        partition, sort = key
        texts = (_json(partition), _json(sort)) if self._has_sort else (_json(partition),)
        return PreparedRequest(self._get % texts, self._tables)

    def entry(self, keys: Sequence[Key], attributes: tuple[str, ...] | None = None) -> bytes:
        """Return this table's part of a BatchGetItem: for the `attributes` and the key, or for whole items."""
        text = self._key
        if self._has_sort:
            texts = [text % (_json(partition), _json(sort)) for partition, sort in keys]
        else:
            texts = [text % _json(partition) for partition, _ in keys]
        projection = b"" if attributes is None else _projection(tuple(dict.fromkeys(self._key_names + attributes)))
        return b"".join((self._entry, b",".join(texts), self._options, projection, b"}"))


@lru_cache(TEMPLATE_CACHE_SIZE)
def _projection(attributes: tuple[str, ...]) -> bytes:
    return b"," + _json(_projection_parameters(attributes))[1:-1]


def _projection_parameters(attributes: Sequence[str]) -> dict[str, Any]:
    # An alias cannot hold a `#`; see `access_patterns.aliases_in`.
    aliases = {f"#{attribute.replace('#', '__')}": attribute for attribute in attributes}
    return {"ProjectionExpression": ", ".join(aliases), "ExpressionAttributeNames": aliases}


@lru_cache(TEMPLATE_CACHE_SIZE)
def point_read_template(table: Table, prefix: str, consistent: bool) -> PointReadTemplate:
    """Return the template for a table under a prefix."""
    return PointReadTemplate(table, prefix + table.name, consistent)


def batch_get_item(entries: Mapping[str, bytes]) -> PreparedRequest:
    """Return a BatchGetItem of each table's `entry`, by the table's full name."""
    body = b'{"RequestItems":{' + b",".join(entries.values()) + b'},"ReturnConsumedCapacity":"TOTAL"}'
    return PreparedRequest(body, tuple(entries))


class QueryTemplate:
    """A template of a Query: its JSON up to the values, and the names of the values that it needs."""

    __slots__ = ("_head", "_index", "_placeholders", "_tables")

    def __init__(self, head: bytes, value_names: Sequence[str], table_name: str, index: str | None) -> None:
        self._head = head + b',"ExpressionAttributeValues":' if value_names else head
        self._placeholders = [(f":{name}", name) for name in value_names]
        self._tables = (table_name,)
        self._index = index

    def prepared(
        self, values: Mapping[str, Any], limit: int | None = None, start: Mapping[str, Any] | None = None
    ) -> PreparedRequest:
        """Return the request with values, a limit and a decoded start key.

        Raises:
            KeyError: A value is missing.
            RequestRefused: JSON cannot hold a value.
            ValueError: DynamoDB cannot hold a value.
        """
        encoded: dict[str, dict[str, Any]] = {}
        for placeholder, name in self._placeholders:
            value = values[name]
            encoded[placeholder] = {"S": value} if type(value) is str else encode(value)
        try:
            body = self._head + _json(encoded) if encoded else self._head
        except TypeError as problem:
            raise RequestRefused("SerializationException", str(problem)) from problem
        end = b"}" if limit is None else b',"Limit":%d}' % limit
        if start is not None:
            end = b',"ExclusiveStartKey":' + _json(encode_item(start)) + end
        return PreparedRequest(body + end, self._tables, self._index)


def query_or_scan_base(
    pattern: AccessPattern, prefix: str, given: Collection[str], *expressions: str
) -> tuple[dict[str, Any], frozenset[str]]:
    """Return the part that a Query and a Scan share, and the names of the values that the request needs.

    A clause of the filter is sent if all of its values are `given`. `expressions` are the request's other expressions.
    """
    clauses = [clause for clause in pattern.filters if values_in(clause) <= set(given)]
    request: dict[str, Any] = {"TableName": prefix + pattern.table.name, "ReturnConsumedCapacity": "TOTAL"}
    request |= {"IndexName": pattern.index} if pattern.index is not None else {}
    request |= {"ConsistentRead": True} if pattern.consistent else {}
    request |= {"FilterExpression": " AND ".join(clauses)} if clauses else {}
    aliases = aliases_in(*expressions, *clauses)
    request |= {"ExpressionAttributeNames": aliases} if aliases else {}
    return request, values_in(*expressions, *clauses)


@lru_cache(TEMPLATE_CACHE_SIZE)
def query_template(
    pattern: AccessPattern,
    prefix: str,
    given: tuple[str, ...],
    backward: bool,
    attributes: tuple[str, ...] | None,
    count_only: bool = False,
) -> QueryTemplate:
    """Return the template of a pattern's Query for the names of the `given` values.

    `backward` reverses the pattern's order. With `count_only` the Query counts the items instead of returning them.
    """
    request, used = query_or_scan_base(pattern, prefix, given, pattern.key)
    request |= {"KeyConditionExpression": pattern.key}
    request |= {"Select": "COUNT"} if count_only else {"ScanIndexForward": pattern.descending is backward}
    if attributes is not None:
        aliases = request.get("ExpressionAttributeNames", {})
        request |= _projection_parameters(attributes)
        request["ExpressionAttributeNames"] |= aliases
    return QueryTemplate(_json(request)[:-1], sorted(used), prefix + pattern.table.name, pattern.index)


def set_or_remove(changes: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return an UpdateExpression and its values: SET for attributes with a value, REMOVE for those that are None."""
    values = {name: value for name, value in changes.items() if value is not None}
    parts = []
    if values:
        parts.append("SET " + ", ".join(f"#{name} = :{name}" for name in values))
    if len(values) < len(changes):
        parts.append("REMOVE " + ", ".join(f"#{name}" for name in changes if name not in values))
    return " ".join(parts), values


def placeholders(expressions: Sequence[str], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ExpressionAttributeNames and ExpressionAttributeValues that the expressions use.

    DynamoDB refuses a request with unused ones.
    """
    aliases = aliases_in(*expressions)
    parameters: dict[str, Any] = {"ExpressionAttributeNames": aliases} if aliases else {}
    return parameters | value_placeholders(values_in(*expressions), values)


def value_placeholders(used: Collection[str], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ExpressionAttributeValues of the `used` values; nothing if there are none."""
    return {"ExpressionAttributeValues": {f":{name}": encode(values[name]) for name in used}} if used else {}
