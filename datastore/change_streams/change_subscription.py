"""One follower's events of a table: first the changes that it missed, from the table's log, then the live ones."""

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

from datastore.change_streams.broadcast import TopicSubscription
from datastore.change_streams.replay.replay_log import ReplayLog
from datastore.change_streams.replay.resume_token import ResumeToken
from datastore.change_streams.replay.runs import LogEntry
from datastore.change_streams.shards.parents import Seen
from datastore.change_streams.shards.stream_reader import Change, ChangesLost

T = TypeVar("T")

# The changes that a follower examines before others have a turn, and the price of that in read units.
CHANGES_PER_TURN = 250
TURN_UNITS = 1.0


class _Head(NamedTuple):
    """The position up to which a table's changes have been delivered to its followers."""

    number: int
    place: ResumeToken


HasPlace = LogEntry | _Head


class ChangeSubscription(Generic[T]):
    """One follower's events, to be iterated in one task: first the missed ones, from the log, then the live ones.

    `place` and `number` are the position up to which all events have been returned or skipped: they only rise.
    `is_too_old`: the changes after the requested place are no longer known, and the events are those from now on.
    `is_replaying`: the follower still reads missed changes from the log.
    """

    def __init__(
        self,
        log: ReplayLog,
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
        self._events: TopicSubscription[tuple[T, HasPlace]] | None = None
        self._seen: Seen | None = None
        self._generation = self._time = 0
        self._turn_changes = 0  # the changes left to examine in this turn
        self._is_waiting = False
        self.is_replaying = True
        self.is_too_old = False
        self.number, self._place = log.last_number, log.last_place

    def begin(
        self, events: "TopicSubscription[tuple[T, HasPlace]]", after: ResumeToken | None, number: int | None
    ) -> None:
        """Resume after a place whose `number` is known; otherwise begin with the next change."""
        self._events = events
        self.is_too_old = after is not None and number is None
        if after is None or number is None:
            self._go_live()
        else:
            self.number, self._place = number, after
            self._seen, self._generation, self._time = self._log.seen_by(after), self._log.generation, after.time

    def _go_live(self) -> None:
        self.is_replaying, self._seen = False, None
        self.number, self._place = self._log.last_number, self._log.last_place

    @property
    def place(self) -> ResumeToken:
        """Where a client resumes that has received all events up to now."""
        return (
            self._place if self._seen is None else ResumeToken.at(self._place.stream, self._time, self._seen.positions)
        )

    @property
    def dropped(self) -> int:
        """The number of waiting events that the last returned one replaced."""
        return 0 if self._events is None or self.is_replaying else self._events.dropped

    @property
    def last_number(self) -> int:
        """The number of the last change that has arrived."""
        return self._log.last_number

    @property
    def last_place(self) -> ResumeToken:
        """The place of that change."""
        return self._log.last_place

    @property
    def waiting(self) -> int:
        """The number of live events that wait to be taken."""
        return 0 if self._events is None else len(self._events)

    @property
    def is_idle(self) -> bool:
        """Whether the follower waits for the next event: all earlier ones have been taken or skipped."""
        return self._is_waiting and not self.waiting and self._log.last_number >= self.number

    def accept(self, entry: LogEntry) -> "tuple[T, HasPlace] | None":
        """Return the event to enqueue from the broadcaster: none while the follower is behind and reads the log."""
        if self.is_replaying or entry.number <= self.number:
            return None
        event = self._select(entry.change)
        return None if event is None else (event, entry)

    def accept_joined(self, select: Callable[[Change], T | None], entry: LogEntry) -> "tuple[T, HasPlace] | None":
        """Return an event of another table with the last position of the follower's own table.

        All changes up to that position are delivered before the event.
        """
        event = select(entry.change)
        return None if event is None else (event, _Head(self._log.last_number, self._log.last_place))

    @property
    def subscription(self) -> "TopicSubscription[tuple[T, HasPlace]]":
        assert self._events is not None
        return self._events

    def key(self, event: "tuple[T, HasPlace]") -> Hashable:
        return None if self._key is None else self._key(event[0])

    async def next_replayed(self) -> T | None:
        """Return the next missed event; None once there are no more. Raises `ChangesLost`."""
        while self.is_replaying:
            if not self._turn_changes:
                async with self._turns:
                    await asyncio.sleep(0)
                self._turn_changes = CHANGES_PER_TURN
            # Requested again each time: a slow follower must not keep changes that the log has dropped.
            entries = self._log.after(self.number, self._turn_changes, self._generation)
            if entries is None:
                self._locate_again()
                continue
            if not entries:
                assert self._seen is not None
                if not self._log.has_reached(self._seen):  # another process reads the stream a little earlier
                    await self._log.wait_for_change()
                    continue
                self._go_live()
                break
            event = self._first_event(entries)
            if event is not None:
                return event
        return None

    def _locate_again(self) -> None:
        """Look the position up again: the log dropped the changes that were read again, or has read more of them."""
        number = self._log.number_of(self.place)
        if number is None:
            raise ChangesLost("You fell too far behind the changes: read the current state and subscribe again.")
        self.number, self._generation = number, self._log.generation

    def _first_event(self, entries: list[LogEntry]) -> T | None:
        """Return the first event of the entries; None if none of them is one."""
        left, seen = self._turn_changes, self._seen
        assert seen is not None
        try:
            for entry in entries:
                self._turn_changes -= 1
                self.number = entry.number
                if not self._log.is_news(seen, entry):
                    continue
                seen.move(entry.shard, entry.change.sequence)
                self._time = max(self._time, int(entry.change.time.timestamp()))
                event = self._select(entry.change)
                if event is not None:
                    return event
        finally:
            self._charge((left - self._turn_changes) * TURN_UNITS / CHANGES_PER_TURN)
        return None

    def __aiter__(self) -> "ChangeSubscription[T]":
        return self

    async def __anext__(self) -> T:
        assert self._events is not None
        missed = await self.next_replayed()
        if missed is not None:
            return missed
        self._is_waiting = True
        try:
            event, entry = await anext(self._events)
        finally:
            self._is_waiting = False
        if entry.number >= self.number:
            self.number, self._place = entry.number, entry.place
        return event
