"""The publisher of a table's changes: the leader reads the table's stream for all processes and appends to the bus."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from secrets import token_hex
from typing import Any, Protocol, TypeVar

import orjson

from datastore.change_streams.change import Change
from datastore.change_streams.change_source import ChangeSink
from datastore.change_streams.relay.commands import RelayCommands, RelayState
from datastore.change_streams.shards.checkpoints import Reached, sequence_at
from datastore.change_streams.shards.positioned_cursor import PositionedCursor
from datastore.change_streams.shards.shard_reader import sequence_of
from datastore.change_streams.shards.stream_reader import ChangesLost, StreamReader

# The failures in a row, within about two seconds, after which the table is left to another process.
MAX_FAILURES = 4

R = TypeVar("R", bound=StreamReader)
Page = Sequence[dict[str, Any]]
# Called with a shard, the position that a page of the shard follows, and the page.
TakePage = Callable[[PositionedCursor, str, Page], Awaitable[None]]


class Beginning:
    """A sink that ignores all calls: the relay takes whole pages, and the reader itself has the positions."""

    def start_epoch(
        self, stream: str, positions: Mapping[str, str], parents: Mapping[str, str | None], since: float
    ) -> None: ...

    def start_shard(self, shard: str, parent: str | None) -> None: ...

    def read_empty(self, shard: str) -> None: ...

    def deliver(self, shard: str, change: Change, *, parent: str | None = None, is_past: bool = False) -> None:
        raise AssertionError("A page was taken apart.")

    def lost(self, problem: Exception) -> None:
        """Do nothing: the task that awaits the reader reports the error."""


@dataclass(eq=False)
class StreamPages(StreamReader):
    """A reader that passes whole pages to `take` without decoding them, once `may_take` is set.

    It ends with the errors of `take`, and when the store cannot be reached, since another process may reach it.
    """

    take: TakePage | None = None
    may_take: asyncio.Event = field(default_factory=asyncio.Event)

    async def ended(self) -> None:
        """Wait for the end of the reader. Raise the error that ended it."""
        await asyncio.wait([self._task])
        if self.problem is not None:
            raise self.problem

    # The task that awaits the reader reports what `ended` raises.

    def _end(self, problem: Exception) -> None: ...

    def _report(self, problem: Exception) -> None: ...

    def _log_recovery(self) -> None: ...

    def _retry_delays(self) -> Iterator[float]:
        return islice(super()._retry_delays(), MAX_FAILURES)

    async def _publish_all(self, shard: PositionedCursor, records: Page) -> None:
        assert self.take is not None
        await self.may_take.wait()
        follows = shard.position
        page = [record for record in records if sequence_of(record) is not None]
        if len(page) < len(records):
            self.on_error(self.table.name, ValueError("A record has no sequence number."))
        if page:
            shard.position = page[-1]["dynamodb"]["SequenceNumber"]
            await self.take(shard, follows, page)


class MakeReader(Protocol):
    """A factory of readers of one table's stream, which are instances of `kind`."""

    def __call__(self, kind: type[R], sink: ChangeSink, start: Reached | None) -> R: ...


def new_id() -> str:
    """Return unique letters and digits, for a process or an epoch."""
    return token_hex(8)


@dataclass(eq=False)
class RelayPublisher:
    """The publisher of a table's changes under one lease. It ends with the lease, or with any error."""

    commands: RelayCommands
    table: str
    lease: str
    make: MakeReader
    on_page: Callable[[Page], None]
    epoch: str = ""
    _reader: StreamPages | None = None
    _appended: dict[str, str] = field(default_factory=dict)

    @property
    def is_attached(self) -> bool:
        return self._reader is not None and self._reader.may_take.is_set()

    @property
    def reached(self) -> Mapping[str, str] | None:
        """The positions read in the listed shards; None before the reader is attached."""
        reached = self._reader.reached if self._reader is not None and self.is_attached else None
        return None if reached is None else reached.shards

    def idle(self) -> Reached:
        """Return the positions of shards without a record, which are stored regularly because iterators expire."""
        reached = self._reader.reached if self._reader is not None and self.is_attached else None
        if reached is None:
            return Reached("", {})
        idle = {shard: at for shard, at in reached.shards.items() if sequence_at(at) is None}
        return Reached(reached.stream, idle, reached.parents)

    def appended(self) -> Mapping[str, str] | None:
        """Return the sequence numbers appended to Redis, by listed shard; None before the reader is attached."""
        reached = self.reached
        if reached is None:
            return None
        return {shard: at for shard, at in self._appended.items() if shard in reached and sequence_at(at) is not None}

    async def run(self, state: RelayState, known: Reached | None) -> None:
        """Continue the epoch in `state`. Without one, begin an epoch at `known`, this process's position, or now."""
        epoch = state.epoch
        start = Reached(state.stream, state.positions) if epoch else known
        while True:
            try:
                await self._read_from(start, epoch)
            except ChangesLost:
                if start is None:
                    raise
                # The followers detect the loss when they read the stream themselves.
                start, epoch = None, ""

    async def _read_from(self, start: Reached | None, epoch: str) -> None:
        reader = self._reader = self.make(StreamPages, Beginning(), start)
        reader.take = self._append
        try:
            await reader.attached()
            reached = reader.reached
            assert reached is not None
            self.epoch = epoch or new_id()
            if epoch:
                await self.commands.continue_epoch(self.table, self.lease, epoch)
            else:
                await self.commands.begin(self.table, self.lease, self.epoch, reached)
            self._appended = dict(reached.shards)
            reader.may_take.set()
            await reader.ended()
        finally:
            await reader.stop()

    async def _append(self, shard: PositionedCursor, follows: str, page: Page) -> None:
        records = [(record["dynamodb"]["SequenceNumber"], orjson.dumps(record)) for record in page]
        await self.commands.append(self.table, self.lease, self.epoch, shard.id, follows, records, parent=shard.parent)
        self._appended[shard.id] = records[-1][0]
        self.on_page(page)
