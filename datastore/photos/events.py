"""Events that the apps of the photo library log."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from datastore.dynamodb.codec import Item
from datastore.keyspace.photos import events as keys
from datastore.model.timestamps import iso
from datastore.session.store import Store


@dataclass(frozen=True, slots=True)
class LoggedEvent:
    """An event in an app at `created_at`. `email` is that of the app's user, if known."""

    event_id: str
    event_type: str
    event_data: Mapping[str, Any]
    email: str | None
    created_at: datetime


class PhotoEvents:
    """One method for each access pattern."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def log(self, events: Sequence[LoggedEvent]) -> None:
        """SPARKS-W1: write up to 25 events in one call. Raises `Throttled` if some could not be written."""
        await self._store.write_all(keys.LOG_EVENT, puts=[_event_item(event) for event in events])


def _event_item(event: LoggedEvent) -> Item:
    key = keys.event(event.event_id, event.created_at)
    item = {
        "PK": key.partition,
        "SK": key.sort,
        "entityType": keys.TYPE,
        "eventType": event.event_type,
        "eventData": event.event_data,
        "createdAt": iso(event.created_at),
    }
    return item | ({"email": event.email} if event.email else {})
