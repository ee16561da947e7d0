"""The backfill of a replay log: it reads older changes from the stream."""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from itertools import repeat
from typing import Any

from datastore.change_streams.change import Change, decode_change
from datastore.change_streams.change_sizes import size_of
from datastore.change_streams.replay.history import MAX_BYTES, MAX_CHANGES
from datastore.change_streams.replay.replay_log import REACH_SECONDS, MissingRange, ResumeTokenRefused, not_now
from datastore.change_streams.replay.resume_token import Key, idle_since
from datastore.change_streams.replay.runs import oldest
from datastore.change_streams.shards.checkpoints import sequence_at
from datastore.change_streams.shards.read_pace import ReadPace
from datastore.change_streams.shards.shard_reader import (
    INVALID,
    LOST,
    RETENTION,
    ShardCursor,
    ShardGone,
    ShardPage,
    Trimmed,
    Wire,
    sequence_of,
    shards_of,
)
from datastore.dynamodb.client import RequestRefused
from datastore.errors import DomainError, Throttled
from datastore.primitives.retries import retry
from datastore.primitives.tasks import cancel

# A stream may return empty pages before its end, and does not mark the end of an open shard. If no known record must
# still follow, this many empty pages in this many seconds count as the end. On AWS an empty page skips a sparse part.
EMPTY_PAGES = 25
EMPTY_SECONDS = 3.0
PAUSE_SECONDS = 0.01
LONG_PAUSE_SECONDS = 0.1
READ_SECONDS = 20.0
SHARDS_AT_ONCE = 16


class _TooMuch(Exception):
    """More changes are missing than the bounds allow, or the stream no longer holds them."""


class _OlderRecords:
    """The changes of one reading, over all its shards, within the bounds of a log."""

    def __init__(self, ranges: list[MissingRange]) -> None:
        self.by_key = {missing.key: list[Change]() for missing in ranges}
        self._count = self._bytes = 0

    def add(self, missing: MissingRange, changes: list[Change]) -> None:
        self.by_key[missing.key] += changes
        self._count += len(changes)
        self._bytes += sum(map(size_of, changes))
        if self._count > MAX_CHANGES or self._bytes > MAX_BYTES:
            raise _TooMuch

    def remove_after(self, missing: MissingRange, before: int) -> None:
        """Drop the shard's changes from the sequence number `before` on."""
        kept = [change for change in self.by_key[missing.key] if int(change.sequence) < before]
        self._count -= len(self.by_key[missing.key]) - len(kept)
        self.by_key[missing.key] = kept


