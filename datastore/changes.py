"""The change feed: whoever follows a table gets its changes, in the order of each key, or goes on where they were.

One source per table (a `StreamReader`) runs while anybody follows, and a little longer: its log is for those who come
again. The hub hands out what it tells.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from datastore.change_log import Log
from datastore.change_reading import EMPTY_SECONDS, OlderChanges
from datastore.change_runs import Entry
from datastore.declarations import Table
from datastore.hub import Hub, Keeping, Subscription
from datastore.places import Place
from datastore.positions import Reached
from datastore.read_pace import StreamReads
from datastore.shard_parents import Seen
from datastore.shards import Wire
from datastore.sources import Sink, Source
from datastore.streams import Change, ChangesLost, StreamReader, new_order

if TYPE_CHECKING:
    from datastore.bus.host import Bus  # its library, for those only who use it

T = TypeVar("T")
R = TypeVar("R", bound=StreamReader)

LINGER_SECONDS = 30.0
DROP_SECONDS = 30.0
# So many changes are looked through before others have a turn, by so many followers in one turn of the loop.
CHANGES_PER_TURN = 250
REPLAYS_PER_TURN = 16
# What it costs to look through them, in read units.
TURN_UNITS = 1.0

logger = logging.getLogger(__name__)


def _log(table: str, problem: Exception) -> None:
    logger.warning("Changes of %s: %r", table, problem)


class _Reached(NamedTuple):
    """The position up to which a table's changes have been delivered to its followers."""

    number: int
    place: Place


_HasPlace = Entry | _Reached


class _Followed:
    """A table that is followed, or was a moment ago."""

    def __init__(self, log: Log, source: Source) -> None:
        self.log = log
        self.source = source
        self.followers = 0
        self.lingering: asyncio.TimerHandle | None = None
        self._dropping: asyncio.TimerHandle | None = None
        self.drop()

    def drop(self) -> None:
        """Have the log drop what is too old, and again in a while: a table may have its last change for long."""
        self.log.drop()
        self._dropping = asyncio.get_running_loop().call_later(DROP_SECONDS, self.drop)

    async def stop(self) -> None:
        if self._dropping is not None:
            self._dropping.cancel()
        await self.source.stop()
        await self.log.aclose()


