"""Invented earthquakes for tests, stored by the gateway or as items of another program."""

import asyncio
from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from datastore.dynamodb.codec import Item, decode_item, encode_item
from datastore.earthquakes.earthquakes import Earthquakes
from datastore.earthquakes.events import Earthquake
from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.model.timestamps import day_bucket, epoch_ms
from tests.support.boto_client import boto_client
from tests.support.served import NOON, Served

MODEL = Earthquake("us1", epoch_ms(NOON), 4.5, "1 km N of Here", 33.25, -116.5, 9.75, "USGS", epoch_ms(NOON))


def quake(event_id: str, before_noon: timedelta = timedelta(), **changes: Any) -> Earthquake:
    return replace(MODEL, event_id=event_id, occurred_at_ms=epoch_ms(NOON - before_noon), **changes)


async def store(served: Served, *events: Earthquake) -> None:
    repository = Earthquakes(served.store(), served.clock())
    assert all([await repository.insert(event) for event in events])


async def put_raw(served: Served, event_id: str, occurred_at: datetime = NOON, **changes: Any) -> None:
    """Put an event's item without the gateway's code. A change of None omits the attribute."""
    bucket = day_bucket(occurred_at)
    item = {
        "pk": f"EVENT#{event_id}",
        "sk": "EVENT",
        "entity": "EVENT",
        "eventId": event_id,
        "eventTsMs": epoch_ms(occurred_at),
        "mag": 4.5,
        "place": "1 km N of Here",
        "lat": 33.25,
        "lon": -116.5,
        "depth": 9.75,
        "dayBucket": bucket,
        "gsi1pk": f"DAY#{bucket}",
        "gsi1sk": epoch_ms(occurred_at),
        "source": "USGS",
        "ingestedAt": epoch_ms(NOON),
    } | changes
    kept = {name: value for name, value in item.items() if value is not None}
    await put_item(served, kept)


async def put_item(served: Served, item: dict[str, Any]) -> None:
    assert served.gateway.database is not None
    admin, name = boto_client(served.gateway.database), served.gateway.database.prefix + EARTHQUAKES.name
    await asyncio.to_thread(admin.put_item, TableName=name, Item=encode_item(item))


async def scan(served: Served, entity: str) -> list[dict[str, Any]]:
    """Return every item of that kind in the table."""
    assert served.gateway.database is not None
    request = {
        "TableName": served.gateway.database.prefix + EARTHQUAKES.name,
        "FilterExpression": "entity = :entity",
        "ExpressionAttributeValues": {":entity": {"S": entity}},
    }
    found: list[dict[str, Any]] = []
    while True:
        answer = await served.gateway.database.client.call("Scan", request)
        found += answer["Items"]
        if not answer.get("LastEvaluatedKey"):
            return found
        request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]


async def scan_all(served: Served) -> list[Item]:
    """Return all items of the table."""
    assert served.gateway.database is not None
    request: dict[str, Any] = {"TableName": served.gateway.database.prefix + EARTHQUAKES.name, "ConsistentRead": True}
    found: list[Item] = []
    while True:
        answer = await served.gateway.database.client.call("Scan", request)
        found += [decode_item(item) for item in answer["Items"]]
        if not answer.get("LastEvaluatedKey"):
            return found
        request["ExclusiveStartKey"] = answer["LastEvaluatedKey"]
