"""Shared pages: two consumers of a process use one reader of a shard.

The leader publishes each page that it reads. The follower has its own position and takes the published records after
it. It reads the shard itself only if its position is before the buffered records or the leader makes no progress.
Neither consumer blocks the other.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

from datastore.change_streams.shards.shard_reader import BATCH, ShardCursor, ShardPage, Trimmed, sequence_of
from datastore.dynamodb.retry.classify import RequestRefused
from datastore.errors import DomainError

# The maximum number of records buffered for a follower that is behind: two full pages. It reads dropped records itself.
MAX_RECORDS = 2 * BATCH

Record = dict[str, Any]


class Cursor(Protocol):
    """A cursor: a position in a shard, and the reading from there."""

    async def read(self, limit: int = BATCH) -> ShardPage:
        """Return the next records, at most `limit`. Raises the errors of `ShardCursor.read`."""


class SharedShard:
    """The latest pages of a shard that its reader in this process has published, from `position` on.

    `position` is a sequence number. No records are buffered until a follower joins.
    """

    def __init__(self, position: str | None) -> None:
        #: The number of published pages.
        self.pages = 0
        #: Whether the last page was empty, so that the shard has no newer record.
        self.at_end = False
        self._published_to = _number(position)
        self._buffered_from = self._published_to  # the buffer has all records after this one
        self._buffer: deque[tuple[int, Record]] = deque()
        self._is_followed = False
        self._page_published = asyncio.Event()

    def add(self, records: Sequence[Record]) -> None:
        """Publish the next page of the shard."""
        self.pages += 1
        self.at_end = not records
        sequences = [sequence_of(record) for record in records]
        if None in sequences:
            # The position of a record without a sequence number is unknown.
            self._drop_buffer(max((_number(sequence) for sequence in sequences), default=-1))
        else:
            numbers = [_number(sequence) for sequence in sequences]
            self._buffer += zip(numbers, records, strict=True)
            self._published_to = max((self._published_to, *numbers))
            if not self._is_followed:
                self._drop_buffer(self._published_to)
        while len(self._buffer) > MAX_RECORDS:
            self._buffered_from = self._buffer.popleft()[0]
        self._wake_followers()

    def reset(self) -> None:
        """Drop the buffer, since the reader has lost its position."""
        self._buffer.clear()
        self._published_to = self._buffered_from = -1
        self.at_end = False
        self._wake_followers()

    def close(self) -> None:
        """Wake waiting followers: no further page is published."""
        self.at_end = False
        self._wake_followers()

    def records_after(self, position: str | None, limit: int) -> list[Record] | None:
        """Return up to `limit` records after a position, an empty list if there are none, None if some are missing.

        Records up to the position are dropped, since the only follower has received them.
        """
        self._is_followed = True
        number = _number(position)
        if number >= self._published_to:
            self._drop_buffer(self._published_to)
            return []
        if number < self._buffered_from:
            return None
        while self._buffer and self._buffer[0][0] <= number:
            self._buffered_from = self._buffer.popleft()[0]
        return [record for _, record in list(self._buffer)[:limit]]

    async def wait(self, seconds: float) -> None:
        """Wait for the next page, for at most `seconds`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._page_published.wait()

    def _drop_buffer(self, position: int) -> None:
        self._buffer.clear()
        self._published_to = self._buffered_from = max(self._published_to, position)

    def _wake_followers(self) -> None:
        self._page_published.set()
        self._page_published = asyncio.Event()


class SharedPages:
    """The shared shards of a leading consumer in this process, by stream and shard."""

    def __init__(self) -> None:
        self._shards: dict[tuple[str, str], SharedShard] = {}

    def open(self, stream: str, shard_id: str, position: str | None) -> SharedShard:
        """Share the pages of a shard from a position on."""
        self._shards[stream, shard_id] = shard = SharedShard(position)
        return shard

    def close(self, stream: str, shard_id: str) -> None:
        """Stop sharing the pages of a shard."""
        shard = self._shards.pop((stream, shard_id), None)
        if shard is not None:
            shard.close()

    def get(self, stream: str, shard_id: str) -> SharedShard | None:
        """Return the shared shard, or None if this process does not read it."""
        return self._shards.get((stream, shard_id))


class LeadingCursor:
    """A cursor that reads a shard and publishes each page."""

    def __init__(self, cursor: ShardCursor, shard: SharedShard) -> None:
        self._cursor = cursor
        self._shard = shard

    async def read(self, limit: int = BATCH) -> ShardPage:
        try:
            page = await self._cursor.read(limit)
        except Trimmed:
            self._shard.reset()
            raise
        except (DomainError, RequestRefused):
            # Whether the shard has newer records is unknown: the follower finds the outage by a read of its own.
            self._shard.at_end = False
            raise
        self._shard.add(page.records)
        return page


class FollowingCursor:
    """A follower's cursor, which takes the pages that the leader has read and reads the rest itself.

    It reads the shard in three cases: the leader does not read the shard in this process; the position is before the
    buffered pages; or no page arrives for `page_timeout` seconds while the leader, perhaps delayed by a batch, is not
    at the shard's end. At the end it makes no calls, since the leader reads new records.
    """

    def __init__(
        self, cursor: ShardCursor, pages: SharedPages, stream: str, shard_id: str, *, page_timeout: float
    ) -> None:
        self._cursor = cursor
        self._pages = pages
        self._stream = stream
        self._shard_id = shard_id
        self._page_timeout = page_timeout
        self._stalled_at: int | None = None  # the page after which the leader makes no progress

    async def read(self, limit: int = BATCH) -> ShardPage:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._page_timeout
        while (shard := self._pages.get(self._stream, self._shard_id)) is not None:
            records = shard.records_after(self._cursor.last, limit)
            if records:
                self._cursor.skip_to(str(sequence_of(records[-1])))
                return ShardPage(records, ended=False)
            if records is None or shard.pages == self._stalled_at:
                break
            await shard.wait(until - loop.time())
            if shard.at_end and shard.records_after(self._cursor.last, limit) == []:
                return ShardPage([], ended=False)
            if loop.time() >= until:
                self._stalled_at = shard.pages
        return await self._cursor.read(limit)


def _number(sequence: str | None) -> int:
    return -1 if sequence is None else int(sequence)
