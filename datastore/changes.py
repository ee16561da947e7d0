"""The change feed: whoever follows a table gets its changes, in the order of each key.

One reader per table (see `streams`) runs while anybody follows; the hub hands out what it reads.
"""

import logging
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

from datastore.declarations import Table
from datastore.hub import Hub, Policy, Subscription
from datastore.shards import Wire
from datastore.streams import Change, StreamReader

T = TypeVar("T")

logger = logging.getLogger(__name__)


def _log(table: str, problem: Exception) -> None:
    logger.warning("Changes of %s: %r", table, problem)


class ChangeFeed:
    """The changes of all tables. `on_error` hears of records that cannot be decoded, and of each outage once."""

    def __init__(
        self,
        wire: Wire,
        *,
        prefix: str = "",
        poll_interval: float = 0.25,
        discover_interval: float = 10.0,
        on_error: Callable[[str, Exception], None] = _log,
    ) -> None:
        self._hub: Hub[Change] = Hub()
        self._readers: dict[str, StreamReader] = {}
        self._heads: dict[str, dict[int, Callable[[], int]]] = {}
        self._read = partial(StreamReader, wire, self._hub, prefix, poll_interval, discover_interval, on_error)

    @asynccontextmanager
    async def follow(
        self,
        table: Table,
        select: Callable[[Change], T | None],
        *,
        capacity: int = 256,
        policy: Policy = Policy.DISCONNECT,
        key: Callable[[T], Hashable] | None = None,
        stands_for: Callable[[], int] = lambda: 1,
    ) -> AsyncIterator[Subscription[T]]:
        """Entered when every write acknowledged from then on will be seen; a few older ones may be seen too.

        `stands_for` tells how many have its events, for figures.
        Raises what the store raises when it cannot be reached at first. Once entered, outages are waited out, and the
        iteration raises `ChangesLost` when something was lost.
        """
        async with self._hub.subscribe(table.name, select, capacity=capacity, policy=policy, key=key) as events:
            reader = self._join(table)
            try:
                await reader.attached()
                self._heads.setdefault(table.name, {})[id(events)] = stands_for
                yield events
            finally:
                self._heads.get(table.name, {}).pop(id(events), None)
                await self._leave(table, reader)

    def followers(self, table: Table) -> int:
        """How many follow a table whose stream is being read."""
        reader = self._readers.get(table.name)
        heads = self._heads.get(table.name, {}) if reader is not None and reader.is_attached else {}
        return sum(stands_for() for stands_for in heads.values())

    async def aclose(self) -> None:
        """Stop reading; whoever still follows comes to the end of the iteration."""
        readers, self._readers = self._readers, {}
        for name, reader in readers.items():
            self._hub.end(name)
            await reader.stop()

    def _join(self, table: Table) -> "StreamReader":
        reader = self._readers.get(table.name)
        if reader is None or reader.problem is not None:
            reader = self._readers[table.name] = self._read(table)
        reader.followers += 1
        return reader

    async def _leave(self, table: Table, reader: "StreamReader") -> None:
        reader.followers -= 1
        if reader.followers:
            return
        if self._readers.get(table.name) is reader:
            del self._readers[table.name]
        await reader.stop()
