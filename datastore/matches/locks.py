"""Locks: leases on named work, which expire if the holder does not extend them (LOCK-1 … LOCK-4).

A lock excludes other holders only as far as their clocks agree. The holder therefore also makes each write conditional
on a fencing token (see `active_matches`).
"""

from datetime import datetime, timedelta
from typing import Any

from datastore.dynamodb.records import readable_records
from datastore.items import attributes as stored
from datastore.items.stored_item import StoredItem
from datastore.keyspace.matches import locks as keys
from datastore.model.access_patterns import AccessPattern
from datastore.session.store import Store

LIFETIME_SECONDS = 10.0


def _rounded(moment: datetime) -> float:
    return round(moment.timestamp(), 3)


class Lock(StoredItem, key=keys.lock):
    """A stored lock. After `expires_at` any owner can acquire it."""

    name: str = stored.part()
    owner: str = stored.text("owner")
    expires_at: datetime = stored.seconds("expiresAt", encode=_rounded)


class Locks:
    """The locks of one owner, an instance of the pipeline."""

    def __init__(self, store: Store, owner: str, now: datetime) -> None:
        self._store = store
        self._owner = owner
        self._now = now

    async def acquire(self, name: str, seconds: float = LIFETIME_SECONDS) -> bool:
        """LOCK-1: acquire a lock. Return False if another owner holds it."""
        item = Lock(name, self._owner, self._now + timedelta(seconds=seconds)).item()
        values = {"now": self._now.timestamp(), "owner": self._owner}
        return (await self._store.put(keys.ACQUIRE, item, **values)).ok

    async def release(self, name: str) -> bool:
        """LOCK-2: release a lock. Return False if this owner no longer holds it."""
        return (await self._store.delete(keys.RELEASE, keys.lock(name), owner=self._owner)).ok

    async def extend(self, name: str, seconds: float = LIFETIME_SECONDS) -> bool:
        """LOCK-3: extend a lock. Return False if this owner no longer holds it, and must stop its work."""
        values: dict[str, Any] = {"owner": self._owner, "until": _rounded(self._now + timedelta(seconds=seconds))}
        return (await self._store.update(keys.EXTEND, keys.lock(name), **values)).ok


async def all_locks(store: Store, pattern: AccessPattern = keys.ALL_LOCKS) -> list[Lock]:
    """LOCK-4: return all locks by name."""
    return sorted(readable_records(Lock.decoder, await store.scan(pattern)), key=lambda lock: lock.name)
