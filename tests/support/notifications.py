"""Stored notifications."""

from datetime import datetime
from typing import Any

from datastore.dynamodb.codec import Item
from datastore.feeds.notifications import LIFETIME
from datastore.keyspace.feeds import notifications as keys
from datastore.model.timestamps import to_seconds
from tests.support.served import NOON


def notification_item(name: str, user: str = "ada", at: datetime = NOON, **more: Any) -> Item:
    """Return a notification, by default a like of `bob`; `more` may name a post and a comment."""
    key = keys.notification(user, at, name)
    received = {"kind": "like", "actor_id": "bob", "actor_count": 1, "expiresAt": to_seconds(at + LIFETIME)}
    there = {"PK": key.partition, "SK": key.sort, "GSI_NOTIFPK": key.partition, "GSI_NOTIFSK": key.sort}
    return {**there, **received, **more}
