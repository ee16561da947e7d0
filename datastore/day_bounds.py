"""The bound of a day's magnitudes, which is raised before the day's first event of a magnitude is stored (QUAKE-P1)."""

import asyncio
import math

from datastore.keyspace import earthquake_statistics as keys
from datastore.store import Store

MOST_BOUNDS = 8192


class KnownBounds:
    """What a process knows of the bounds of days, so that a bound that is high enough is not raised again."""

    def __init__(self) -> None:
        self._bounds: dict[str, float] = {}
        self._raising = asyncio.Lock()

    async def raise_to(self, store: Store, day: str, magnitude: float) -> None:
        """QUAKE-P1: return once the stored bound of the day is at least `magnitude`."""
        if self._holds(day, magnitude):
            return
        async with self._raising:
            if self._holds(day, magnitude):
                return
            written = await store.update(keys.RAISE_BOUND, keys.day(day), greatest=magnitude)
            if len(self._bounds) >= MOST_BOUNDS:
                self._bounds.clear()
            self._bounds[day] = float((written.item or {}).get("greatest", magnitude))

    def _holds(self, day: str, magnitude: float) -> bool:
        return self._bounds.get(day, -math.inf) >= magnitude
