"""Locks: who works on what, with an end that comes by itself when the holder does not (LOCK-1 … LOCK-3).

A lock keeps two from working at once as far as their clocks agree. It is no proof: whoever writes under a lock also
makes the write conditional on its fence (see `active_matches`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from datastore.dynamodb.records import readable
from datastore.keyspace.matches import locks as keys
from datastore.model.timestamps import from_seconds
from datastore.session.store import Store

LIFETIME_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock as it stands. One whose `expires_at` has passed is free to be taken."""

    name: str
    owner: str
    expires_at: datetime


class Locks:
    """Locks in the name of one owner: an instance of the pipeline."""

    def __init__(self, store: Store, owner: str, now: datetime) -> None:
        self._store = store
        self._owner = owner
        self._now = now

    async def acquire(self, name: str, seconds: float = LIFETIME_SECONDS) -> bool:
        """LOCK-1: False when another holds it, which is expected and no error."""
        item = {"lockKey": name, "owner": self._owner, "expiresAt": self._after(seconds)}
        values = {"now": self._now.timestamp(), "owner": self._owner}
        return (await self._store.put(keys.ACQUIRE, item, **values)).ok

    async def release(self, name: str) -> bool:
        """LOCK-2: False when it is no longer one's own."""
        return (await self._store.delete(keys.RELEASE, keys.lock(name), owner=self._owner)).ok

    async def extend(self, name: str, seconds: float = LIFETIME_SECONDS) -> bool:
        """LOCK-3: False when it is no longer one's own: whoever held it must stop."""
        values: dict[str, Any] = {"owner": self._owner, "until": self._after(seconds)}
        return (await self._store.update(keys.EXTEND, keys.lock(name), **values)).ok

    def _after(self, seconds: float) -> float:
        return round((self._now + timedelta(seconds=seconds)).timestamp(), 3)


async def held(store: Store) -> list[Lock]:
    """LOCK-4: all locks there are, by name."""
    return sorted(readable(lock_from, await store.scan(keys.HELD)), key=lambda lock: lock.name)


def lock_from(item: Mapping[str, Any]) -> Lock:
    return Lock(item["lockKey"], item["owner"], from_seconds(item["expiresAt"]))
