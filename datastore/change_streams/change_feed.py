"""The change feed: followers of a table receive its changes, in order for each key, from now on or after a token.

One source per table (a `StreamReader`) runs while the table has followers, and some seconds longer, since clients
resume from its log. The log publishes the changes to the followers.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from datastore.change_streams.change import Change
from datastore.change_streams.change_source import ChangeSink, ChangeSource
from datastore.change_streams.change_subscription import ChangeSubscription
from datastore.change_streams.replay.backfill import EMPTY_SECONDS, Backfill
from datastore.change_streams.replay.replay_log import ReplayLog
from datastore.change_streams.replay.resume_token import ResumeToken
from datastore.change_streams.shards.checkpoints import Reached
from datastore.change_streams.shards.read_pace import StreamReads
from datastore.change_streams.shards.shard_reader import Wire
from datastore.change_streams.shards.stream_reader import StreamReader, new_order
from datastore.model.access_patterns import Table
from datastore.queues import QueueLimits

if TYPE_CHECKING:
    from datastore.change_streams.relay.bus import Bus  # imports redis only where a bus is used

T = TypeVar("T")
R = TypeVar("R", bound=StreamReader)

LINGER_SECONDS = 30.0
# The seconds between two calls that drop old changes of a log.
DROP_SECONDS = 30.0
# The followers that read missed changes in one turn of the event loop.
REPLAYS_PER_TURN = 16

logger = logging.getLogger(__name__)


def _log(full_name: str, problem: Exception) -> None:
    logger.warning("Changes of %s: %r", full_name, problem)


class _Followed:
    """A table that has followers, or had its last one less than the linger time ago."""

    def __init__(self, log: ReplayLog, source: ChangeSource) -> None:
        self.log = log
        self.source = source
        self.followers = 0
        #: Return the number of subscribers of each follower.
        self.subscriber_counts: dict[object, Callable[[], int]] = {}
        self.stop_timer: asyncio.TimerHandle | None = None
        self._dropping: asyncio.TimerHandle | None = None
        self.drop()

    def drop(self) -> None:
        """Drop old changes from the log, now and periodically: a table may have no new change for a long time."""
        self.log.drop()
        self._dropping = asyncio.get_running_loop().call_later(DROP_SECONDS, self.drop)

    async def stop(self) -> None:
        if self._dropping is not None:
            self._dropping.cancel()
        await self.source.stop()
        await self.log.aclose()


class ChangeFeed:
    """The changes of all tables.

    `on_error` is called with the table's full name for records that cannot be decoded, and once for each outage.
    `linger` is the seconds for which a table is still read after its last follower has left. With a `bus`, one process
    reads each table for all processes on that bus; `aclose` closes it. `on_change` is called with each change before
    the table's followers get it. `empty_seconds` is that of `Backfill`. `reads` counts the reads of all shards, for
    metrics.
    """

    def __init__(
        self,
        wire: Wire,
        *,
        prefix: str = "",
        poll_interval: float = 0.25,
        discover_interval: float = 10.0,
        linger: float = LINGER_SECONDS,
        on_error: Callable[[str, Exception], None] = _log,
        new_order: Callable[[], str] = new_order,
        bus: "Bus | None" = None,
        on_change: Callable[[Change], None] = lambda _: None,
        empty_seconds: float = EMPTY_SECONDS,
        reads: StreamReads | None = None,
    ) -> None:
        reads = StreamReads() if reads is None else reads
        self._prefix = prefix
        self._on_change = on_change
        self._tables: dict[str, _Followed] = {}
        self._linger = linger
        self._stopping: set[asyncio.Task[None]] = set()
        self._older = Backfill(wire, empty_seconds=empty_seconds)
        self._turns = asyncio.Semaphore(REPLAYS_PER_TURN)
        self._bus = bus

        def report(table: str, problem: Exception) -> None:
            on_error(prefix + table, problem)

        def make(table: Table, kind: type[R], sink: ChangeSink, start: Reached | None = None) -> R:
            return kind(
                wire, prefix, poll_interval, discover_interval, report, table, sink, start, new_order, reads=reads
            )

        def read(table: Table, sink: ChangeSink) -> ChangeSource:
            if bus is None:
                return make(table, StreamReader, sink)
            return bus.source(table.name, sink, partial(make, table), report, wire.now)

        self._read: Callable[[Table, ChangeSink], ChangeSource] = read

    @asynccontextmanager
    async def follow(
        self,
        table: Table,
        select: Callable[[Change], T | None],
        *,
        limits: QueueLimits = QueueLimits(),  # noqa: B008 - a tuple
        key: Callable[[T], Hashable] | None = None,
        subscriber_count: Callable[[], int] = lambda: 1,
        after: ResumeToken | None = None,
        charge: Callable[[float], None] = lambda _: None,
    ) -> AsyncIterator[ChangeSubscription[T]]:
        """Follow a table. It sees every write acknowledged after the context is entered, and maybe older ones.

        A change that `select` cannot read is logged and skipped.

        With `after`, the changes since that position come first, each once, and then the new ones; see
        `ChangeSubscription.is_too_old`. `subscriber_count` returns the number of subscribers that share the events, for
        metrics. `charge` receives the read units that it takes to find the missed changes.

        Raises: the store's errors, if the store cannot be reached at first or while missed changes are read. Reading
        continues after later outages, and the iteration raises `ChangesLost` if changes were lost.
        """
        followed = self._join(table)
        try:
            following = ChangeSubscription(followed.log, select, limits, key, self._turns, charge, self._prefix)
            async with following.live:
                await followed.source.attached()
                number = None if after is None else await followed.log.load_from(after, charge)
                following.begin(after, number)
                followed.subscriber_counts[following] = subscriber_count
                try:
                    yield following
                finally:
                    del followed.subscriber_counts[following]
        finally:
            await self._leave(table, followed)

    @asynccontextmanager
    async def join(
        self, following: ChangeSubscription[T], table: Table, select: Callable[[Change], T | None]
    ) -> AsyncIterator[None]:
        """Add events of another table's changes to a follower, from now on.

        The context is entered once the process reads that table: every later write is seen. These events have no
        resume position: a client that resumes after such an event resumes at the position of the follower's own table
        at that time.

        Raises: the errors of `follow`. The follower's iteration raises `ChangesLost` if changes of either table were
        lost.
        """
        followed = self._join(table)
        try:
            followed.log.add(following.live, partial(following.accept_joined, select))
            await followed.source.attached()
            yield
        finally:
            followed.log.remove(following.live)
            await self._leave(table, followed)

    def followers(self, table: Table) -> int:
        """Return the number of followers of a table whose stream is read, 0 otherwise."""
        followed = self._tables.get(table.name)
        if followed is None or not followed.source.is_attached:
            return 0
        return sum(subscriber_count() for subscriber_count in followed.subscriber_counts.values())

    async def aclose(self) -> None:
        """Stop reading. Each remaining follower's iteration ends."""
        tables, self._tables = self._tables, {}
        for followed in tables.values():
            if followed.stop_timer is not None:
                followed.stop_timer.cancel()
            followed.log.end()
            await followed.stop()
        if self._stopping:
            await asyncio.wait(self._stopping)
        if self._bus is not None:
            await self._bus.aclose()

    def _join(self, table: Table) -> _Followed:
        followed = self._tables.get(table.name)
        if followed is None or followed.source.problem is not None:
            if followed is not None and followed.stop_timer is not None:
                followed.stop_timer.cancel()
                self._stop_soon(table, followed)
            log = ReplayLog(self._older, on_publish=lambda entry: self._on_change(entry.change))
            followed = self._tables[table.name] = _Followed(log, self._read(table, log))
        if followed.stop_timer is not None:
            followed.stop_timer.cancel()
            followed.stop_timer = None
        followed.followers += 1
        return followed

    async def _leave(self, table: Table, followed: _Followed) -> None:
        followed.followers -= 1
        if followed.followers:
            return
        if self._tables.get(table.name) is not followed or followed.source.problem is not None or self._linger <= 0:
            await self._stop(table, followed)
        else:
            loop = asyncio.get_running_loop()
            followed.stop_timer = loop.call_later(self._linger, self._stop_soon, table, followed)

    def _stop_soon(self, table: Table, followed: _Followed) -> None:
        followed.stop_timer = None
        self._forget(table, followed)  # at once: a new follower must not join a reader that stops
        task = asyncio.create_task(self._stop(table, followed))
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    def _forget(self, table: Table, followed: _Followed) -> None:
        if self._tables.get(table.name) is followed:
            del self._tables[table.name]

    async def _stop(self, table: Table, followed: _Followed) -> None:
        self._forget(table, followed)
        await followed.stop()
