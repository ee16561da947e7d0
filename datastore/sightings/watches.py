"""Watches: the areas and categories of which users receive alerts (BLIP-3, BLIP-7)."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID, uuid5

from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import readable_records, record
from datastore.errors import possibly_deleted
from datastore.keyspace import sightings as keys
from datastore.model.composite_keys import Key, join
from datastore.model.timestamps import from_iso, iso, to_millisecond
from datastore.session.store import Store

WATCH_IDS = UUID("5d3f4c0e-4f7e-4f0a-9a53-6a1d2f0c9b7e")


@dataclass(frozen=True, slots=True)
class Watch:
    """A user's watch of a category in an area. `created_at` is None if another program omitted it."""

    watch_id: str
    user_id: str
    area: str
    category: str
    created_at: datetime | None


class Watches:
    """The watches, with one method for each access pattern."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def of_user(self, user_id: str) -> list[Watch]:
        """BLIP-3: return all watches of a user."""
        values = {"partition": keys.user(user_id), "prefix": keys.WATCH_PREFIX}
        items = [item async for item in self._store.query_all(keys.WATCHES_OF_USER, values)]
        return readable_records(watch_from, items)

    async def at_start(self, user_id: str) -> list[Watch]:
        """BLIP-S2: return all watches of a user by a consistent read, for the start of a subscription."""
        values = {"partition": keys.user(user_id), "prefix": keys.WATCH_PREFIX}
        items = [item async for item in self._store.query_all(keys.WATCH_ALERTS, values)]
        return readable_records(watch_from, items)

    async def by_key(self, key: Key) -> Watch | None:
        return record(watch_from, await self._store.get(keys.WATCH_NODE, key))

    async def create(self, user_id: str, area: str, category: str, now: datetime) -> Watch:
        """BLIP-7: store a watch. A user has one watch of an area and category: return the stored one if it exists."""
        moment = to_millisecond(now)
        watch = Watch(watch_id_of(area, category), user_id, area, category, moment)
        written = await self._store.put(keys.CREATE_WATCH, _watch_item(watch, moment))
        return watch if written.ok or written.item is None else watch_from(written.item)

    async def delete(self, key: Key) -> Watch | None:
        """BLIP-7: delete a watch. Return it, or None if there was none.

        Raises `Unavailable` if an ambiguous attempt may have deleted it.
        """
        written = await self._store.delete(keys.DELETE_WATCH, key)
        if written.item is None and written.is_retry:
            raise possibly_deleted("The watch")
        return watch_from(written.item) if written.item else None


def watch_id_of(area: str, category: str) -> str:
    return str(uuid5(WATCH_IDS, join(area, category)))


def is_watch(key: Mapping[str, Any]) -> bool:
    return str(key["PK"]).startswith("USER#") and str(key["SK"]).startswith(keys.WATCH_PREFIX)


def _watch_item(watch: Watch, created_at: datetime) -> Item:
    key = keys.watch(watch.user_id, watch.area, watch.category, watch.watch_id)
    return {
        "PK": key.partition,
        "SK": key.sort,
        "watchId": watch.watch_id,
        "userId": watch.user_id,
        "area": watch.area,
        "category": watch.category,
        "createdAt": iso(created_at),
    }


def watch_from(item: Mapping[str, Any]) -> Watch:
    user_id, area, category, watch_id = keys.watch_parts(Key(item["PK"], item["SK"]))
    created = item.get("createdAt")
    return Watch(watch_id, user_id, area, category, from_iso(created) if created else None)
