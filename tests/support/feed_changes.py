"""The stream of the table `feed`, read completely and decoded as the pipeline does it."""

import uuid
from collections.abc import Mapping
from typing import Any

from datastore.change_streams.change import Change, decode_change
from datastore.database import Database
from datastore.dynamodb.client import Client
from datastore.dynamodb.codec import Item, decode_item, encode_item
from datastore.keyspace.feeds.table import FEED
from datastore.model.access_patterns import Table
from datastore.session.metering import Deadline
from datastore.session.store import Store
from tests.support.served import NOON


def store_of(database: Database, client: Client | None = None) -> Store:
    """Return a store on the test's tables, with another client if one is given."""
    return Store(
        client or database.client,
        prefix=database.prefix,
        deadline=Deadline(50),
        token=lambda: uuid.uuid4().hex,
        now=lambda: NOON,
    )


async def put_feed_records(database: Database, *items: Mapping[str, Any]) -> None:
    """Put items into `feed` one after another, each a record in the stream."""
    for item in items:
        await database.client.call("PutItem", {"TableName": _name(database), "Item": encode_item(item)})


async def delete_feed_records(database: Database, *items: Mapping[str, Any]) -> None:
    """Delete items of `feed` one after another."""
    for item in items:
        key = encode_item({"PK": item["PK"], "SK": item["SK"]})
        await database.client.call("DeleteItem", {"TableName": _name(database), "Key": key})


async def items_of(database: Database, table: Table) -> list[Item]:
    """Return every item of a table."""
    found: list[Item] = []
    request: dict[str, Any] = {"TableName": database.prefix + table.name, "ConsistentRead": True}
    while True:
        answer = await database.client.call("Scan", request)
        found += [decode_item(item) for item in answer["Items"]]
        if "LastEvaluatedKey" not in answer:
            return found
        request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]


async def feed_changes(database: Database, since: int = 0) -> list[Change]:
    """Return the changes of `feed` from its beginning, in the order of each shard, without the first `since`."""
    stream = await _stream(database)
    described = await _call(database, "DescribeStream", StreamArn=stream)
    changes: list[Change] = []
    for shard in described["StreamDescription"]["Shards"]:
        changes += await _changes(database, stream, shard["ShardId"])
    return changes[since:]


async def _changes(database: Database, stream: str, shard_id: str) -> list[Change]:
    """Return the records of a shard. An open shard always has a next iterator, so that an empty page is the end."""
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