class ChangeFeed:
    """The changes of all tables. `on_error` hears of records that cannot be decoded, and of each outage once.

    `linger`: seconds for which a table is still read after its last follower has left. With a `bus`, one process reads
    each table for all processes on that bus; `aclose` closes it. `on_change` is called with each change before the
    table's followers get it. `empty_seconds`: see `OlderChanges`. `reads` counts the reads of all shards, for metrics.
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
        self._hub: Hub[Entry] = Hub(lambda entry: on_change(entry.change))
        self._tables: dict[str, _Followed] = {}
        self._heads: dict[str, dict[int, Callable[[], int]]] = {}
        self._linger = linger
        self._stopping: set[asyncio.Task[None]] = set()
        self._older = OlderChanges(wire, empty_seconds=empty_seconds)
        self._turns = asyncio.Semaphore(REPLAYS_PER_TURN)
        self._bus = bus

        def make(table: Table, kind: type[R], sink: Sink, start: Reached | None = None) -> R:
            return kind(
                wire, prefix, poll_interval, discover_interval, on_error, table, sink, start, new_order, reads=reads
            )

        def read(table: Table, sink: Sink) -> Source:
            if bus is None:
                return make(table, StreamReader, sink)
            return bus.source(table.name, sink, partial(make, table), on_error, wire.now)

        self._read: Callable[[Table, Sink], Source] = read

    @asynccontextmanager
    async def follow(
        self,
        table: Table,
        select: Callable[[Change], T | None],
        *,
        keeping: Keeping = Keeping(),  # noqa: B008 - a tuple
        key: Callable[[T], Hashable] | None = None,
        stands_for: Callable[[], int] = lambda: 1,
        after: Place | None = None,
        charge: Callable[[float], None] = lambda _: None,
    ) -> AsyncIterator["Following[T]"]:
        """Entered when every write acknowledged from then on will be seen; a few older ones may be seen too.

        With `after` what was told since then comes first, each once, and then what is new; see `Following.is_too_old`.
        `stands_for` tells how many have its events, for figures; `charge` is told what it takes to find what was
        missed, in read units.
        Raises what the store raises when it cannot be reached at first, or stays away while what was missed is to be
        read. Once entered, outages are waited out, and the iteration raises `ChangesLost` when something was lost.
        """
        followed = self._join(table)
        try:
            following = Following(followed.log, select, key, self._turns, charge)
            async with self._hub.subscribe(table.name, following.live, keeping=keeping, key=following.key) as events:
                await followed.source.attached()
                number = None if after is None else await followed.log.reach(after, charge)
                following.begin(events, after, number)
                self._heads.setdefault(table.name, {})[id(events)] = stands_for
                try:
                    yield following
                finally:
                    self._heads.get(table.name, {}).pop(id(events), None)
        finally:
            await self._leave(table, followed)

    @asynccontextmanager
    async def join(
        self, following: "Following[T]", table: Table, select: Callable[[Change], T | None]
    ) -> AsyncIterator[None]:
        """Add events of another table's changes to a follower, from now on.

        The context is entered once the process reads that table: every later write is seen. These events have no
        place of their own: a client that resumes after one of them resumes at the position of the follower's own table
        at that time. Raises as `follow` does; the follower's iteration raises `ChangesLost` if changes of either table
        were lost.
        """
        followed = self._join(table)
        try:
            with self._hub.join(table.name, following.subscription, partial(following.beside, select)):
                await followed.source.attached()
                yield
        finally:
            await self._leave(table, followed)

    def followers(self, table: Table) -> int:
        """How many follow a table whose stream is being read."""
        followed = self._tables.get(table.name)
        is_read = followed is not None and followed.source.is_attached
        return sum(stands_for() for stands_for in self._heads.get(table.name, {}).values()) if is_read else 0

    async def aclose(self) -> None:
        """Stop reading. Each remaining follower's iteration ends."""
        tables, self._tables = self._tables, {}
        for name, followed in tables.items():
            if followed.lingering is not None:
                followed.lingering.cancel()
            self._hub.end(name)
            await followed.stop()
        if self._stopping:
            await asyncio.wait(self._stopping)
        if self._bus is not None:
            await self._bus.aclose()

    def _join(self, table: Table) -> _Followed:
        followed = self._tables.get(table.name)
        if followed is None or followed.source.problem is not None:
            if followed is not None and followed.lingering is not None:
                followed.lingering.cancel()
                self._stop_soon(table, followed)
            log = Log(partial(self._hub.publish, table.name), partial(self._hub.end, table.name), self._older)
            followed = self._tables[table.name] = _Followed(log, self._read(table, log))
        if followed.lingering is not None:
            followed.lingering.cancel()
            followed.lingering = None
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
            followed.lingering = loop.call_later(self._linger, self._stop_soon, table, followed)

    def _stop_soon(self, table: Table, followed: _Followed) -> None:
        followed.lingering = None
        self._forget(table, followed)  # at once: nobody joins what is about to stop
        task = asyncio.create_task(self._stop(table, followed))
        self._stopping.add(task)
        task.add_done_callback(self._stopping.discard)

    def _forget(self, table: Table, followed: _Followed) -> None:
        if self._tables.get(table.name) is followed:
            del self._tables[table.name]

    async def _stop(self, table: Table, followed: _Followed) -> None:
        self._forget(table, followed)
        await followed.stop()


