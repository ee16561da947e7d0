"""Items found by their partition alone, where the rest of the key is not known: one Query each, some at once."""

import asyncio
from collections.abc import Sequence
from typing import Any

from datastore.dynamodb.codec import Item
from datastore.explain.trace import ReadTrace, current_field
from datastore.model.access_patterns import AccessPattern
from datastore.session.dataloader import CancellableDataLoader
from datastore.session.store import Store

AT_ONCE = 8
# Of a longer partition the first of these are found: some 25 read units of a person's faces.
MOST_OF_PARTITION = 1000

# The pattern (with `:partition` and `:prefix` in its key), the partition, the prefix, and how many items at most.
Place = tuple[AccessPattern, str, str, int]


class Lookups(CancellableDataLoader[Place, list[Item]]):
    """The first items of each partition; each is asked for once in a request."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store
        self._asks = ReadTrace(store.meter.hits)
        self._at_once = asyncio.Semaphore(AT_ONCE)
        store.add_close_callback(self.abandon)

    async def find(self, pattern: AccessPattern, partition: str, prefix: str) -> Item | None:
        """The first item, or None."""
        items = await self._find((pattern, partition, prefix, 1))
        return items[0] if items else None

    async def find_all(self, pattern: AccessPattern, partition: str, prefix: str) -> list[Item]:
        """The items of the partition, in the pattern's order, up to `MOST_OF_PARTITION`."""
        return await self._find((pattern, partition, prefix, MOST_OF_PARTITION))

    async def _find(self, place: Place) -> list[Item]:
        if self._store.meter.detailed:
            self._asks.record(place, place[0], is_loaded=self.has(place))
        return await self.fetch(place)

    async def batch_load_fn(self, places: Sequence[Place]) -> list[Any]:
        """The items or an exception for each place."""
        return await asyncio.gather(*[self._read(place) for place in places], return_exceptions=True)

    async def _read(self, place: Place) -> list[Item]:
        if self._store.meter.detailed:
            # It runs in a task of its own, begun by whoever was the first of all that ask in this turn.
            current_field.set(self._asks.traced([place])[0].field)
        pattern, partition, prefix, most = place
        async with self._at_once:
            page = await self._store.query(pattern, {"partition": partition, "prefix": prefix}, limit=most)
        return page.items
