"""The stream of the table `feed` as a test reads it: every change there is, decoded as the pipeline gets it."""

import uuid
from collections.abc import Mapping
from typing import Any

from datastore.change_streams.shards.stream_reader import Change, decode_change
from datastore.database import Database
from datastore.dynamodb.client import Client
from datastore.dynamodb.codec import Item, decode_item, encode_item
from datastore.keyspace.feeds.table import FEED
from datastore.model.access_patterns import Table
from datastore.session.metering import Deadline
from datastore.session.store import Store


def store_of(database: Database, client: Client | None = None) -> Store:
    """A store on the test's tables, over another client if one is given: of a proxy that misbehaves."""
    return Store(
        client or database.client, prefix=database.prefix, deadline=Deadline(50), token=lambda: uuid.uuid4().hex
    )


async def put(database: Database, *items: Mapping[str, Any]) -> None:
    """Put items into `feed` one after another, each a record in the stream."""
    for item in items:
        await database.client.call("PutItem", {"TableName": _name(database), "Item": encode_item(item)})


async def remove(database: Database, *items: Mapping[str, Any]) -> None:
    """Delete items by hand."""
    for item in items:
        key = encode_item({"PK": item["PK"], "SK": item["SK"]})
        await database.client.call("DeleteItem", {"TableName": _name(database), "Key": key})


async def items_of(database: Database, table: Table) -> list[Item]:
    """Every item of a table as it is."""
    found: list[Item] = []
    request: dict[str, Any] = {"TableName": database.prefix + table.name, "ConsistentRead": True}
    while True:
        answer = await database.client.call("Scan", request)
        found += [decode_item(item) for item in answer["Items"]]
        if "LastEvaluatedKey" not in answer:
            return found
        request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]


async def feed_changes(database: Database, since: int = 0) -> list[Change]:
    """The changes of `feed` from its beginning on, in the order of each shard, without the first `since` of them."""
    stream = await _stream(database)
    described = await _call(database, "DescribeStream", StreamArn=stream)
    changes: list[Change] = []
    for shard in described["StreamDescription"]["Shards"]:
        changes += await _changes(database, stream, shard["ShardId"])
    return changes[since:]


async def _changes(database: Database, stream: str, shard_id: str) -> list[Change]:
    """What a shard holds now: an open shard has always a next iterator, so an empty answer is the end."""
    begin = await _call(
        database, "GetShardIterator", StreamArn=stream, ShardId=shard_id, ShardIteratorType="TRIM_HORIZON"
    )
    iterator = begin["ShardIterator"]
    changes: list[Change] = []
    while iterator is not None:
        answer = await _call(database, "GetRecords", ShardIterator=iterator, Limit=1000)
        if not answer["Records"]:
            break
        changes += [decode_change(FEED.name, record) for record in answer["Records"]]
        iterator = answer.get("NextShardIterator")
    return changes


async def _stream(database: Database) -> str:
    table = await _call(database, "DescribeTable", TableName=_name(database))
    stream: str = table["Table"]["LatestStreamArn"]
    return stream


async def _call(database: Database, operation: str, **payload: Any) -> dict[str, Any]:
    return await database.client.call(operation, payload)


def _name(database: Database) -> str:
    return database.prefix + FEED.name
