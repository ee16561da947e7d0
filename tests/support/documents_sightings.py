"""The documented items of sightings, written by another program."""

from datetime import timedelta
from typing import Any

from datastore.dynamodb.codec import encode_item
from datastore.keyspace.sightings import BLIP
from tests.support.boto_client import boto_client
from tests.support.moments import whole_seconds
from tests.support.served import NOON, Served

REPORT = """mutation { reportSighting(input: {area: "Downtown", category: "Sneakers", description: "Ours"}) {
  sightingId } }"""


def sighting_document(id: str, age: int = 0, category: str = "Sneakers") -> dict[str, Any]:
    reported = NOON - timedelta(seconds=age)
    return {
        "PK": "AREA#Downtown",
        "SK": f"SIGHTING#{whole_seconds(reported)}#{id}",
        "GSI1PK": f"CATEGORY#{category}",
        "GSI1SK": f"{whole_seconds(reported)}#{id}",
        "sightingId": id,
        "reporterId": "u_abc123",
        "expiresAt": int(reported.timestamp()) + 1800,
    }


PROFILE_ITEM = {"PK": "USER#u_abc123", "SK": "PROFILE"}
WATCH_ITEM = {"PK": "USER#u_abc123", "SK": "WATCH#Downtown#Sneakers#w1"}
CONFIRMATION_ITEM = {
    "PK": "SIGHTING#abc1",
    "SK": f"CONFIRMATION#{whole_seconds(NOON)}#V1StGXR8",
    "expiresAt": int(NOON.timestamp()) + 1800,
}
EXPIRED = sighting_document("gone", age=4000)
DOCUMENT = [
    *[sighting_document(f"abc{number}", age=number) for number in (1, 2, 3)],
    EXPIRED,
    PROFILE_ITEM,
    WATCH_ITEM,
    CONFIRMATION_ITEM,
]


def write_blip_items(served: Served, *items: dict[str, Any]) -> None:
    """Write items of sightings with boto3, as another program does."""
    assert served.gateway.database is not None
    client, name = boto_client(served.gateway.database), served.gateway.database.prefix + BLIP.name
    for item in items:
        client.put_item(TableName=name, Item=encode_item(item))
