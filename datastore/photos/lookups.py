"""Batched lookups of items by partition, for keys whose sort key is unknown: one Query for each partition."""

import asyncio
from collections.abc import Sequence
from typing import Any

from datastore.dynamodb.codec import Item
from datastore.model.access_patterns import AccessPattern
from datastore.session.dataloader import CancellableDataLoader
from datastore.session.read_trace import ReadTrace, current_field
from datastore.session.store import Store

CONCURRENCY = 8
# The maximum number of items of a partition: some 25 read units of a person's faces.
MAX_ITEMS = 1000

# The pattern (with `:partition` and `:prefix` in its key), the partition, the prefix, and the maximum number of items.
Lookup = tuple[AccessPattern, str, str, int]


class Lookups(CancellableDataLoader[Lookup, list[Item]]):
    """A dataloader of the first items of partitions. Each partition is read once per request."""

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store
        self._trace = ReadTrace(store.meter.hits)
        self._slots = asyncio.Semaphore(CONCURRENCY)
        store.add_close_callback(self.abandon)

    async def find(self, pattern: AccessPattern, partition: str, prefix: str) -> Item | None:
        """Return the first item of a partition, or None."""
        items = await self._find((pattern, partition, prefix, 1))
        return items[0] if items else None

    async def find_all(self, pattern: AccessPattern, partition: str, prefix: str) -> list[Item]:
        """Return the first `MAX_ITEMS` items of a partition, in the pattern's order."""
        return await self._find((pattern, partition, prefix, MAX_ITEMS))

    async def _find(self, lookup: Lookup) -> list[Item]:
        if self._store.meter.detailed:
            self._trace.record(lookup, lookup[0], is_loaded=self.has(lookup))
        return await self.fetch(lookup)

    async def batch_load_fn(self, lookups: Sequence[Lookup]) -> list[Any]:
        """Return the items or an exception for each lookup."""
        return await asyncio.gather(*[self._read(lookup) for lookup in lookups], return_exceptions=True)

    async def _read(self, lookup: Lookup) -> list[Item]:
        if self._store.meter.detailed:
            # The batch runs in the context of the first field that requested a lookup.
            current_field.set(self._trace.traced([lookup])[0].field)
        pattern, partition, prefix, limit = lookup
        async with self._slots:
            page = await self._store.query(pattern, {"partition": partition, "prefix": prefix}, limit=limit)
        return page.items
