"""The check of every request that tests send: each rule is found broken by a request that breaks it alone."""

from typing import Any

import pytest
from request_rules import RequestWatch, violations

from datastore import tables
from datastore.client import Client, RequestRefused
from datastore.keyspace import TABLES

QUAKES, INDEXED = "t__earthquake-events", next(table for table in TABLES if table.indexes)
KEY = {"pk": {"S": "EVENT#us1"}, "sk": {"S": "EVENT"}}
GET = {"TableName": QUAKES, "Key": KEY}
PUT = {"TableName": QUAKES, "Item": KEY}
QUERY = {
    "TableName": f"t__{INDEXED.name}",
    "IndexName": INDEXED.indexes[0].name,
    "KeyConditionExpression": "#p = :p",
    "ExpressionAttributeNames": {"#p": INDEXED.indexes[0].partition},
    "ExpressionAttributeValues": {":p": {"S": "x"}},
}


def deletes(number: int) -> dict[str, Any]:
    keys = ({**KEY, "pk": {"S": f"EVENT#{n}"}} for n in range(number))
    return {"TransactItems": [{"Delete": {"TableName": QUAKES, "Key": key}} for key in keys]}


def table_with(projected: int) -> dict[str, Any]:
    definition = dict(tables.definition(INDEXED, "t__"))
    index = dict(definition["GlobalSecondaryIndexes"][0])
    names = [f"a{number}" for number in range(projected)]
    index["Projection"] = {"ProjectionType": "INCLUDE", "NonKeyAttributes": names}
    return definition | {"GlobalSecondaryIndexes": [index]}


BROKEN: list[tuple[str, dict[str, Any], str]] = [
    ("GetItem", {"Key": KEY}, "Missing required parameter"),
    ("GetItem", GET | {"ProjectionExpression": "place", "ExpressionAttributeNames": {"#n": "mag"}}, "not used"),
    ("GetItem", GET | {"ProjectionExpression": "#n"}, "not used, or not defined"),
    ("PutItem", PUT | {"ConditionExpression": "mag = :v"}, "values that are not used, or not defined"),
    (
        "PutItem",
        PUT | {"ConditionExpression": "mag > mag", "ExpressionAttributeValues": {":v": {"N": "1"}}},
        "values that are not used",
    ),
    ("GetItem", GET | {"ProjectionExpression": "name"}, "reserved words without an alias: ['name']"),
    ("GetItem", GET | {"ProjectionExpression": ", ".join(f"attribute{n}" for n in range(400))}, "4,096 bytes"),
    ("GetItem", GET | {"Key": KEY | {"sk": {"S": ""}}}, "the key sk is empty"),
    ("PutItem", {"TableName": QUAKES, "Item": KEY | {"pk": {"S": ""}}}, "the key pk is empty"),
    ("BatchGetItem", {"RequestItems": {QUAKES: {"Keys": [KEY, KEY]}}}, "one item is in it twice"),
    ("TransactWriteItems", {"TransactItems": [{"Delete": GET}, {"Put": PUT}]}, "one item is in it twice"),
    ("TransactWriteItems", deletes(101), "101"),
    ("Query", QUERY | {"ConsistentRead": True}, "a consistent read of an index"),
    ("Query", QUERY | {"FilterExpression": "#p = :p"}, "which the key condition is for"),
    ("CreateTable", table_with(21), "of 20 that are allowed"),
]


@pytest.mark.parametrize(("operation", "request_", "problem"), BROKEN)
def test_a_request_that_breaks_a_rule_is_found(operation: str, request_: dict[str, Any], problem: str) -> None:
    found = violations(operation, request_)
    assert len(found) == 1
    assert problem in found[0]


@pytest.mark.parametrize(
    ("operation", "request_"),
    [
        ("GetItem", GET),
        ("PutItem", PUT),
        ("Query", QUERY),
        ("TransactWriteItems", deletes(100)),
        ("CreateTable", table_with(20)),
    ],
)
def test_a_request_that_keeps_the_rules_is_not(operation: str, request_: dict[str, Any]) -> None:
    assert violations(operation, request_) == []


@pytest.mark.breaks_rules("it is about what is found")
async def test_what_any_client_sends_is_checked(client: Client) -> None:
    watch = RequestWatch()
    call = Client.call
    try:
        watch.start()
        with pytest.raises(RequestRefused):
            await client.call("GetItem", GET | {"ProjectionExpression": "name"})
    finally:
        Client.call = call  # type: ignore[method-assign]
    assert watch.seen == 1
    assert len(watch.found) == 1
