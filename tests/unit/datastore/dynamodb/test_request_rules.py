"""The check of every request that tests send: it detects a request that breaks a single rule."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from datastore.database import Database
from datastore.dynamodb.client import Client, RequestRefused
from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.keyspace.sightings import BLIP
from tests.support.fault_proxy import Proxy
from tests.support.forking import Forked
from tests.support.request_rules import RequestWatch, violations

QUAKES, INDEXED, INDEX = f"t__{EARTHQUAKES.name}", f"t__{BLIP.name}", BLIP.indexes[0]
KEY = {"pk": {"S": "EVENT#us1"}, "sk": {"S": "EVENT"}}
GET = {"TableName": QUAKES, "Key": KEY}
PUT = {"TableName": QUAKES, "Item": KEY}
QUERY = {
    "TableName": INDEXED,
    "IndexName": INDEX.name,
    "KeyConditionExpression": "#p = :p",
    "ExpressionAttributeNames": {"#p": INDEX.partition},
    "ExpressionAttributeValues": {":p": {"S": "x"}},
}


def table_with(*projected: int) -> dict[str, Any]:
    """Return a table with an index for each number of projected attributes."""
    indexes = [
        {
            "IndexName": f"index{index}",
            "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
            "Projection": {"ProjectionType": "INCLUDE", "NonKeyAttributes": [f"a{n}" for n in range(number)]},
        }
        for index, number in enumerate(projected)
    ]
    return {
        "TableName": "t__wide",
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
        "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
        "GlobalSecondaryIndexes": indexes,
    }


def item_keys(number: int) -> list[dict[str, Any]]:
    return [{**KEY, "pk": {"S": f"EVENT#{n}"}} for n in range(number)]


def transact_deletes(number: int) -> dict[str, Any]:
    return {"TransactItems": [{"Delete": {"TableName": QUAKES, "Key": key}} for key in item_keys(number)]}


def gets(number: int) -> dict[str, Any]:
    return {"TransactItems": [{"Get": {"TableName": QUAKES, "Key": key}} for key in item_keys(number)]}


def batch_get_request(number: int) -> dict[str, Any]:
    return {"RequestItems": {QUAKES: {"Keys": item_keys(number)}}}


def batch_write_request(*items: dict[str, Any]) -> dict[str, Any]:
    return {"RequestItems": {QUAKES: [{"PutRequest": {"Item": item}} for item in items]}}


def indexed(value: dict[str, Any]) -> dict[str, Any]:
    """Return a write of an item with this value of an index's partition key."""
    return {"TableName": INDEXED, "Item": {"PK": {"S": "a"}, "SK": {"S": "b"}, INDEX.partition: value}}


def update_request(value: dict[str, Any]) -> dict[str, Any]:
    """Return an update of the same item to this value."""
    return {
        "TableName": INDEXED,
        "Key": {"PK": {"S": "a"}, "SK": {"S": "b"}},
        "UpdateExpression": "SET #k = :v",
        "ExpressionAttributeNames": {"#k": INDEX.partition},
        "ExpressionAttributeValues": {":v": value},
    }


def query_request(condition: str, **values: str) -> dict[str, Any]:
    texts = {f":{name}": {"S": value} for name, value in values.items()}
    return {"TableName": INDEXED, "KeyConditionExpression": condition, "ExpressionAttributeValues": texts}


def filtered(text: str) -> dict[str, Any]:
    return query_request("PK = :p", p="a", v="b") | {"FilterExpression": text}


