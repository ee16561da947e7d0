"""Watches: the areas and categories of which users receive alerts (BLIP-3, BLIP-7)."""

from datetime import datetime
from uuid import UUID, uuid5

from datastore.dynamodb.records import readable_records, record
from datastore.errors import possibly_deleted
from datastore.items import attributes as stored
from datastore.items.stored_item import StoredItem
from datastore.keyspace import sightings as keys
from datastore.model.access_patterns import AccessPattern
from datastore.model.composite_keys import Key, join
from datastore.model.timestamps import to_millisecond
from datastore.session.store import Store

WATCH_IDS = UUID("5d3f4c0e-4f7e-4f0a-9a53-6a1d2f0c9b7e")


class Watch(StoredItem, key=keys.watch):
    """A user's watch of a category in an area. `created_at` is None if another program omitted it."""

    watch_id: str = stored.part("watchId")
    user_id: str = stored.part("userId")
    area: str = stored.part("area")
    category: str = stored.part("category")
    created_at: datetime | None = stored.moment("createdAt", default=None)


class Watches:
    """The watches, with one method for each access pattern."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def of_user(self, user_id: str, pattern: AccessPattern = keys.WATCHES_OF_USER) -> list[Watch]:
        """BLIP-3: return all watches of a user. `pattern` may be one that reads consistently."""
        values = keys.watch.values_of(user_id)
        items = [item async for item in self._store.query_all(pattern, values)]
        return readable_records(Watch.decoder, items)

    async def at_start(self, user_id: str) -> list[Watch]:
        """BLIP-S2: return all watches of a user by a consistent read, for the start of a subscription."""
        values = keys.watch.values_of(user_id)
        items = [item async for item in self._store.query_all(keys.WATCH_ALERTS, values)]
        return readable_records(Watch.decoder, items)

    async def by_key(self, user_id: str, area: str, category: str, watch_id: str) -> Watch | None:
        """BLIP-N2: return a watch by the parts of its key, or None."""
        key = keys.watch(user_id, area, category, watch_id)
        return record(Watch.decoder, await self._store.get(keys.WATCH_NODE, key))

    async def create(self, user_id: str, area: str, category: str, now: datetime) -> Watch:
        """BLIP-7: store a watch. A user has one watch of an area and category: return the stored one if it exists."""
        watch = Watch(watch_id_of(area, category), user_id, area, category, to_millisecond(now))
        written = await self._store.put(keys.CREATE_WATCH, watch.item())
        return watch if written.ok or written.item is None else Watch.decoder(written.item)

    async def delete(self, key: Key) -> Watch | None:
        """BLIP-7: delete a watch. Return it, or None if there was none.

        Raises `Unavailable` if an ambiguous attempt may have deleted it.
        """
        written = await self._store.delete(keys.DELETE_WATCH, key)
        if written.item is None and written.is_retry:
            raise possibly_deleted("The watch")
        return Watch.decoder(written.item) if written.item else None


def watch_id_of(area: str, category: str) -> str:
    return str(uuid5(WATCH_IDS, join(area, category)))
