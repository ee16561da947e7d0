"""Sightings that other programs write, and subscriptions to them."""

from typing import Any

from datastore.dynamodb.codec import encode_item
from datastore.keyspace.sightings import BLIP
from tests.support.boto_client import boto_client
from tests.support.served import Served


def raw_put(served: Served, item: dict[str, Any]) -> None:
    """Write an item as another program does: without the gateway and its client."""
    assert served.gateway.database is not None
    client = boto_client(served.gateway.database)
    client.put_item(TableName=served.gateway.database.prefix + BLIP.name, Item=encode_item(item))


def foreign_sighting(id: str, **changes: Any) -> dict[str, Any]:
    """Return a sighting in the form of the document: whole seconds, no tier, no count."""
    return {
        "PK": "AREA#Harbor",
        "SK": f"SIGHTING#2026-06-25T12:00:00Z#{id}",
        "GSI1PK": "CATEGORY#Cats",
        "GSI1SK": f"2026-06-25T12:00:00Z#{id}",
        "sightingId": id,
        "area": "Harbor",
        "category": "Cats",
        "reporterId": "ada",
        "reportedAt": "2026-06-25T12:00:00Z",
        "expiresAt": 1_782_390_600,
    } | changes
