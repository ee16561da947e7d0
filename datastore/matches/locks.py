"""Locks: leases on named work, which expire if the holder does not extend them (LOCK-1 … LOCK-4).

A lock excludes other holders only as far as their clocks agree. The holder therefore also makes each write conditional
on a fencing token (see `active_matches`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from datastore.dynamodb.records import readable_records
from datastore.keyspace.matches import locks as keys
from datastore.model.timestamps import from_seconds
from datastore.session.store import Store

LIFETIME_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Lock:
    """A stored lock. After `expires_at` any owner can acquire it."""

    name: str
    owner: str
    expires_at: datetime


class Locks:
    """The locks of one owner, an instance of the pipeline."""

    def __init__(self, store: Store, owner: str, now: datetime) -> None:
        self._store = store
        self._owner = owner
        self._now = now

    async def acquire(self, name: str, seconds: float = LIFETIME_SECONDS) -> bool:
        """LOCK-1: acquire a lock. Return False if another owner holds it."""
        item = {"lockKey": name, "owner": self._owner, "expiresAt": self._after(seconds)}
        values = {"now": self._now.timestamp(), "owner": self._owner}
        return (await self._store.put(keys.ACQUIRE, item, **values)).ok

    async def release(self, name: str) -> bool:
        """LOCK-2: release a lock. Return False if this owner no longer holds it."""
        return (await self._store.delete(keys.RELEASE, keys.lock(name), owner=self._owner)).ok

    async def extend(self, name: str, seconds: float = LIFETIME_SECONDS) -> bool:
        """LOCK-3: extend a lock. Return False if this owner no longer holds it, and must stop its work."""
        values: dict[str, Any] = {"owner": self._owner, "until": self._after(seconds)}
        return (await self._store.update(keys.EXTEND, keys.lock(name), **values)).ok

    def _after(self, seconds: float) -> float:
        return round((self._now + timedelta(seconds=seconds)).timestamp(), 3)


async def all_locks(store: Store) -> list[Lock]:
    """LOCK-4: return all locks by name."""
    return sorted(readable_records(lock_from, await store.scan(keys.ALL_LOCKS)), key=lambda lock: lock.name)


def lock_from(item: Mapping[str, Any]) -> Lock:
    return Lock(item["lockKey"], item["owner"], from_seconds(item["expiresAt"]))
