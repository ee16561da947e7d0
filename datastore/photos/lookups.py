"""Items found by their partition alone, where the rest of the key is not known: one Query each, some at once."""

import asyncio
from collections.abc import Sequence
from typing import Any

from datastore.asking import Asks, asking
from datastore.attributes import Item
from datastore.declarations import AccessPattern
from datastore.giving_up import Batches
from datastore.store import Store

AT_ONCE = 8

# The pattern (`PK = :partition AND begins_with(SK, :prefix)`), the partition and the prefix.
Place = tuple[AccessPattern, str, str]


class Lookups(Batches[Place, Item | None]):
    """The first item of each partition, or None; each is asked for once in a request."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store
        self._asks = Asks(store.meter.hits)
        self._at_once = asyncio.Semaphore(AT_ONCE)
        store.on_close(self.give_up)

    async def find(self, pattern: AccessPattern, partition: str, prefix: str) -> Item | None:
        place = pattern, partition, prefix
        if self._store.meter.detailed:
            self._asks.note(place, pattern, known=self.knows(place))
        return await self.wait(place)

    async def batch_load_fn(self, places: Sequence[Place]) -> list[Any]:
        """An item, None or an exception for each place."""
        return await asyncio.gather(*[self._first(place) for place in places], return_exceptions=True)

    async def _first(self, place: Place) -> Item | None:
        pattern, partition, prefix = place
        if self._store.meter.detailed:
            # It runs in a task of its own, begun by whoever was the first of all that ask in this turn.
            asking.set(self._asks.of([place])[0].field)
        async with self._at_once:
            page = await self._store.query(pattern, {"partition": partition, "prefix": prefix}, limit=1)
        return page.items[0] if page.items else None
