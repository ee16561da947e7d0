"""Reads a table's stream for all processes, while this one holds the table, and appends what it reads to the bus."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from datastore.change_streams.relay.redis_connection import RelayConnection, RelayState
from datastore.change_streams.shards.checkpoints import Reached, sequence_at
from datastore.change_streams.shards.shard_iterator import ShardIterator
from datastore.change_streams.shards.shard_reader import sequence_of, time_of
from datastore.change_streams.shards.stream_reader import Change, ChangesLost, StreamReader
from datastore.dynamodb.client import RequestRefused
from datastore.errors import DomainError

# In a row, within about two seconds: then a table is left to others.
MOST_FAILURES = 4

Page = Sequence[dict[str, Any]]
# Called with a shard, the position that a page of it follows, and the page.
TakePage = Callable[[ShardIterator, str, Page], Awaitable[None]]


class Beginning:
    """A sink that ignores everything: the relay takes whole pages, and the reader itself keeps the positions."""

    def start_epoch(
        self, stream: str, positions: Mapping[str, str], parents: Mapping[str, str | None], since: float
    ) -> None: ...

    def start_shard(self, shard: str, parent: str | None) -> None: ...

    def read_empty(self, shard: str) -> None: ...

    def deliver(self, shard: str, change: Change, *, parent: str | None = None, is_past: bool = False) -> None:
        raise AssertionError("A page was taken apart.")

    def lost(self, problem: Exception) -> None:
        """Whoever waits for the end of the reader tells of it."""


@dataclass(eq=False)
class StreamPages(StreamReader):
    """A reader whose pages are taken as they came, nothing decoded, once `may_take` is set.

    What `take` raises ends it, and so does a store that cannot be reached: it may be for others.
    """

    take: TakePage | None = None
    may_take: asyncio.Event = field(default_factory=asyncio.Event)

    async def ended(self) -> None:
        """Waits for its end. Raises what it ended by."""
        await asyncio.wait([self._task])
        if self.problem is not None:
            raise self.problem

    # The task that awaits the reader reports what `ended` raises.

    def _end(self, problem: Exception) -> None: ...

    def _report(self, problem: Exception) -> None: ...

    def _log_recovery(self) -> None: ...

    async def _back_off(self, problem: DomainError | RequestRefused, failures: int) -> None:
        if failures >= MOST_FAILURES:
            raise problem
        await super()._back_off(problem, failures)

    async def _publish_all(self, shard: ShardIterator, records: Page) -> None:
        assert self.take is not None
        await self.may_take.wait()
        follows = shard.position
        page = [record for record in records if self._is_new(shard, record)]
        if page:
            await self.take(shard, follows, page)

    def _is_new(self, shard: ShardIterator, record: dict[str, Any]) -> bool:
        sequence = sequence_of(record)
        if sequence is None:
            self.on_error(self.table.name, ValueError("A record has no sequence number."))
            return False
        return shard.accept(sequence, time_of(record))


ReadPages = Callable[[Beginning, TakePage, Reached | None], StreamPages]


@dataclass(eq=False)
class RelayPublisher:
    """One holding of a table, under one lease. It ends with the lease, and by whatever goes wrong."""

    connection: RelayConnection
    table: str
    lease: str
    read: ReadPages
    new_epoch: Callable[[], str]
    on_page: Callable[[Page], None]
    epoch: str = ""
    _reader: StreamPages | None = None
    _appended: dict[str, str] = field(default_factory=dict)

    @property
    def is_attached(self) -> bool:
        return self._reader is not None and self._reader.may_take.is_set()

    @property
    def reached(self) -> Mapping[str, str] | None:
        """How far the shards have been read that the stream lists; None before it is attached."""
        reached = self._reader.reached if self._reader is not None and self.is_attached else None
        return None if reached is None else reached.shards

    def idle(self) -> Reached:
        """Of those that have shown no record yet: to be noted from time to time, as iterators expire."""
        reached = self._reader.reached if self._reader is not None and self.is_attached else None
        if reached is None:
            return Reached("", {})
        idle = {shard: at for shard, at in reached.shards.items() if sequence_at(at) is None}
        return Reached(reached.stream, idle, reached.parents)

    def appended(self) -> Mapping[str, str] | None:
        """Sequences that Redis is known to have had noted, of shards that are listed; None before it is attached."""
        reached = self.reached
        if reached is None:
            return None
        return {shard: at for shard, at in self._appended.items() if shard in reached and sequence_at(at) is not None}

    async def run(self, state: RelayState, known: Reached | None) -> None:
        """Go on with the order that is there, else begin one: where this process has got to (`known`), or now."""
        epoch = state.epoch
        start = Reached(state.stream, state.positions) if epoch else known
        while True:
            try:
                await self._read_from(start, epoch)
            except ChangesLost:
                if start is None:
                    raise
                # Whoever followed hears of it by reading on for himself.
                start, epoch = None, ""

    async def _read_from(self, start: Reached | None, epoch: str) -> None:
        beginning = Beginning()
        reader = self._reader = self.read(beginning, self._append, start)
        try:
            await reader.attached()
            reached = reader.reached
            assert reached is not None
            self.epoch = epoch or self.new_epoch()
            if epoch:
                await self.connection.attach(self.table, self.lease, epoch)
            else:
                await self.connection.begin(self.table, self.lease, self.epoch, reached)
            self._appended = dict(reached.shards)
            reader.may_take.set()
            await reader.ended()
        finally:
            await reader.stop()

    async def _append(self, shard: ShardIterator, follows: str, page: Page) -> None:
        records = [(record["dynamodb"]["SequenceNumber"], orjson.dumps(record)) for record in page]
        await self.connection.append(
            self.table, self.lease, self.epoch, shard.id, follows, records, parent=shard.parent
        )
        self._appended[shard.id] = records[-1][0]
        self.on_page(page)
