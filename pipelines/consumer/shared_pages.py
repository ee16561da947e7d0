"""One reader of a shard for two consumers of a process.

The leader publishes each page that it reads. The follower has its own position: it takes the published records after
that, and reads the shard itself only if it is further behind or the leader makes no progress. Neither waits for the
other.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

from datastore.change_streams.shards.shard_reader import BATCH, ShardCursor, ShardPage, Trimmed, sequence_of

# The most records kept for a follower that is behind: two full pages. It reads dropped records itself.
MOST_RECORDS = 2 * BATCH

Record = dict[str, Any]


class Cursor(Protocol):
    """A place in a shard from which reading goes on."""

    async def read(self, limit: int = BATCH) -> ShardPage:
        """Return the next records, at most `limit`. Raises what `ShardCursor.read` raises."""


class SharedShard:
    """The last pages of a shard that its reader in this process has read, from `position` (a sequence number) on.

    Nothing is kept until a follower joins. `pages` counts those that were read. `at_end` says that the last one was
    empty: there is nothing new.
    """

    def __init__(self, position: str | None) -> None:
        self.pages = 0
        self.at_end = False
        self._read_to = _number(position)
        self._kept_from = self._read_to  # all records behind this one, up to `_read_to`, are kept
        self._kept: deque[tuple[int, Record]] = deque()
        self._is_followed = False
        self._news = asyncio.Event()

    def add(self, records: Sequence[Record]) -> None:
        """Publish the next page of the shard."""
        self.pages += 1
        self.at_end = not records
        sequences = [sequence_of(record) for record in records]
        if None in sequences:
            # It is unknown whether such a record is behind a position.
            self._drop_all(max((_number(one) for one in sequences), default=-1))
        else:
            numbers = [_number(one) for one in sequences]
            self._kept += zip(numbers, records, strict=True)
            self._read_to = max((self._read_to, *numbers))
            if not self._is_followed:
                self._drop_all(self._read_to)
        while len(self._kept) > MOST_RECORDS:
            self._kept_from = self._kept.popleft()[0]
        self._tell()

    def lose(self) -> None:
        """Note that the reader has lost its place."""
        self._kept.clear()
        self._read_to = self._kept_from = -1
        self.at_end = False
        self._tell()

    def close(self) -> None:
        """Wake the followers that wait: nothing more is published here."""
        self.at_end = False
        self._tell()

    def take(self, position: str | None, limit: int) -> list[Record] | None:
        """Return up to `limit` records behind a position, none where there is nothing new, None where some are missing.

        Records before the position are dropped, since the only follower has received them.
        """
        self._is_followed = True
        number = _number(position)
        if number >= self._read_to:
            self._drop_all(self._read_to)
            return []
        if number < self._kept_from:
            return None
        while self._kept and self._kept[0][0] <= number:
            self._kept_from = self._kept.popleft()[0]
        return [record for _, record in list(self._kept)[:limit]]

    async def wait(self, seconds: float) -> None:
        """Wait for a published page, for `seconds` at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()

    def _drop_all(self, read_to: int) -> None:
        self._kept.clear()
        self._read_to = self._kept_from = max(self._read_to, read_to)

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


class SharedPages:
    """The shards that are read in this process by a consumer that others may follow, by stream and shard."""

    def __init__(self) -> None:
        self._shards: dict[tuple[str, str], SharedShard] = {}

    def open(self, stream: str, shard_id: str, position: str | None) -> SharedShard:
        """Begin to share the pages of a shard from a position on."""
        self._shards[stream, shard_id] = shard = SharedShard(position)
        return shard

    def close(self, stream: str, shard_id: str) -> None:
        """Share nothing more of a shard."""
        shard = self._shards.pop((stream, shard_id), None)
        if shard is not None:
            shard.close()

    def of(self, stream: str, shard_id: str) -> SharedShard | None:
        """Return the shard if it is read in this process."""
        return self._shards.get((stream, shard_id))


class LeadingCursor:
    """Reads a shard, and publishes what it reads."""

    def __init__(self, cursor: ShardCursor, shard: SharedShard) -> None:
        self._cursor = cursor
        self._shard = shard

    async def read(self, limit: int = BATCH) -> ShardPage:
        try:
            page = await self._cursor.read(limit)
        except Trimmed:
            self._shard.lose()
            raise
        self._shard.add(page.records)
        return page


class FollowingCursor:
    """A follower's cursor: takes the pages that the leader has read, and reads the rest itself.

    It reads if the leader does not read the shard in this process, if the position is before the kept pages, and if no
    page arrives for `patience` seconds while the leader, perhaps delayed by a batch, is not at the shard's end. At the
    end it makes no calls, since the leader would find new records.
    """

    def __init__(self, cursor: ShardCursor, pages: SharedPages, stream: str, shard_id: str, *, patience: float) -> None:
        self._cursor = cursor
        self._pages = pages
        self._stream = stream
        self._shard_id = shard_id
        self._patience = patience
        self._held_up_at: int | None = None  # the page behind which the other does not get on

    async def read(self, limit: int = BATCH) -> ShardPage:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience
        while (shard := self._pages.of(self._stream, self._shard_id)) is not None:
            records = shard.take(self._cursor.last, limit)
            if records:
                self._cursor.skip_to(str(sequence_of(records[-1])))
                return ShardPage(records, ended=False)
            if records is None or shard.pages == self._held_up_at:
                break
            await shard.wait(until - loop.time())
            if shard.at_end and shard.take(self._cursor.last, limit) == []:
                return ShardPage([], ended=False)
            if loop.time() >= until:
                self._held_up_at = shard.pages
        return await self._cursor.read(limit)


def _number(sequence: str | None) -> int:
    return -1 if sequence is None else int(sequence)