SCRIPT = f"""
import asyncio
from datastore.dynamodb.client import Client
asyncio.run(Client.call(None, "GetItem", {GET | {"ProjectionExpression": "name"}}))
"""
# By the name of the rule, which engine_limitations.py uses too: a request that breaks it, and the expected message.
BROKEN: Mapping[str, tuple[str, dict[str, Any], str]] = {
    "missing parameter": ("GetItem", {"Key": KEY}, "Missing required parameter"),
    "unknown parameter": ("GetItem", GET | {"Keys": [KEY]}, "Unknown parameter"),
    "unused name": (
        "GetItem",
        GET | {"ProjectionExpression": "place", "ExpressionAttributeNames": {"#n": "mag"}},
        "not used",
    ),
    "undefined name": ("GetItem", GET | {"ProjectionExpression": "#n"}, "not used, or not defined"),
    "undefined value": (
        "PutItem",
        PUT | {"ConditionExpression": "mag = :v"},
        "values that are not used, or not defined",
    ),
    "unused value": (
        "PutItem",
        PUT | {"ConditionExpression": "mag > mag", "ExpressionAttributeValues": {":v": {"N": "1"}}},
        "values that are not used",
    ),
    "reserved word": ("GetItem", GET | {"ProjectionExpression": "name"}, "reserved words without an alias: ['name']"),
    "long expression": (
        "GetItem",
        GET | {"ProjectionExpression": ", ".join(f"attribute{n}" for n in range(400))},
        "4,096 bytes",
    ),
    "many operators": ("Query", filtered(" OR ".join(["a = :v"] * 151)), "300 operators"),
    "many operands": ("Query", filtered(f"a IN ({', '.join([':v'] * 101)})"), "100 operands"),
    "empty key": ("GetItem", GET | {"Key": KEY | {"sk": {"S": ""}}}, "the key sk is empty"),
    "empty key of an item": ("PutItem", {"TableName": QUAKES, "Item": KEY | {"pk": {"S": ""}}}, "the key pk is empty"),
    "empty key of a batch": ("BatchWriteItem", batch_write_request(KEY | {"pk": {"S": ""}}), "the key pk is empty"),
    "empty key of an index": ("PutItem", indexed({"S": ""}), "is empty"),
    "empty key of an index in an update": ("UpdateItem", update_request({"S": ""}), "is empty"),
    "key of an index of another type": ("PutItem", indexed({"N": "1"}), "is of the type N"),
    "long key of an index": ("PutItem", indexed({"S": "é" * 1025}), "is longer than 2,048 bytes"),
    "empty partition in a query": ("Query", query_request("PK = :p", p=""), "empty values: [':p']"),
    "empty bound in a query": ("Query", query_request("PK = :p AND SK > :s", p="a", s=""), "empty values: [':s']"),
    "empty beginning in a query": (
        "Query",
        query_request("PK = :p AND begins_with(SK, :s)", p="a", s=""),
        "empty values: [':s']",
    ),
    "a key read twice": ("BatchGetItem", {"RequestItems": {QUAKES: {"Keys": [KEY, KEY]}}}, "one item is in it twice"),
    "a key written twice": (
        "BatchWriteItem",
        batch_write_request(KEY, KEY | {"mag": {"N": "5"}}),
        "one item is in it twice",
    ),
    "a key in a transaction twice": (
        "TransactWriteItems",
        {"TransactItems": [{"Delete": GET}, {"Put": PUT}]},
        "one item is in it twice",
    ),
    "many actions": ("TransactWriteItems", transact_deletes(101), "101 items, of 100"),
    "many reads in a transaction": ("TransactGetItems", gets(101), "101 items, of 100"),
    "many keys": ("BatchGetItem", batch_get_request(101), "101 items, of 100"),
    "many writes": ("BatchWriteItem", batch_write_request(*item_keys(26)), "26 items, of 25"),
    "consistent query of an index": ("Query", QUERY | {"ConsistentRead": True}, "a consistent read of an index"),
    "consistent scan of an index": (
        "Scan",
        {"TableName": INDEXED, "IndexName": INDEX.name, "ConsistentRead": True},
        "a consistent read of an index",
    ),
    "filter on a key": ("Query", QUERY | {"FilterExpression": "#p = :p"}, "which the key condition is for"),
    "many attributes of an index": ("CreateTable", table_with(21), "of 20 that are allowed"),
    "many attributes of indexes": ("CreateTable", table_with(20, 20, 20, 20, 20, 1), "101 attributes together, of 100"),
    "many indexes": ("CreateTable", table_with(*[1] * 21), "21 indexes, of 20"),
}
ARN = "arn:aws:dynamodb:ddblocal:000000000000:table/t/stream/2026"
AFTER = {"StreamArn": ARN, "ShardId": "shard", "ShardIteratorType": "AFTER_SEQUENCE_NUMBER"}
# Requests to the streams, by the message of the rule that they break; None for those that break none.
OF_STREAMS: list[tuple[str, dict[str, Any], str | None]] = [
    ("GetShardIterator", AFTER | {"SequenceNumber": "000000000000000004309"}, None),
    ("GetShardIterator", AFTER | {"SequenceNumber": "4309"}, None),  # the embedded engine's are short
    ("GetShardIterator", AFTER | {"SequenceNumber": 4309}, "Invalid type for parameter SequenceNumber"),
    ("GetShardIterator", AFTER | {"SequenceNumber": "4309.0"}, "is no sequence number"),
    ("GetShardIterator", AFTER, "AFTER_SEQUENCE_NUMBER without a SequenceNumber"),
    ("GetRecords", {"ShardIterator": "i", "Limit": 0}, "valid min value: 1"),
    ("DescribeStream", {"StreamArn": ARN, "Filter": {}}, "Unknown parameter"),
    ("DescribeStream", {"Limit": 100}, "Missing required parameter"),
]
KEPT: Mapping[str, tuple[str, dict[str, Any]]] = {
    "read": ("GetItem", GET),
    "write": ("PutItem", PUT),
    "query": ("Query", QUERY),
    "actions": ("TransactWriteItems", transact_deletes(100)),
    "keys": ("BatchGetItem", batch_get_request(100)),
    "writes": ("BatchWriteItem", batch_write_request(*item_keys(25))),
    "operators": ("Query", filtered(" OR ".join(["a = :v"] * 150))),
    "operands": ("Query", filtered(f"a IN ({', '.join([':v'] * 100)})")),
    "key of an index": ("PutItem", indexed({"S": "é" * 1024})),
    "update": ("UpdateItem", update_request({"S": "x"})),
    "empty value of a filter": ("Query", query_request("PK = :p", p="a", v="") | {"FilterExpression": "a = :v"}),
    "attributes of indexes": ("CreateTable", table_with(20, 20, 20, 20, 20)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_request_that_breaks_a_rule_is_found(name: str) -> None:
    operation, request, problem = BROKEN[name]
    found = violations(operation, request)
    assert len(found) == 1
    assert problem in found[0]


@pytest.mark.parametrize(("operation", "request_", "problem"), OF_STREAMS)
def test_requests_to_streams_are_checked(operation: str, request_: dict[str, Any], problem: str | None) -> None:
    found = violations(operation, request_)

    assert problem in found[0] if problem else found == []


@pytest.mark.parametrize("name", KEPT)
def test_a_request_that_keeps_the_rules_is_accepted(name: str) -> None:
    assert violations(*KEPT[name]) == []


def of(database: Database, request: dict[str, Any]) -> Any:
    """Return the same request to the tables of a test."""
    return orjson.loads(orjson.dumps(request).replace(b'"t__', f'"{database.prefix}'.encode()))


@pytest.mark.breaks_rules("it is about refusals")
@pytest.mark.parametrize("name", BROKEN)
async def test_an_engine_refuses_it(database: Database, name: str) -> None:
    operation, request, _ = BROKEN[name]
    with pytest.raises(RequestRefused, match=r"ValidationException|LimitExceeded"):
        await database.client.call(operation, of(database, request))


@pytest.mark.parametrize("name", KEPT)
async def test_an_engine_accepts_requests_that_keep_the_rules(database: Database, name: str) -> None:
    operation, request = KEPT[name]
    await database.client.call(operation, of(database, request))


@pytest.mark.breaks_rules("it is about what is found")
async def test_the_requests_of_every_client_are_checked(client: Client) -> None:
    watch = RequestWatch()
    call, start = Client.call, Client._start
    try:
        watch.start()
        with pytest.raises(RequestRefused):
            await client.call("GetItem", GET | {"ProjectionExpression": "name"})
    finally:
        Client.call, Client._start = call, start  # type: ignore[method-assign]
    assert watch.seen == 1
    assert len(watch.found) == 1


@pytest.mark.breaks_rules("it is about what is found")
async def test_a_watch_that_refuses_sends_nothing(client: Client, proxy: Proxy) -> None:
    call, start = Client.call, Client._start
    try:
        RequestWatch(refuses=True).start()
        with pytest.raises(AssertionError, match="reserved words"):
            await client.call("GetItem", GET | {"ProjectionExpression": "name"})
    finally:
        Client.call, Client._start = call, start  # type: ignore[method-assign]
    assert proxy.seen == []


def test_child_processes_of_tests_refuse_requests_that_break_a_rule(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)

    process = Forked(str(script), [], dict(os.environ), stderr=tmp_path / "err")

    assert process.wait(30) == 1
    assert "reserved words without an alias: ['name']" in (tmp_path / "err").read_text()