class Following(Generic[T]):
    """One follower's events, to be iterated in one task: first the missed ones, from the log, then the live ones.

    `place` and `number` are the position up to which all events have been returned or skipped: they only rise.
    `is_too_old`: the changes after the requested place are no longer known, and the events are those from now on.
    `is_behind`: the follower still reads missed changes from the log.
    """

    def __init__(
        self,
        log: Log,
        select: Callable[[Change], T | None],
        key: Callable[[T], Hashable] | None,
        turns: asyncio.Semaphore,
        charge: Callable[[float], None],
    ) -> None:
        self._log = log
        self._select = select
        self._key = key
        self._turns = turns
        self._charge = charge
        self._events: Subscription[tuple[T, _HasPlace]] | None = None
        self._seen: Seen | None = None
        self._generation = self._time = 0
        self._left = 0  # to be looked at in this turn
        self._is_asked = False
        self.is_behind = True
        self.is_too_old = False
        self.number, self._place = log.last_number, log.last_place

    def begin(self, events: "Subscription[tuple[T, _HasPlace]]", after: Place | None, number: int | None) -> None:
        """Resume after a place whose `number` is known; otherwise begin with the next change."""
        self._events = events
        self.is_too_old = after is not None and number is None
        if after is None or number is None:
            self._is_here()
        else:
            self.number, self._place = number, after
            self._seen, self._generation, self._time = self._log.seen_by(after), self._log.generation, after.time

    def _is_here(self) -> None:
        self.is_behind, self._seen = False, None
        self.number, self._place = self._log.last_number, self._log.last_place

    @property
    def place(self) -> Place:
        """Where a client resumes that has received all events up to now."""
        return self._place if self._seen is None else Place.at(self._place.stream, self._time, self._seen.positions)

    @property
    def left_out(self) -> int:
        """How many events a newer one replaced while they waited, for the one that was given last."""
        return 0 if self._events is None or self.is_behind else self._events.left_out

    @property
    def told_until(self) -> int:
        """The number of the last change that anybody was told."""
        return self._log.last_number

    @property
    def last_place(self) -> Place:
        """The place of that change."""
        return self._log.last_place

    @property
    def waiting(self) -> int:
        """How many events wait to be taken, but for what was missed."""
        return 0 if self._events is None else len(self._events)

    @property
    def is_at_rest(self) -> bool:
        """Whether the next event is waited for: all that was told until now has been taken, or passed over."""
        return self._is_asked and not self.waiting and self._log.last_number >= self.number

    def live(self, entry: Entry) -> "tuple[T, _HasPlace] | None":
        """Return the event to enqueue from the hub: none while the follower is behind and reads the log."""
        if self.is_behind or entry.number <= self.number:
            return None
        event = self._select(entry.change)
        return None if event is None else (event, entry)

    def beside(self, select: Callable[[Change], T | None], entry: Entry) -> "tuple[T, _HasPlace] | None":
        """Return an event of another table with the last position of the follower's own table.

        All changes up to that position are delivered before the event.
        """
        event = select(entry.change)
        return None if event is None else (event, _Reached(self._log.last_number, self._log.last_place))

    @property
    def subscription(self) -> "Subscription[tuple[T, _HasPlace]]":
        assert self._events is not None
        return self._events

    def key(self, event: "tuple[T, _HasPlace]") -> Hashable:
        return None if self._key is None else self._key(event[0])

    async def missed(self) -> T | None:
        """The next of what was missed; None once there is no more, and from then on. Raises `ChangesLost`."""
        while self.is_behind:
            if not self._left:
                async with self._turns:
                    await asyncio.sleep(0)
                self._left = CHANGES_PER_TURN
            # Asked for again each time: what a slow follower held would be held though the log had dropped it.
            entries = self._log.after(self.number, self._left, self._generation)
            if entries is None:
                self._find_again()
                continue
            if not entries:
                assert self._seen is not None
                if not self._log.has_reached(self._seen):  # another process reads the stream a little earlier
                    await self._log.more()
                    continue
                self._is_here()
                break
            event = self._look_through(entries)
            if event is not None:
                return event
        return None

    def _find_again(self) -> None:
        """Look the position up again: the log dropped the changes that were read again, or has read more of them."""
        number = self._log.number_of(self.place)
        if number is None:
            raise ChangesLost("You fell too far behind the changes: read the current state and subscribe again.")
        self.number, self._generation = number, self._log.generation

    def _look_through(self, entries: list[Entry]) -> T | None:
        """The first event of them."""
        left, seen = self._left, self._seen
        assert seen is not None
        try:
            for entry in entries:
                self._left -= 1
                self.number = entry.number
                if not self._log.is_news(seen, entry):
                    continue
                seen.move(entry.shard, entry.change.sequence)
                self._time = max(self._time, int(entry.change.time.timestamp()))
                event = self._select(entry.change)
                if event is not None:
                    return event
        finally:
            self._charge((left - self._left) * TURN_UNITS / CHANGES_PER_TURN)
        return None

    def __aiter__(self) -> "Following[T]":
        return self

    async def __anext__(self) -> T:
        assert self._events is not None
        missed = await self.missed()
        if missed is not None:
            return missed
        self._is_asked = True
        try:
            event, entry = await anext(self._events)
        finally:
            self._is_asked = False
        if entry.number >= self.number:
            self.number, self._place = entry.number, entry.place
        return event