class Backfill:
    """A reader of the changes that a log lacks: earlier records of a stream.

    One reading of a shard lasts at most `seconds` while the store answers. Failed calls are retried for `retry_seconds`
    seconds, throttled ones at a lower rate (datastore/change_streams/shards/read_pace.py). A shard without new records
    for `empty_seconds` counts as read to its end.
    """

    def __init__(
        self,
        wire: Wire,
        *,
        seconds: float = READ_SECONDS,
        retry_seconds: float = REACH_SECONDS,
        empty_seconds: float = EMPTY_SECONDS,
    ) -> None:
        self._wire = wire
        self._seconds = seconds
        self._retry_seconds = retry_seconds
        self._empty_seconds = empty_seconds

    async def shards(self, stream: str) -> Mapping[str, str | None]:
        """Return the shards that the stream lists, with their parents. Raises `Unavailable`."""
        try:
            async with asyncio.timeout(self._retry_seconds):
                listed = await retry(
                    partial(shards_of, self._wire, stream), repeat(LONG_PAUSE_SECONDS), _may_succeed_later
                )
        except RequestRefused:
            return {}
        except TimeoutError as late:
            raise not_now() from late
        return {shard.id: shard.parent for shard in listed}

    async def read(self, stream: str, ranges: list[MissingRange]) -> list[tuple[str, Change]] | None:
        """Return the missing changes with their shards, in the order of each key.

        Return None if the stream no longer holds them, if reading takes too long although the stream responds, or for
        more than `MAX_CHANGES` or `MAX_BYTES`.

        Raises:
            ResumeTokenRefused: The stream does not accept a position.
            Unavailable: The store stays unavailable.
        """
        found, turns = _OlderRecords(ranges), asyncio.Semaphore(SHARDS_AT_ONCE)

        async def read(missing: MissingRange) -> None:
            async with turns:
                await self._read(stream, missing, found)

        tasks = [asyncio.create_task(read(missing)) for missing in ranges]
        try:
            async with asyncio.timeout(self._retry_seconds):
                await asyncio.gather(*tasks)
        except (_TooMuch, Trimmed, ShardGone):
            return None
        except TimeoutError as late:
            raise not_now() from late  # during an outage it is unknown whether the stream has them
        finally:
            await cancel(*tasks)
        return [(missing.shard, change) for missing in ranges for change in found.by_key[missing.key]]

    async def _read(self, stream: str, missing: MissingRange, found: _OlderRecords) -> None:
        earliest = _earliest(missing.start, self._wire.now())
        cursor = ShardCursor(
            self._wire, stream, missing.shard, missing.start if sequence_at(missing.start) is not None else None
        )
        pace = ReadPace(LONG_PAUSE_SECONDS)
        empty = reached = 0
        elapsed = empty_seconds = 0.0
        while elapsed <= self._seconds:
            page, seconds = await self._page(cursor, missing.key, pace)
            changes = _changes(_table(stream), page)
            found.add(missing, [change for change in changes if change.time.timestamp() >= earliest])
            before, reached = missing.before(), max(reached, *map(_sequence, page.records), 0)
            if before is not None and reached >= before - 1:
                found.remove_after(missing, before)
                return
            if page.records:
                empty, empty_seconds = 0, 0.0
            elif not page.ended:
                empty += 1
                seconds += await _paused(PAUSE_SECONDS if empty < EMPTY_PAGES else LONG_PAUSE_SECONDS)
                empty_seconds += seconds
            if page.ended and (missing.ends or before is None):
                return
            if page.ended:
                raise _TooMuch  # the shard no longer holds the changes that this process had
            if before is None and not missing.ends and empty >= EMPTY_PAGES and empty_seconds >= self._empty_seconds:
                return
            elapsed += seconds
        raise _TooMuch

    async def _page(self, cursor: ShardCursor, key: Key, pace: ReadPace) -> tuple[ShardPage, float]:
        """Return the next page and the seconds that the read took. Retry failures, at a lower rate if throttled.

        Raises:
            ResumeTokenRefused: The stream does not accept the position.
            DomainError: The store refused the read for good.
        """
        now = asyncio.get_running_loop().time

        async def read() -> tuple[ShardPage, float]:
            while True:
                began = now()
                try:
                    page = await cursor.read()
                except Throttled:
                    await asyncio.sleep(pace.throttled())
                except RequestRefused as problem:
                    if problem.code == INVALID:
                        raise ResumeTokenRefused(key) from problem
                    raise
                else:
                    pace.answered()
                    return page, now() - began

        if pace.is_slowed:
            await asyncio.sleep(pace.pause())
        return await retry(read, repeat(LONG_PAUSE_SECONDS), _may_succeed_later)


def _earliest(start: str, now: datetime) -> float:
    """Return the time of the oldest change to read: minus infinity for a position with a sequence number.

    Raises:
        Trimmed: At the store's time `now` the stream may have trimmed that change.
    """
    since = idle_since(start)
    if since is None:
        return float("-inf")
    if now - datetime.fromtimestamp(since, UTC) > RETENTION:
        raise Trimmed("The shard was joined before the oldest records that the stream keeps.")
    return oldest(since)


def _may_succeed_later(problem: Exception) -> bool:
    if isinstance(problem, RequestRefused):
        return problem.code not in LOST
    return isinstance(problem, DomainError) and problem.retryable


async def _paused(seconds: float) -> float:
    """Sleep, and return the seconds."""
    await asyncio.sleep(seconds)
    return seconds


def _sequence(record: dict[str, Any]) -> int:
    return int(sequence_of(record) or 0)


def _table(stream: str) -> str:
    return stream.partition("table/")[2].partition("/")[0]


def _changes(table: str, page: ShardPage) -> list[Change]:
    changes = []
    for record in page.records:
        try:
            changes.append(decode_change(table, record))
        except (KeyError, TypeError, ValueError):
            continue  # the reader of the table skips it as well, and reports it
    return changes
