"""Events that the apps of the photo library log."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from operator import not_
from typing import Any

from datastore.items import attributes as stored
from datastore.items.stored_item import StoredItem
from datastore.keyspace.photos import events as keys
from datastore.session.store import Store


class LoggedEvent(StoredItem, key=keys.event):
    """An event in an app at `created_at`. `email` is that of the app's user, if known."""

    entity_type = stored.constant("entityType", keys.TYPE)
    event_id: str = stored.part()
    event_type: str = stored.text("eventType")
    event_data: Mapping[str, Any] = stored.mapping("eventData", encode=stored.same)
    email: str | None = stored.text("email", missing=None, omit=not_)
    created_at: datetime = stored.moment("createdAt")


class PhotoEvents:
    """One method for each access pattern."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def log(self, events: Sequence[LoggedEvent]) -> None:
        """SPARKS-W1: write up to 25 events in one call. Raises `Throttled` if some could not be written."""
        await self._store.write_all(keys.LOG_EVENT, puts=[event.item() for event in events])
