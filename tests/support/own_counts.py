"""A consumer that counts the feed's changes when a test lets it."""

from collections.abc import Callable, Collection
from typing import Any

from datastore.change_streams.change import Change
from datastore.keyspace.feeds.pipeline import FEED_PIPELINE
from pipelines.feeds.counters import Counters
from tests.support.feed_changes import feed_changes, items_of
from tests.support.served import Served


class CountingConsumer:
    """The handler of counters, which handles changes one call at a time."""

    def __init__(self, served: Served) -> None:
        assert served.gateway.database is not None
        self._database = served.gateway.database
        self._counters = Counters(served.store, served.clock)
        self._handled: set[str] = set()

    async def pending(self) -> list[Change]:
        """Return the changes that were not handled, in their order."""
        return [change for change in await feed_changes(self._database) if change.sequence not in self._handled]

    async def count(self, changes: Collection[Change] | None = None) -> None:
        """Handle these changes, by default all that are pending."""
        changes = await self.pending() if changes is None else changes
        await self._counters.handle([*changes])
        self._handled |= {change.sequence for change in changes}

    async def count_where(self, is_counted: Callable[[Change], bool]) -> None:
        """Handle the pending changes that satisfy the condition."""
        await self.count([change for change in await self.pending() if is_counted(change)])

    async def marks(self) -> list[dict[str, Any]]:
        """Return the marks of counted changes."""
        items = await items_of(self._database, FEED_PIPELINE)
        return [item for item in items if item["SK"].startswith("CHANGE#")]
