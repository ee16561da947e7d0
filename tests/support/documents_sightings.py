"""Steps and data of the tests of documents sightings."""

from datetime import datetime, timedelta
from typing import Any

from datastore.dynamodb.codec import encode_item
from datastore.keyspace.sightings import BLIP
from tests.support.served import NOON, Served

REPORT = """mutation { reportSighting(input: {area: "Downtown", category: "Sneakers", description: "Ours"}) {
  sightingId } }"""


def seconds(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def sighting(id: str, age: int = 0, category: str = "Sneakers") -> dict[str, Any]:
    reported = NOON - timedelta(seconds=age)
    return {
        "PK": "AREA#Downtown",
        "SK": f"SIGHTING#{seconds(reported)}#{id}",
        "GSI1PK": f"CATEGORY#{category}",
        "GSI1SK": f"{seconds(reported)}#{id}",
        "sightingId": id,
        "reporterId": "u_abc123",
        "expiresAt": int(reported.timestamp()) + 1800,
    }


PROFILE_ITEM = {"PK": "USER#u_abc123", "SK": "PROFILE"}
WATCH_ITEM = {"PK": "USER#u_abc123", "SK": "WATCH#Downtown#Sneakers#w1"}
CONFIRMATION_ITEM = {
    "PK": "SIGHTING#abc1",
    "SK": f"CONFIRMATION#{seconds(NOON)}#V1StGXR8",
    "expiresAt": int(NOON.timestamp()) + 1800,
}
EXPIRED = sighting("gone", age=4000)
DOCUMENT = [
    *[sighting(f"abc{number}", age=number) for number in (1, 2, 3)],
    EXPIRED,
    PROFILE_ITEM,
    WATCH_ITEM,
    CONFIRMATION_ITEM,
]


def write(served: Served, *items: dict[str, Any]) -> None:
    """With boto3, as another program does."""
    assert served.gateway.database is not None
    client, name = served.gateway.database.admin(), served.gateway.database.prefix + BLIP.name
    for item in items:
        client.put_item(TableName=name, Item=encode_item(item))
