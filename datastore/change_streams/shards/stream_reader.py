"""The reader of one table's stream, which delivers every change, in order for each key.

Within a shard records are in order. The children of a shard are read only after it was read to its end, which keeps the
order of each key across splits.
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Streams.html
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from secrets import token_hex
from typing import Any, TypeVar

from datastore.change_streams.change import decode_change
from datastore.change_streams.change_source import ChangeSink
from datastore.change_streams.shards.checkpoints import Reached
from datastore.change_streams.shards.listing import ShardListing
from datastore.change_streams.shards.positioned_cursor import ITERATOR_LIFE, PositionedCursor, ancestors
from datastore.change_streams.shards.read_pace import ReadPace, StreamReads
from datastore.change_streams.shards.shard_reader import (
    BATCH,
    LOST,
    RETENTION,
    PositionRefused,
    ShardGone,
    StreamMissing,
    Trimmed,
    Wire,
    stream_of,
)
from datastore.dynamodb.client import RequestRefused
from datastore.dynamodb.retry.backoff import Backoff
from datastore.errors import DomainError, TableMissing, Unavailable
from datastore.model.access_patterns import Table
from datastore.primitives.retries import OutageLog, retry
from datastore.primitives.tasks import cancel

T = TypeVar("T")

# The records that are delivered without a pause.
SLICE = 50
RETRIES = Backoff(initial=0.1, maximum=1.5)
POSITION_REFUSED = (
    "The stream of %s refuses the position at which reading continues: changes may have been missed. Subscribers "
    "have to subscribe again, and reading begins at the end of the stream. If this repeats, compare the positions in "
    "Redis (keys gateway:bus) with the sequence numbers of the stream. The refusal: %s"
)
MISSING_CHILD_SECONDS = 1.0  # a shard has ended, and the listing does not show its children yet

logger = logging.getLogger(__name__)


class ChangesLost(Unavailable):
    """The stream no longer has the next changes: a follower must read the current state and follow again."""


# The errors that end a reader at once.
FINAL = (ChangesLost, StreamMissing, TableMissing)


def _lost() -> ChangesLost:
    return ChangesLost("Some changes may have been missed; read the current state and subscribe again.")


def new_order() -> str:
    """Return a new id of an order of changes."""
    return token_hex(4)


@dataclass(eq=False)
class StreamReader:
    """A `ChangeSource` that reads one table's stream from now on, or from the position of another reader (`start`).

    With `start` it retries from the first call on. Without, it fails if the store cannot be reached at first.
    """

    wire: Wire
    prefix: str
    poll_interval: float
    discover_interval: float
    on_error: Callable[[str, Exception], None]
    table: Table
    sink: ChangeSink
    start: Reached | None = None
    new_order: Callable[[], str] = new_order
    problem: Exception | None = None
    reads: StreamReads = field(default_factory=StreamReads)

    def __post_init__(self) -> None:
        self._full_name = self.prefix + self.table.name
        self._stream = ""
        self._order = self.new_order()
        self._has_begun = False
        self._read_shards: dict[str, PositionedCursor] = {}
        self._started: set[str] = set()
        self._finished: set[str] = set()
        self._missed: dict[str, float] = {}  # by shard that was read, the time since which it is not listed
        self._parents: set[str | None] = set()
        self._waits = 0  # successive waits for shards that are not listed yet
        self._wake = asyncio.Event()
        self._settled = asyncio.Event()
        self._outage = OutageLog(self._report, self._log_recovery)
        self._task = asyncio.create_task(self._run(), name=f"changes of {self.table.name}")

    @property
    def is_attached(self) -> bool:
        return self._settled.is_set() and self.problem is None

    @property
    def reached(self) -> Reached | None:
        """The positions up to which it has read; before it is attached, `start`."""
        if not self._has_begun:
            return self.start
        shards = self._read_shards.values()
        positions = {shard.id: shard.position for shard in shards}
        return Reached(self._stream, positions, {shard.id: shard.parent for shard in shards})

    async def attached(self) -> None:
        await self._settled.wait()
        if self.problem is not None:
            raise self.problem.with_traceback(None)  # followers share it: keep no frames of others

    async def stop(self) -> None:
        await cancel(self._task)

    async def _run(self) -> None:
        try:
            async with asyncio.TaskGroup() as shards:
                await self._attach(shards)
                self._has_begun = True
                self._settled.set()
                while True:
                    await self._pause()
                    await self._discover(shards)
        except ExceptionGroup as problems:
            self.problem = problems.exceptions[0]
            self._end(self.problem)
        finally:
            self._settled.set()

    def _end(self, problem: Exception) -> None:
        self.sink.lost(problem)
        self._report(problem)

    async def _attach(self, shards: asyncio.TaskGroup) -> None:
        """Join the open shards at their end. If one ends in the meantime, its children are read from their start."""
        listed = await (self._find() if self.start is None else self._retry_forever(self._find))
        self._started = {shard.id for shard in listed}
        self._finished = {shard.id for shard in listed if shard.id in self._parents}
        if self.start is not None:
            self._resume_from(shards, listed, self.start)
            return
        since = self.wire.now()
        leaves = [shard for shard in listed if shard.id not in self._parents]
        for join in [shards.create_task(shard.join(self._order)) for shard in leaves]:
            await join
        self._begin_all(shards, leaves, since)

    async def _find(self) -> list[PositionedCursor]:
        """Find the table's stream, and list its shards."""
        self._stream = await self._latest_stream()
        self._listing = ShardListing(self.wire, self._stream, self.discover_interval)
        return await self._list()

    def _resume_from(self, shards: asyncio.TaskGroup, listed: list[PositionedCursor], start: Reached) -> None:
        """Continue after the positions. Children are read from their start, once their parent was read to its end."""
        by_id = {shard.id: shard for shard in listed}
        known = start.shards.keys() & by_id.keys()
        # A child is started after its parent was read to its end: no change of that parent is missing.
        if start.stream != self._stream or start.shards.keys() - known - {by_id[id].parent for id in known}:
            raise _lost()
        self._finished = {ancestor for id in known for ancestor in ancestors(by_id, id)} - known
        self._started = self._finished | known
        for id in known:
            by_id[id].restore(start.shards[id])
        # The time at which another process joined an idle shard is unknown, but at most one iterator lifetime ago.
        self._begin_all(shards, [by_id[id] for id in known], self.wire.now() - ITERATOR_LIFE)
        self._wake.set()

    def _begin_all(self, tasks: asyncio.TaskGroup, shards: Sequence[PositionedCursor], since: datetime) -> None:
        positions = {shard.id: shard.position for shard in shards}
        parents = {shard.id: shard.parent for shard in shards}
        self.sink.start_epoch(self._stream, positions, parents, since.timestamp())
        for shard in shards:
            self._begin(tasks, shard)

    def _begin(self, shards: asyncio.TaskGroup, shard: PositionedCursor) -> None:
        self._read_shards[shard.id] = shard
        shards.create_task(self._read(shard))

    async def _pause(self) -> None:
        # Children may be listed a moment after their parent has ended.
        seconds = self.discover_interval
        if self._childless() or not self._started:
            seconds = min(seconds, math.ldexp(MISSING_CHILD_SECONDS, min(self._waits, 10)))
            self._waits += 1
        else:
            self._waits = 0
        # Not `asyncio.wait_for`: in Python 3.11 it loses a cancellation that comes together with the event.
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        self._wake.clear()

    async def _discover(self, shards: asyncio.TaskGroup) -> None:
        """Start the new shards whose parent, if it is known, was read to its end."""
        listed = await self._retry_forever(self._relist)
        unread = {shard.id for shard in listed} | self._started
        unread -= self._finished
        for shard in listed:
            if shard.id not in self._started and shard.parent not in unread:
                self._started.add(shard.id)
                self.sink.start_shard(shard.id, shard.parent)
                self._begin(shards, shard)
        self._forget_unlisted({shard.id for shard in listed})

    def _childless(self) -> set[str]:
        """Return the shards that have ended and whose children are not known yet."""
        return {shard for shard in self._finished - self._parents if shard not in self._missed}

    def _forget_unlisted(self, listed: set[str]) -> None:
        """Forget shards that were not listed for the retention time. The stream does not list them again."""
        now = asyncio.get_running_loop().time()
        self._missed = {shard: self._missed.get(shard, now) for shard in self._finished - listed}
        for shard, since in self._missed.items():
            if now - since > RETENTION.total_seconds():
                self._read_shards.pop(shard, None)
                self._finished.discard(shard)
                self._started.discard(shard)

    async def _relist(self) -> list[PositionedCursor]:
        # A new stream under the same table name: the store was replaced, and an iterator would not notice.
        if await self._latest_stream() != self._stream:
            raise _lost()
        return await self._list()

    async def _latest_stream(self) -> str:
        try:
            return await stream_of(self.wire, self.table.name, self.prefix)
        except TableMissing as missing:
            if self._stream:
                raise _lost() from missing
            raise

    async def _list(self) -> list[PositionedCursor]:
        listed = await self._listing.refresh(self._childless())
        self._parents = {shard.parent for shard in listed}
        now = self.wire.now()
        return [PositionedCursor(self.wire, self._stream, shard.id, shard.parent, now) for shard in listed]

    async def _read(self, shard: PositionedCursor) -> None:
        with self.reads.shard(self.poll_interval) as pace:
            await self._read_to_end(shard, pace)
        self._finished.add(shard.id)
        self._waits = 0
        self._wake.set()

    async def _read_to_end(self, shard: PositionedCursor, pace: ReadPace) -> None:
        clock = asyncio.get_running_loop().time
        read = partial(self.reads.read, self._full_name, pace, shard.read)
        while True:
            requested_at = clock()
            page = await self._retry_forever(read)
            await self._publish_all(shard, page.records)
            if not page.received:
                self.sink.read_empty(shard.id)
            if page.ended:
                return
            if page.received < BATCH or pace.is_slowed:
                # The interval includes the request and the delivery, so that they do not delay the next read.
                await asyncio.sleep(max(0.0, requested_at + pace.pause() - clock()))

    async def _publish_all(self, shard: PositionedCursor, records: Sequence[dict[str, Any]]) -> None:
        """Deliver records. Spread a large batch over about one poll interval, so that only slow followers overflow."""
        for number, record in enumerate(records, 1):
            try:
                change = decode_change(self.table.name, record)
            except Exception as problem:  # a malformed record does not delay later ones
                self.on_error(self.table.name, problem)
            else:
                # As the stream returned it: some stores do not accept it without its leading zeros.
                shard.position = change.sequence
                self.sink.deliver(shard.id, change, parent=shard.parent)
            await asyncio.sleep(0 if number % SLICE else self.poll_interval * SLICE / BATCH)

    async def _retry_forever(self, call: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `call`, and retry it until it succeeds.

        Raises:
            ChangesLost: Changes were trimmed, or the stream has refused a position `MAX_REFUSALS` times in a row.
        """
        problems = 0

        def is_retried(problem: Exception) -> bool:
            nonlocal problems
            problems += 1
            if isinstance(problem, RequestRefused):
                return problem.code not in LOST
            return isinstance(problem, DomainError) and not isinstance(problem, FINAL)

        try:
            answer = await retry(call, self._retry_delays(), is_retried, self._outage)
        except (Trimmed, ShardGone) as problem:
            if isinstance(problem, PositionRefused):
                logger.error(POSITION_REFUSED, self._full_name, problem)
            raise _lost() from problem
        except RequestRefused as problem:
            if problem.code in LOST:
                raise _lost() from problem
            raise
        if problems:
            self._wake.set()  # the store may have been replaced during the outage: compare its stream
        return answer

    def _retry_delays(self) -> Iterator[float]:
        return RETRIES.endless_delays()

    def _report(self, problem: Exception) -> None:
        self.on_error(self.table.name, problem)

    def _log_recovery(self) -> None:
        logger.info("Changes of %s can be read again.", self._full_name)
