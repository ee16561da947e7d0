"""Reads what a log does not hold any more from the stream itself."""

from datastore.change_log import MOST_CHANGES
from datastore.client import RequestRefused
from datastore.errors import DomainError
from datastore.shards import ShardCursor, ShardGone, Trimmed, Wire
from datastore.streams import Change, decode_change

# The stream may answer with nothing before its end.
EMPTY_PAGES = 4


class OlderChanges:
    """The changes of a shard after a sequence: see `change_log.ReadOlder`."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    async def read(self, stream: str, shard: str, after: int, before: int | None) -> list[Change] | None:
        cursor = ShardCursor(self._wire, stream, shard, str(after))
        table = stream.partition("table/")[2].partition("/")[0]
        found: list[Change] = []
        empty = 0
        while empty < EMPTY_PAGES:
            try:
                page = await cursor.read()
            except (Trimmed, ShardGone, RequestRefused, DomainError):
                return None  # too old is what it comes to for whoever asked; the reader of the table tells of outages
            for record in page.records:
                try:
                    change = decode_change(table, record)
                except (KeyError, TypeError, ValueError):
                    continue  # as the reader of the table passes it over, and tells of it
                if before is not None and int(change.sequence) >= before:
                    return found
                found.append(change)
            if page.ended or len(found) > MOST_CHANGES:
                break
            empty = 0 if page.records else empty + 1
        return found if len(found) <= MOST_CHANGES else None
