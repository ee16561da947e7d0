"""Reads what a log does not hold any more from the stream itself."""

import asyncio
import time
from typing import Any

from datastore.change_log import MOST_BYTES, MOST_CHANGES, REACH_SECONDS, Before, PlaceRefused, not_now
from datastore.change_sizes import size_of
from datastore.client import RequestRefused
from datastore.errors import DomainError
from datastore.shards import Page, ShardCursor, ShardGone, Trimmed, Wire, sequence_of
from datastore.streams import Change, decode_change

# The stream may answer with nothing anywhere before its end, and never says that it is at its end: where nothing has
# been told yet that would have to come, it is taken for it after so many such answers, in so many seconds. On AWS each
# of them passes over a part of what is sparse.
EMPTY_PAGES = 25
EMPTY_SECONDS = 3.0
PAUSE_SECONDS = 0.01
LONG_PAUSE_SECONDS = 0.1
READ_SECONDS = 20.0


class OlderChanges:
    """The changes of a shard after a sequence: see `change_log.ReadOlder`.

    One reading lasts at most `seconds` while it is answered. What fails is asked again for `patience` seconds.
    `empty_seconds`: for how long a stream has nothing more before that is its end.
    """

    def __init__(
        self,
        wire: Wire,
        *,
        seconds: float = READ_SECONDS,
        patience: float = REACH_SECONDS,
        empty_seconds: float = EMPTY_SECONDS,
    ) -> None:
        self._wire = wire
        self._seconds = seconds
        self._patience = patience
        self._empty_seconds = empty_seconds

    async def read(self, stream: str, shard: str, after: int, before: Before) -> list[Change] | None:
        try:
            async with asyncio.timeout(self._patience):
                return await self._read(ShardCursor(self._wire, stream, shard, str(after)), _table(stream), before)
        except (Trimmed, ShardGone):
            return None
        except TimeoutError as late:
            raise not_now() from late  # an outage tells nothing of what the stream holds

    async def _read(self, cursor: ShardCursor, table: str, before: Before) -> list[Change] | None:
        found: list[Change] = []
        size = empty = reached = 0
        spent = nothing = 0.0
        while spent <= self._seconds:
            page, seconds = await self._page(cursor)
            changes = _changes(table, page)
            found += changes
            size += sum(map(size_of, changes))
            begins, reached = before(), max(reached, *map(_sequence, page.records), 0)
            if begins is not None and reached >= begins - 1:
                # The log itself counts the bytes of what is left.
                missing = [change for change in found if int(change.sequence) < begins]
                return missing if len(missing) <= MOST_CHANGES else None
            if len(found) > MOST_CHANGES or size > MOST_BYTES:
                return None
            if page.records:
                empty, nothing = 0, 0.0
            else:
                empty += 1
                seconds += await _paused(PAUSE_SECONDS if empty < EMPTY_PAGES else LONG_PAUSE_SECONDS)
                nothing += seconds
            if page.ended or (begins is None and empty >= EMPTY_PAGES and nothing >= self._empty_seconds):
                return found if begins is None else None
            spent += seconds
        return None  # nobody waits for so much

    async def _page(self, cursor: ShardCursor) -> tuple[Page, float]:
        """The next one, however often it has to be asked for, and how many seconds its answer took."""
        while True:
            began = time.monotonic()
            try:
                return await cursor.read(), time.monotonic() - began
            except DomainError as problem:
                if not problem.retryable:
                    raise
            except RequestRefused as problem:
                if problem.code == "ValidationException":
                    raise PlaceRefused("The stream does not go on there.") from problem
            await asyncio.sleep(LONG_PAUSE_SECONDS)


async def _paused(seconds: float) -> float:
    await asyncio.sleep(seconds)
    return seconds


def _sequence(record: dict[str, Any]) -> int:
    return int(sequence_of(record) or 0)


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
