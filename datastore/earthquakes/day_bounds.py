"""Upper bounds of a day's magnitudes, which are raised before an event above them is stored (QUAKE-P1).

No event of the day has a magnitude above the attribute `greatest`. No event of the day other than an earthquake has a
magnitude above `greatestOther`.
"""

import asyncio
from typing import Any

from datastore.dynamodb.codec import Item
from datastore.keyspace import earthquake_statistics as keys
from datastore.model.access_patterns import AccessPattern
from datastore.primitives.lru_cache import LruCache
from datastore.session.store import Store

MAX_CACHED_BOUNDS = 8192
GREATEST, GREATEST_OTHER = "greatest", "greatestOther"


class KnownBounds:
    """A cache of the bounds of days, so that a process does not raise a bound that is high enough."""

    def __init__(self) -> None:
        self._bounds = LruCache[tuple[str, str], float](MAX_CACHED_BOUNDS)
        self._raising = asyncio.Lock()

    async def raise_for(self, store: Store, item: Item) -> None:
        """QUAKE-P1: return once the bounds of the event's day hold for the item of the event."""
        await self.raise_to(store, item["dayBucket"], item["mag"], other=not is_natural(item.get("type")))

    async def raise_to(self, store: Store, day: str, magnitude: float, *, other: bool) -> None:
        """QUAKE-P1: return once the stored bound of the day (YYYYMMDD) is at least `magnitude`.

        `other` raises the bound of the events other than earthquakes as well.
        """
        await self._raise(store, keys.RAISE_BOUND, day, GREATEST, magnitude)
        if other:
            await self._raise(store, keys.RAISE_OTHER_BOUND, day, GREATEST_OTHER, magnitude)

    async def _raise(self, store: Store, pattern: AccessPattern, day: str, bound: str, magnitude: float) -> None:
        if self._holds(day, bound, magnitude):
            return
        async with self._raising:
            if self._holds(day, bound, magnitude):
                return
            written = await store.update(pattern, keys.day(day), greatest=magnitude)
            self._bounds.put((day, bound), float((written.item or {}).get(bound, magnitude)))

    def _holds(self, day: str, bound: str, magnitude: float) -> bool:
        held = self._bounds.get((day, bound))
        return held is not None and held >= magnitude


def is_natural(event_type: Any) -> bool:
    """Return whether an event of this USGS type is an earthquake. An event without a type is an earthquake."""
    return not isinstance(event_type, str) or event_type in ("", "earthquake")
