"""One follower's events of a table: first the changes that it missed, from the table's log, then the live ones."""

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, NamedTuple, TypeVar

from datastore.change_streams.broadcast import BroadcastSubscription
from datastore.change_streams.change import Change, log_unreadable
from datastore.change_streams.replay.replay_log import ReplayLog
from datastore.change_streams.replay.resume_token import ResumeToken
from datastore.change_streams.replay.runs import LogEntry
from datastore.change_streams.shards.parents import Seen
from datastore.change_streams.shards.stream_reader import ChangesLost
from datastore.dynamodb.records import DAMAGE_ERRORS
from datastore.queues import QueueLimits

T = TypeVar("T")

# The changes that a follower examines in one turn, and the price of a turn in read units.
CHANGES_PER_TURN = 250
TURN_UNITS = 1.0


class _Head(NamedTuple):
    """The position up to which a table's changes have been delivered to its followers."""

    number: int
    token: ResumeToken


HasToken = LogEntry | _Head


class ChangeSubscription(Generic[T]):
    """One follower's events, to be iterated in one task: first the missed ones, from the log, then the live ones.

    `token` and `number` are the position up to which all events have been returned or skipped. They only rise. A change
    that `select` cannot read is logged, with the `prefix` of the tables' names, and skipped.
    """

    #: Whether the changes after the requested position are no longer known, so that the events are those from now on.
    is_too_old: bool
    #: Whether the follower still reads missed changes from the log.
    is_replaying: bool
    #: The number, in the log, of the last change that was returned or skipped.
    number: int
    #: The resume token of a client that has received all events up to the last one that was returned.
    token: ResumeToken
    #: The number of queued events that the last returned one replaced.
    dropped: int
    #: The live events, each with its position, from now on.
    live: BroadcastSubscription[tuple[T, HasToken]]

    def __init__(
        self,
        log: ReplayLog,
        select: Callable[[Change], T | None],
        limits: QueueLimits,
        key: Callable[[T], Hashable] | None,
        turns: asyncio.Semaphore,
        charge: Callable[[float], None],
        prefix: str,
    ) -> None:
        self._log = log
        self._prefix = prefix
        self._select = select
        self._turns = turns
        self._charge = charge
        self._seen: Seen | None = None
        self._generation = self._time = 0
        self._turn_changes = 0  # the changes left to examine in this turn
        self.is_replaying = True
        self.is_too_old = False
        self.dropped = 0
        self.number, self.token = log.last_number, log.last_token
        self.live = BroadcastSubscription(limits, key and (lambda queued: key(queued[0])))
        log.add(self.live, self._accept)

    def begin(self, after: ResumeToken | None, number: int | None) -> None:
        """Resume after a position if its `number` in the log is known; otherwise begin with the next change."""
        self.is_too_old = after is not None and number is None
        if after is None or number is None:
            self._go_live()
        else:
            self.number, self.token = number, after
            self._seen, self._generation, self._time = self._log.seen_by(after), self._log.generation, after.time

    def _go_live(self) -> None:
        self.is_replaying, self._seen = False, None
        self.number, self.token = self._log.last_number, self._log.last_token

    @property
    def last_number(self) -> int:
        """The number of the last change that has arrived."""
        return self._log.last_number

    @property
    def last_token(self) -> ResumeToken:
        """The resume token after that change."""
        return self._log.last_token

    @property
    def is_idle(self) -> bool:
        """Whether the follower awaits the next event: all earlier ones were returned or skipped."""
        return self.live.is_awaited and self._log.last_number >= self.number

    def _accept(self, entry: LogEntry) -> "tuple[T, HasToken] | None":
        """Return the event of a live change, to be queued; None while the follower still reads the log."""
        if self.is_replaying or entry.number <= self.number:
            return None
        try:  # as `_selected`, without a call for each follower
            event = self._select(entry.change)
        except DAMAGE_ERRORS as problem:
            log_unreadable(self._prefix, entry.change, problem)
            return None
        return None if event is None else (event, entry)

    def accept_joined(self, select: Callable[[Change], T | None], entry: LogEntry) -> "tuple[T, HasToken] | None":
        """Return an event of another table with the last position of the follower's own table.

        All changes up to that position are delivered before the event.
        """
        event = _selected(self._prefix, select, entry.change)
        return None if event is None else (event, _Head(self._log.last_number, self._log.last_token))

    async def next_replayed(self) -> T | None:
        """Return the next missed event; None once there are no more. Raises `ChangesLost`."""
        while self.is_replaying:
            if not self._turn_changes:
                async with self._turns:
                    await asyncio.sleep(0)
                self._turn_changes = CHANGES_PER_TURN
            # Read again each time: a slow follower must not keep changes that the log has dropped.
            entries = self._log.after(self.number, self._turn_changes, self._generation)
            if entries is None:
                self._locate_again()
                continue
            if not entries:
                self._go_live()
                break
            event = self._first_event(entries)
            if event is not None:
                return event
        return None

    def _locate_again(self) -> None:
        """Look the position up again, after the log has dropped older changes or has read more of them."""
        number = self._log.number_of(self._replayed_token())
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
                event = _selected(self._prefix, self._select, entry.change)
                if event is not None:
                    self.token = self._replayed_token()
                    return event
        finally:
            self._charge((left - self._turn_changes) * TURN_UNITS / CHANGES_PER_TURN)
        return None

    def _replayed_token(self) -> ResumeToken:
        """Return the resume token after the changes that were read from the log."""
        assert self._seen is not None, "The follower reads the log."
        return ResumeToken.at(self.token.stream, self._time, self._seen.positions)

    def __aiter__(self) -> "ChangeSubscription[T]":
        return self

    async def __anext__(self) -> T:
        if self.is_replaying and (missed := await self.next_replayed()) is not None:
            return missed
        live = self.live
        if not live.backlog:
            await live.arrival()
        (event, entry), self.dropped = live.backlog.take()
        if entry.number >= self.number:
            self.number, self.token = entry.number, entry.token
        return event


def _selected(prefix: str, select: Callable[[Change], T | None], change: Change) -> T | None:
    try:
        return select(change)
    except DAMAGE_ERRORS as problem:
        log_unreadable(prefix, change, problem)
        return None
