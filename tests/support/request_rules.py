"""The rules of DynamoDB that requests must keep, also those that emulators do not check.

https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_Operations_Amazon_DynamoDB.html
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ServiceQuotas.html
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import botocore.session
import orjson
from botocore.validate import ParamValidator

from datastore.dynamodb.client import Client
from datastore.dynamodb.requests import PreparedRequest
from datastore.dynamodb.retry.classify import ITEM_OPERATIONS
from datastore.dynamodb.transport import STREAM_OPERATIONS
from datastore.keyspace import TABLES
from datastore.model.access_patterns import Table

CHECKED = ITEM_OPERATIONS | STREAM_OPERATIONS | {"CreateTable"}
# Attributes of an index (Projection's "Array Members"), and of all indexes of a table together.
MOST_PROJECTED, MOST_PROJECTED_IN_ALL = 20, 100
MOST_INDEXES = 20
MOST = {"TransactWriteItems": 100, "TransactGetItems": 100, "BatchGetItem": 100, "BatchWriteItem": 25}
MODELLED = 3  # parts of a request that are checked by botocore's model
MOST_EXPRESSION_BYTES = 4096
MOST_OPERATORS = 300
MOST_OPERANDS = 100  # of IN
MOST_PARTITION_BYTES, MOST_SORT_BYTES = 2048, 1024
EXPRESSIONS = (
    *("KeyConditionExpression", "FilterExpression", "ProjectionExpression"),
    *("ConditionExpression", "UpdateExpression"),
)
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ReservedWords.html
RESERVED = frozenset(Path(__file__).with_name("reserved_words.txt").read_text().split())
# The words of expressions that are not names of attributes.
OPERATORS = frozenset({"AND", "OR", "NOT", "BETWEEN", "IN", "SET", "REMOVE", "ADD", "DELETE"})
FUNCTIONS = frozenset({"size", "contains"})
_TOKEN = re.compile(r"[#:]?[A-Za-z_]\w*")
_OPERATOR = re.compile(r"[<>=]+|\b(?:AND|OR|NOT|BETWEEN|IN)\b|\w+(?=\s*\()")
_IN = re.compile(r"\bIN\s*\(([^)]*)\)")
_ASSIGNED = re.compile(r"(#?[A-Za-z_]\w*)\s*=\s*(:\w+)")
EMPTY = ({"S": ""}, {"B": ""}, {"B": b""})

Request = Mapping[str, Any]


def violations(operation: str, request: Request) -> list[str]:
    """Return the rules that a request breaks. AWS accepts a request without
    violations, as far as they are known here.
    """
    return [f"{operation}: {problem}" for problem in _problems(operation, request)]


def _problems(operation: str, request: Request) -> Iterator[str]:
    if against := list(_against_the_model(operation, request)):
        yield from against
        return
    if operation in STREAM_OPERATIONS:
        yield from _of_a_position(request)
        return
    if operation == "CreateTable":
        yield from _too_many_projected(request)
        return
    parts = list(_parts(operation, request))
    if len(parts) > MOST.get(operation, 1):
        yield f"{len(parts)} items, of {MOST.get(operation, 1)} that are allowed"
    keys: list[bytes] = []
    for kind, table, part in parts:
        yield from _in_expressions(part)
        key = _key(kind, table, part)
        if key is not None:
            keys.append(orjson.dumps([table.name, key], option=orjson.OPT_SORT_KEYS))
            yield from (f"the key {name} is empty" for name, value in key.items() if value in EMPTY)
        yield from _index_keys(kind, table, part)
        if kind in ("Query", "Scan"):
            yield from _of_an_index(kind, table, part)
    if len(set(keys)) < len(keys):
        yield "one item is in it twice"


@cache
def _model(service: str) -> Any:
    return botocore.session.get_session().get_service_model(service)


@cache
def operation_shape(operation: str) -> Any:
    """Return the parameters of an operation."""
    service = "dynamodbstreams" if operation in STREAM_OPERATIONS else "dynamodb"
    return _model(service).operation_model(operation).input_shape


def _against_the_model(operation: str, request: Request) -> Iterator[str]:
    try:
        report = ParamValidator().validate(_sample(request), operation_shape(operation))
    except RecursionError:
        yield "values that are nested too deep"
    else:
        if report.has_errors():
            yield report.generate_report()


def _of_a_position(request: Request) -> Iterator[str]:
    kind, sequence = request.get("ShardIteratorType", ""), request.get("SequenceNumber")
    if kind.endswith("SEQUENCE_NUMBER") and sequence is None:
        yield f"{kind} without a SequenceNumber"
    if isinstance(sequence, str) and not sequence.isdecimal():
        yield f"{sequence!r} is no sequence number"


# The engines' values are shorter than AWS's: 28 characters of a shard's id, 21 of a sequence number.
LENGTHENED = {"ShardId": 28, "ExclusiveStartShardId": 28, "SequenceNumber": 21, "StreamArn": 37}


def _sample(request: Request) -> Request:
    """Return the request with `MODELLED` parts of each longer list: the parts are alike, and the check is slow."""
    if not request.keys().isdisjoint(LENGTHENED):
        texts = {name: request.get(name) for name in LENGTHENED}
        request = {**request} | {
            name: text.rjust(LENGTHENED[name], "0") for name, text in texts.items() if isinstance(text, str)
        }
    if isinstance(request.get("TransactItems"), list):
        return {**request, "TransactItems": _some(request["TransactItems"])}
    if isinstance(request.get("RequestItems"), dict):
        parts = {
            name: {**part, "Keys": _some(part["Keys"])} if isinstance(part, dict) and "Keys" in part else _some(part)
            for name, part in request["RequestItems"].items()
        }
        return {**request, "RequestItems": parts}
    return request


def _some(parts: Any) -> Any:
    if not isinstance(parts, list) or len(parts) <= MODELLED:
        return parts
    return parts[:: -(-len(parts) // MODELLED)]


def _too_many_projected(request: Request) -> Iterator[str]:
    projected = [
        len(index["Projection"].get("NonKeyAttributes", ())) for index in request.get("GlobalSecondaryIndexes", ())
    ]
    if any(number > MOST_PROJECTED for number in projected):
        yield f"indexes project {projected} attributes, of {MOST_PROJECTED} that are allowed"
    elif sum(projected) > MOST_PROJECTED_IN_ALL:
        yield f"indexes project {sum(projected)} attributes together, of {MOST_PROJECTED_IN_ALL} that are allowed"
    if len(projected) > MOST_INDEXES:
        yield f"{len(projected)} indexes, of {MOST_INDEXES} that are allowed"


def _parts(operation: str, request: Request) -> Iterator[tuple[str, Table, Request]]:
    """Yield the single requests within a batch or transaction: their kind, their table and their parameters."""
    if operation.startswith("Transact"):
        for action in request["TransactItems"]:
            for kind, part in action.items():
                yield kind, _table(part["TableName"]), part
    elif operation == "BatchGetItem":
        for name, asked in request["RequestItems"].items():
            for key in asked["Keys"]:
                yield "Get", _table(name), {**{k: v for k, v in asked.items() if k != "Keys"}, "Key": key}
    elif operation == "BatchWriteItem":
        for name, writes in request["RequestItems"].items():
            for write in writes:
                for kind, part in write.items():
                    yield kind.removesuffix("Request"), _table(name), part
    else:
        yield operation.removesuffix("Item"), _table(request["TableName"]), request


@cache
def _table(name: str) -> Table:
    """Return the declared table of a full name. An undeclared table has no known key."""
    declared = {table.name: table for table in TABLES}
    return declared.get(name.rpartition("__")[2]) or Table(name, "")


def _key(kind: str, table: Table, part: Request) -> dict[str, Any] | None:
    if "Key" in part:
        return dict(part["Key"])
    if kind == "Put" and table.partition:
        return {name: part["Item"].get(name) for name in (table.partition, table.sort) if name}
    return None


def _in_expressions(part: Request) -> Iterator[str]:
    texts = tuple((name, part[name]) for name in EXPRESSIONS if name in part)
    names, values = part.get("ExpressionAttributeNames", ()), part.get("ExpressionAttributeValues", ())
    if texts or names or values:
        yield from _of_texts(texts, frozenset(names), frozenset(values))


@lru_cache(4096)
def _of_texts(
    expressions: tuple[tuple[str, str], ...], names: frozenset[str], values: frozenset[str]
) -> tuple[str, ...]:
    return tuple(_problems_of_texts(expressions, names, values))


def _problems_of_texts(
    expressions: tuple[tuple[str, str], ...], names: frozenset[str], values: frozenset[str]
) -> Iterator[str]:
    texts = [text for _, text in expressions]
    used = {token for text in texts for token in _TOKEN.findall(text)}
    if differing := names ^ {token for token in used if token.startswith("#")}:
        yield f"names that are not used, or not defined: {sorted(differing)}"
    if differing := values ^ {token for token in used if token.startswith(":")}:
        yield f"values that are not used, or not defined: {sorted(differing)}"
    if reserved := reserved_words_of(*texts):
        yield f"reserved words without an alias: {reserved}"
    if any(len(text.encode()) > MOST_EXPRESSION_BYTES for text in texts):
        yield f"an expression of more than {MOST_EXPRESSION_BYTES:,} bytes"
    conditions = [text for name, text in expressions if name != "UpdateExpression"]
    if any(len(_OPERATOR.findall(text)) > MOST_OPERATORS for text in conditions):
        yield f"an expression of more than {MOST_OPERATORS} operators"
    if any(operands.count(",") >= MOST_OPERANDS for text in conditions for operands in _IN.findall(text)):
        yield f"IN with more than {MOST_OPERANDS} operands"


def reserved_words_of(*expressions: str) -> list[str]:
    """Return the attributes of the expressions that DynamoDB reserves and that have no alias."""
    bare = {token for text in expressions for token in _TOKEN.findall(text)} - OPERATORS - FUNCTIONS
    return sorted(token for token in bare if token.upper() in RESERVED)


def _index_keys(kind: str, table: Table, part: Request) -> Iterator[str]:
    """Return the values of index keys that a write must not store: of another type, empty, or too long."""
    if not table.indexes or kind not in ("Put", "Update"):
        return
    stored = part["Item"] if kind == "Put" else _assigned(part)
    for name, (kind_of_value, most) in _keys_of_indexes(table).items():
        if name not in stored:
            continue
        given, value = next(iter(stored[name].items()))
        if given != kind_of_value:
            yield f"the index key {name} is of the type {given}"
        elif value in ("", b""):
            yield f"the index key {name} is empty"
        elif given == "S" and len(value.encode(errors="surrogatepass")) > most:
            yield f"the index key {name} is longer than {most:,} bytes"


def _assigned(part: Request) -> dict[str, Any]:
    """Return the attributes that an UpdateExpression sets to a given value."""
    names, values = part.get("ExpressionAttributeNames", {}), part.get("ExpressionAttributeValues", {})
    pairs = _ASSIGNED.findall(part.get("UpdateExpression", ""))
    return {names.get(name, name): values[value] for name, value in pairs if value in values}


@cache
def _keys_of_indexes(table: Table) -> dict[str, tuple[str, int]]:
    """Return the type and the greatest length in bytes of each attribute that is a key of an index."""
    found: dict[str, tuple[str, int]] = {}
    for index in table.indexes:
        if index.sort:
            found[index.sort] = (index.sort_type, MOST_SORT_BYTES)
        found.setdefault(index.partition, ("S", MOST_PARTITION_BYTES))
    return found


def _of_an_index(kind: str, table: Table, part: Request) -> Iterator[str]:
    if "IndexName" in part and part.get("ConsistentRead"):
        yield "a consistent read of an index"
    if kind == "Query":
        values = part.get("ExpressionAttributeValues", {})
        asked = {token for token in _TOKEN.findall(part.get("KeyConditionExpression", "")) if token[0] == ":"}
        if empty := sorted(token for token in asked if values.get(token) in EMPTY):
            yield f"a key condition with empty values: {empty}"
    if kind == "Query" and table.partition:
        index = next((index for index in table.indexes if index.name == part.get("IndexName")), table)
        names = part.get("ExpressionAttributeNames", {})
        filtered = {names.get(token) for token in _TOKEN.findall(part.get("FilterExpression", ""))}
        if keys := filtered & {index.partition, index.sort} - {None}:
            yield f"a filter on {sorted(map(str, keys))}, which the key condition is for"


class RequestWatch:
    """A check of the requests of a process's clients. `found` collects the violations.

    With `refuses` such a request is not sent and fails with an AssertionError, for processes that cannot share `found`.
    """

    def __init__(self, *, refuses: bool = False) -> None:
        self.refuses = refuses
        self.found: list[str] = []
        self.seen = 0

    def start(self) -> None:
        """Check every call from now on."""
        call: Callable[..., Any] = Client.call
        start: Callable[..., Any] = Client._start

        def check(operation: str, request: Request | PreparedRequest) -> None:
            if operation in CHECKED:
                self.seen += 1
                payload = request.payload if isinstance(request, PreparedRequest) else request
                broken = violations(operation, payload)
                self.found += broken
                assert not (broken and self.refuses), broken

        async def watched(client: Client, operation: str, request: Request | PreparedRequest, /, **options: Any) -> Any:
            check(operation, request)
            return await call(client, operation, request, **options)

        def started(client: Client, terms: Any, operation: str, request: PreparedRequest, *more: Any) -> Any:
            check(operation, request)
            return start(client, terms, operation, request, *more)

        Client.call, Client._start = watched, started  # type: ignore[method-assign,assignment]
