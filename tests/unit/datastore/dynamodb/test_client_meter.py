"""The calls that the meter records: their read and write units, and their outcome."""

import asyncio
from collections.abc import Iterator
from typing import Any

import boto3
import pytest

from datastore.database import Database, StoreOptions, open_database
from datastore.dynamodb.calls import WRITE_UNIT_COST
from datastore.dynamodb.client import Client, ConditionFailed, RequestRefused, TransactionCancelled
from datastore.dynamodb.codec import Item
from datastore.dynamodb.retry.classify import ITEM_OPERATIONS
from datastore.errors import Timeout, Unavailable
from datastore.keyspace.sightings import BLIP
from datastore.session.metering import Meter
from datastore.session.writes import Action
from tests.support.client_faults import FINAL, PUT_NEW, store_on
from tests.support.fault_proxy import QUICK, Proxy, hang, plain_error, refuse


def _requests(table: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield calls of different costs: big and small items, an index, a batch, a transaction."""
    total = {"ReturnConsumedCapacity": "TOTAL"}
    key = {"PK": {"S": "A"}, "SK": {"S": "0"}}
    index = {"GSI1PK": {"S": "G"}, "GSI1SK": {"S": "0"}}
    big = {"text": {"S": "x" * 9000}}
    yield "PutItem", {"TableName": table, "Item": key | index | big, **total}
    yield "PutItem", {"TableName": table, "Item": key | {"SK": {"S": "1"}} | big, **total}
    yield "GetItem", {"TableName": table, "Key": key, **total}
    yield "GetItem", {"TableName": table, "Key": key, "ConsistentRead": True, **total}
    values = {":v": {"S": "A"}}
    by_key = {"KeyConditionExpression": "PK = :v", "ExpressionAttributeValues": values}
    yield "Query", {"TableName": table, **by_key, **total}
    in_index = {"IndexName": "TrendingIndex", "KeyConditionExpression": "GSI1PK = :v"}
    yield "Query", {"TableName": table, **in_index, "ExpressionAttributeValues": {":v": {"S": "G"}}, **total}
    yield "BatchGetItem", {"RequestItems": {table: {"Keys": [key, key | {"SK": {"S": "1"}}]}}, **total}
    change = {"UpdateExpression": "SET n = :v", "ExpressionAttributeValues": {":v": {"N": "1"}}}
    yield "UpdateItem", {"TableName": table, "Key": key, **change, **total}
    put = {"Put": {"TableName": table, "Item": key}}
    delete = {"Delete": {"TableName": table, "Key": key | {"SK": {"S": "1"}}}}
    yield "TransactWriteItems", {"TransactItems": [put, delete], **total}


def _boto_units(answer: Any) -> float:
    consumed = answer["ConsumedCapacity"]
    return float(sum(entry["CapacityUnits"] for entry in (consumed if isinstance(consumed, list) else [consumed])))


async def test_the_units_are_those_that_boto3_reports(database: Database, store_options: StoreOptions) -> None:
    twin = StoreOptions(store=store_options.store, prefix=f"{store_options.prefix}twin_")
    meter = Meter()
    units_by_boto3: list[tuple[str, float]] = []

    async with open_database(twin) as other:
        await other.create_tables()
        admin = boto3.client("dynamodb", endpoint_url=twin.store, region_name="local", **_keys())
        for operation, request in _requests(f"{twin.prefix}blip"):
            method = {"BatchGetItem": "batch_get_item", "TransactWriteItems": "transact_write_items"}.get(
                operation, operation.replace("Item", "_item").lower()
            )
            units_by_boto3.append((operation, _boto_units(await asyncio.to_thread(getattr(admin, method), **request))))
    for operation, request in _requests(f"{database.prefix}blip"):
        await database.client.call(operation, request, meter=meter)

    assert [(call.operation, call.units) for call in meter.calls] == units_by_boto3
    assert meter.units == sum(units for _, units in units_by_boto3) > 20


def _keys() -> dict[str, str]:
    return {"aws_access_key_id": "local", "aws_secret_access_key": "local"}


@pytest.mark.breaks_rules("it is about refusals")
async def test_failed_calls_are_recorded(client: Client, proxy: Proxy) -> None:
    heard: list[tuple[str, tuple[str, ...], float, int]] = []
    client.add_call_listener(lambda call: heard.append((call.operation, call.tables, call.units, call.attempts)))
    proxy.faults.extend([FINAL["ValidationException"], *[plain_error(500)] * QUICK.attempts, hang])
    put = {"TableName": "t", "Item": {}}
    transaction = {"TransactItems": [{"Put": put}, {"Delete": {"TableName": "u"}}, {"Put": put}]}
    meter = Meter()

    with pytest.raises(RequestRefused):
        await client.call("PutItem", put, meter=meter)
    with pytest.raises(Unavailable):
        await client.call("TransactWriteItems", transaction, meter=meter)
    with pytest.raises(Timeout):
        await client.call("BatchGetItem", {"RequestItems": {"t": {}, "u": {}}}, meter=meter, timeout=0.1)

    assert heard == [
        ("PutItem", ("t",), 0.0, 1),
        ("TransactWriteItems", ("t", "u"), 0.0, QUICK.attempts),
        ("BatchGetItem", ("t", "u"), 0.0, 1),
    ]
    assert [call.operation for call in meter.calls] == [operation for operation, *_ in heard]
    assert all(call.seconds >= 0 for call in meter.calls)


@pytest.mark.breaks_rules("it is about refusals")
async def test_a_failed_condition_returns_no_item_unless_requested(client: Client, proxy: Proxy) -> None:
    proxy.faults.append(refuse(400, "ConditionalCheckFailedException"))

    with pytest.raises(ConditionFailed) as failed:
        await client.call("PutItem", {"TableName": "t"})

    assert (failed.value.item, failed.value.after_lost_response) == (None, False)


async def test_a_failed_condition_is_billed_by_the_stored_item(client: Client, database: Database) -> None:
    """DynamoDB reports no units for a failed condition."""
    store = store_on(client, database)
    small: Item = {"PK": "A", "SK": "1"}
    large: Item = {"PK": "A", "SK": "2", "value": b"x" * 20_000, "more": ["y" * 5000, {"z": 1}]}
    items = small, large, {"PK": "A", "SK": "3"}
    conditional = [Action("Put", item=item, condition="attribute_not_exists(PK)") for item in items]
    for item in (small, large):
        await store.put(PUT_NEW, item)
    store.meter.take()

    for item in (small, large):
        assert not (await store.put(PUT_NEW, item)).ok
    with pytest.raises(TransactionCancelled):
        await store.transact(BLIP, conditional)

    calls = store.meter.calls
    assert [call.unreported_units for call in calls] == [1, 25, 27]
    assert [call.units for call in calls] == [0, 0, 0]
    assert store.meter.cost == (1 + 25 + 27) * WRITE_UNIT_COST
    assert not any(call.may_have_written for call in calls)


async def test_every_operation_is_supported_and_metered(client: Client, database: Database) -> None:
    name = database.prefix + BLIP.name
    key = {"PK": {"S": "a"}, "SK": {"S": "b"}}
    capacity = {"ReturnConsumedCapacity": "TOTAL"}
    asked: dict[str, dict[str, Any]] = {
        "PutItem": {"TableName": name, "Item": key},
        "BatchWriteItem": {"RequestItems": {name: [{"PutRequest": {"Item": key}}]}},
        "UpdateItem": {"TableName": name, "Key": key, "UpdateExpression": "REMOVE x"},
        "GetItem": {"TableName": name, "Key": key},
        "BatchGetItem": {"RequestItems": {name: {"Keys": [key]}}},
        "Query": {
            "TableName": name,
            "KeyConditionExpression": "PK = :p",
            "ExpressionAttributeValues": {":p": {"S": "a"}},
        },
        "Scan": {"TableName": name},
        "TransactGetItems": {"TransactItems": [{"Get": {"TableName": name, "Key": key}}]},
        "TransactWriteItems": {"TransactItems": [{"Delete": {"TableName": name, "Key": key}}]},
        "DeleteItem": {"TableName": name, "Key": key},
    }
    meter = Meter()

    for operation, payload in asked.items():
        await client.call(operation, payload | capacity, meter=meter)

    assert set(asked) == ITEM_OPERATIONS
    assert [(call.operation, call.tables) for call in meter.calls] == [(operation, (name,)) for operation in asked]
    assert [call.operation for call in meter.calls if call.units <= 0] == []
