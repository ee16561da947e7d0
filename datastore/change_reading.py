"""Reads what a log does not hold any more from the stream itself."""

import asyncio

from datastore.change_log import MOST_CHANGES, Before
from datastore.client import RequestRefused
from datastore.errors import DomainError
from datastore.shards import ShardCursor, ShardGone, Trimmed, Wire
from datastore.streams import Change, decode_change

# A stream may answer with nothing long before its end, and does not tell the end of a shard that is open: there so many
# such answers in a row are taken for it. Where it is known what comes next, that is read up to.
EMPTY_PAGES = 32
READ_SECONDS = 5.0


class OlderChanges:
    """The changes of a shard after a sequence: see `change_log.ReadOlder`. What takes longer is given up."""

    def __init__(self, wire: Wire, *, seconds: float = READ_SECONDS) -> None:
        self._wire = wire
        self._seconds = seconds

    async def read(self, stream: str, shard: str, after: int, before: Before) -> list[Change] | None:
        cursor = ShardCursor(self._wire, stream, shard, str(after))
        table = stream.partition("table/")[2].partition("/")[0]
        try:
            async with asyncio.timeout(self._seconds):
                return await _changes(cursor, table, before)
        except (Trimmed, ShardGone, RequestRefused, DomainError, TimeoutError):
            return None  # too old is what it comes to for whoever asked; the reader of the table tells of outages


async def _changes(cursor: ShardCursor, table: str, before: Before) -> list[Change] | None:
    """None where they are too many."""
    found: list[Change] = []
    empty = 0
    while len(found) <= MOST_CHANGES:
        page = await cursor.read()
        for record in page.records:
            try:
                change = decode_change(table, record)
            except (KeyError, TypeError, ValueError):
                continue  # as the reader of the table passes it over, and tells of it
            known = before()  # as soon as anything new is told: who writes on and on would be read after for ever
            if known is not None and int(change.sequence) >= known:
                return found
            found.append(change)
        empty = 0 if page.records else empty + 1
        if page.ended or (before() is None and empty == EMPTY_PAGES):
            return found if len(found) <= MOST_CHANGES else None
    return None
