"""Reads what a log does not hold any more from the stream itself."""

import asyncio

from datastore.change_log import MOST_BYTES, MOST_CHANGES, Before, PlaceRefused
from datastore.change_sizes import size_of
from datastore.client import RequestRefused
from datastore.errors import DomainError
from datastore.shards import Page, ShardCursor, ShardGone, Trimmed, Wire
from datastore.streams import Change, decode_change

# The stream may answer with nothing anywhere before its end, and never says that it is at its end: where nothing has
# been told yet that would have to come, it is taken for it after so many such answers.
EMPTY_PAGES = 25
PAUSE_SECONDS = 0.01
LONG_PAUSE_SECONDS = 0.25
READ_SECONDS = 20.0


class OlderChanges:
    """The changes of a shard after a sequence: see `change_log.ReadOlder`. One reading lasts at most `seconds`."""

    def __init__(self, wire: Wire, *, seconds: float = READ_SECONDS) -> None:
        self._wire = wire
        self._seconds = seconds

    async def read(self, stream: str, shard: str, after: int, before: Before) -> list[Change] | None:
        try:
            async with asyncio.timeout(self._seconds):
                return await self._read(ShardCursor(self._wire, stream, shard, str(after)), _table(stream), before)
        except (Trimmed, ShardGone, DomainError, TimeoutError):
            return None  # too old is what it comes to for whoever asked; the reader of the table tells of outages
        except RequestRefused as problem:
            raise PlaceRefused(f"The stream does not go on after {after}.") from problem

    async def _read(self, cursor: ShardCursor, table: str, before: Before) -> list[Change] | None:
        found: list[Change] = []
        size = empty = 0
        while True:
            page = await cursor.read()
            changes = _changes(table, page)
            found += changes
            size += sum(map(size_of, changes))
            begins = before()
            if begins is not None and found and int(found[-1].sequence) >= begins:
                # The log itself counts the bytes of what is left.
                missing = [change for change in found if int(change.sequence) < begins]
                return missing if len(missing) <= MOST_CHANGES else None
            if len(found) > MOST_CHANGES or size > MOST_BYTES:
                return None
            empty = 0 if page.records else empty + 1
            if page.ended or (begins is None and empty >= EMPTY_PAGES):
                return found if begins is None else None
            if empty:
                await asyncio.sleep(PAUSE_SECONDS if empty < EMPTY_PAGES else LONG_PAUSE_SECONDS)


def _table(stream: str) -> str:
    return stream.partition("table/")[2].partition("/")[0]


def _changes(table: str, page: Page) -> list[Change]:
    changes = []
    for record in page.records:
        try:
            changes.append(decode_change(table, record))
        except (KeyError, TypeError, ValueError):
            continue  # as the reader of the table passes it over, and tells of it
    return changes
