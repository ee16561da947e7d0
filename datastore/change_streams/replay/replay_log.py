"""The replay log of one table's changes, from which clients resume.

A client sends a `ResumeToken`: the position in each open shard, valid in every process. Changes before the log's first
change of a shard are read from the stream again, once for all clients that wait for them.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from datastore.change_streams.replay.history import History, Lack
from datastore.change_streams.replay.resume_token import Key, Positions, ResumeToken, key_of
from datastore.change_streams.shards.checkpoints import START, joined_by, sequence_at
from datastore.change_streams.shards.parents import Seen
from datastore.errors import Unavailable
from datastore.primitives.single_flight import SingleFlight

if TYPE_CHECKING:
    from datastore.change_streams.replay.backfill import Backfill

# The maximum seconds for which a client waits for a reading, and those for which an unreadable position is remembered.
REACH_SECONDS = 30.0
REMEMBERED_SECONDS = 10.0
# A token ahead of this process comes from a process that reads the stream a little earlier. If it stays ahead for these
# seconds, the end of the stream decides: it is before a token of a table that was restored since.
AHEAD_SECONDS = 10.0
# The seconds for which clients that resume from unknown shards share a listing.
LISTED_SECONDS = 1.0
# The readings that may fail within `REMEMBERED_SECONDS` without a delay. Each further one waits `PAUSE_SECONDS` first.
FREE_FAILURES = 10
PAUSE_SECONDS = 1.0
# The price of a reading for the client that needs it, in read units.
READING_UNITS = 10.0
# Of two reads without records, one was requested after the wait began.
EMPTY_READS = 2


class ResumeTokenRefused(Exception):
    """The stream does not accept the position of a shard (its `key`): the table was restored, or is another one."""

    def __init__(self, key: Key) -> None:
        super().__init__("The stream does not accept the position.")
        self.key = key


def not_now() -> Unavailable:
    """Return the error for a token after which the changes cannot be read at present."""
    return Unavailable("The missed changes cannot be read at the moment: subscribe again after the same event.")


@dataclass(frozen=True, slots=True)
class MissingRange:
    """A shard with missing changes: those after `start` and before the sequence that `before` returns.

    `before` may return another sequence later. If it returns None, changes are missing up to the present end of the
    shard, or up to its last record if the shard `ends`.
    """

    key: Key
    shard: str
    parent: str | None
    start: str
    ends: bool
    before: Callable[[], int | None]


@dataclass(eq=False, slots=True)
class _ResumeWaiter:
    """A client that waits for the changes after its token."""

    token: ResumeToken
    positions: Positions
    #: Whether the changes after the token can never be read.
    is_refused: bool = False
    #: The idle shards that were read after the wait began.
    answered: set[Key] = field(default_factory=set)


class ReplayLog(History):
    """A `ChangeSink` that keeps recent changes within bounds and publishes each to its subscribers, in order.

    Only `load_from` waits. `options` are those of `History`.
    """

    def __init__(self, backfill: "Backfill", **options: Any) -> None:
        self._backfill = backfill
        self._readings = SingleFlight[str, None]()
        self._waiting: list[_ResumeWaiter] = []
        self._is_closed = False
        super().__init__(**options)

    def _clear(self) -> None:
        super()._clear()
        self._empty_reads: dict[Key, int] = {}
        self._listed: Mapping[str, str | None] = {}
        self._listed_at = float("-inf")
        # The age of the newest token whose changes could not be read, the number of recent failures, and the time until
        # which both are remembered.
        self._unreachable, self._failures, self._remembered_until = (-1, -1), 0, 0.0
        # The sequence numbers of the last records of shards, when they were last read to their present end.
        self._ends: dict[Key, int] = {}

    def read_empty(self, shard: str) -> None:
        """Count an empty read: resuming clients wait for empty reads of shards that have shown no record."""
        if self._waiting:
            key = self._key(shard)
            self._empty_reads[key] = self._empty_reads.get(key, 0) + 1
            self._wake()

    def lost(self, problem: Exception) -> None:
        self._clear()
        self.end(problem)

    async def load_from(self, token: ResumeToken, charge: Callable[[float], None] = lambda _: None) -> int | None:
        """Return `number_of` the token. List and read the stream again if needed, once for all waiting clients.

        Return None for a token that is too old. Each client that waits for a reading is charged `READING_UNITS`.

        Raises:
            Unavailable: The number is not known within `REACH_SECONDS`, the store stays unavailable, or the log is
                closed. The client may resume from the same token later.
        """
        if token.stream != key_of(self.stream, "") or not token.positions:
            return None
        waiting = _ResumeWaiter(token, token.positions)
        found = self._found(waiting.positions)
        if isinstance(found, int) and not self._unconfirmed(waiting):
            return found
        self._waiting.append(waiting)
        try:
            async with asyncio.timeout(REACH_SECONDS):
                return await self._wait_until_loaded(waiting, charge)
        except TimeoutError:
            raise not_now() from None
        finally:
            self._waiting.remove(waiting)
            if not self._waiting:
                self._empty_reads.clear()

    async def _wait_until_loaded(self, waiting: _ResumeWaiter, charge: Callable[[float], None]) -> int | None:
        is_charged, began = False, self._clock()
        ahead_since = began
        while True:
            found = self._found(waiting.positions)
            if self._is_closed:
                raise not_now()
            if isinstance(found, int) and not self._unconfirmed(waiting):
                return found
            if found not in (Lack.LISTING, Lack.OLDER):
                await (
                    self._wait_for_reads(waiting)
                    if isinstance(found, int)
                    else self._changed_until(ahead_since + AHEAD_SECONDS)
                )
                if found is Lack.AHEAD and self._clock() >= ahead_since + AHEAD_SECONDS:
                    if await self._is_beyond_end(waiting.positions):
                        return None
                    ahead_since = self._clock()
                continue
            if self._is_too_old(waiting, found, began):
                return None
            if not is_charged:
                charge(READING_UNITS)
                is_charged = True
            await self._list_or_read(found, began)

    def _is_too_old(self, waiting: _ResumeWaiter, found: Lack, began: float) -> bool:
        if found is Lack.LISTING:
            return self._listed_at >= began
        if self._listed_at + LISTED_SECONDS < began:
            return False
        return waiting.is_refused or self._is_gone(waiting.positions) or not self._is_readable(waiting.token)

    async def _list_or_read(self, found: Lack, began: float) -> None:
        """List the shards, or read the missing changes of the shards that were listed."""
        if found is Lack.OLDER and self._listed_at + LISTED_SECONDS >= began:
            await self._readings.join("records", self._read)
            return
        await asyncio.sleep(max(0.0, self._listed_at + LISTED_SECONDS - self._clock()))
        await self._list(began)

    def _is_gone(self, positions: Positions) -> bool:
        """Return whether the stream no longer lists a shard of which changes are missing."""
        listed = {self._key(shard) for shard in self._listed}
        missing = {key for key in positions if self._first_after(key, positions[key]) is None}
        return bool(missing - listed - self.parents.all_ancestors(positions))

    async def _is_beyond_end(self, positions: Positions) -> bool:
        """Return whether the stream ends before one of the positions. If not, this process reads it late.

        Raises: `Unavailable`, if the store is, or if more changes are missing than the bounds allow.
        """
        ahead = {key: sequence_at(position) for key, position in positions.items() if self._is_ahead(key, position)}
        self._ends.clear()
        while not ahead.keys() <= self._ends.keys():
            await self._readings.join("ends", self._read_ends)
            ahead = {key: sequence for key, sequence in ahead.items() if self._is_ahead(key, positions[key])}
        return any(sequence is not None and sequence > self._ends[key] for key, sequence in ahead.items())

    async def _read_ends(self) -> None:
        """Read the shards in which clients are ahead to their present ends. A shard that is not listed has none."""
        waited = [position for waiter in self._waiting for position in waiter.positions.items()]
        ahead = {key for key, position in waited if self._is_ahead(key, position)}
        await self._learn_parents()
        shards = {self._key(shard): shard for shard in self._listed}
        ranges = [
            MissingRange(key, shards[key], self._listed[shards[key]], self._frontier.get(key, START), False, _no_bound)
            for key in ahead & shards.keys()
        ]
        try:
            changes = await self._backfill.read(self.stream, ranges)
        except ResumeTokenRefused:
            changes = None
        if changes is None:
            raise not_now()
        self._ends = {key: sequence_at(self._frontier.get(key)) or -1 for key in ahead}
        for shard, change in changes:
            self._ends[self._key(shard)] = max(self._ends[self._key(shard)], int(change.sequence))

    async def _changed_until(self, moment: float) -> None:
        """Wait until the next change arrives, until `moment` at the latest."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, moment - self._clock())):
                await self._changed.wait()

    async def _wait_for_reads(self, waiting: _ResumeWaiter) -> None:
        """Wait until each unconfirmed shard was read. A shard is idle until a read returns a record.

        All changes that other processes have seen, or that were read again, precede that read: the last of them is the
        position of the shard.
        """
        keys = self._unconfirmed(waiting)
        until = {key: self._empty_reads.get(key, 0) + EMPTY_READS for key in keys}
        while any(self._is_idle(key) and self._empty_reads.get(key, 0) < until[key] for key in keys):
            if self._is_closed:
                raise not_now()
            await self._changed.wait()
        waiting.answered |= keys
        for key in filter(self._is_idle, keys):
            last = max(waiting.positions.get(key, START), self._last_read(key), key=lambda at: sequence_at(at) or -1)
            if sequence_at(last) is not None:
                self._frontier[key] = self._recent.shards[key].floor = last
                self._set_positions(self.last_token.time)

    def _last_read(self, key: Key) -> str:
        """Return the sequence number up to which the shard was read again; `START` if it was not."""
        entries = [] if self._older is None else self._older.entries
        return next((entry.change.sequence for entry in reversed(entries) if entry.shard == key), START)

    def _unconfirmed(self, waiting: _ResumeWaiter) -> set[Key]:
        """Return the shards that this process joined, perhaps before the client's position in them."""
        keys = filter(self._is_idle, self._frontier.keys() - waiting.answered)
        return {key for key in keys if not self._is_same_joining(key, waiting.positions.get(key, START))}

    async def aclose(self) -> None:
        """Cancel the readings. Waiting clients receive `Unavailable`, and may resume at another process."""
        self._is_closed = True
        self._forget_older()
        self._wake()
        await self._readings.aclose()

    def _is_readable(self, token: ResumeToken) -> bool:
        if self._clock() >= self._remembered_until:
            self._unreachable, self._failures = (-1, -1), 0
        return _age(token) > self._unreachable

    # Reading again

    async def _list(self, began: float) -> None:
        if self._listed_at >= began:
            return  # another reading did it while this one waited for its turn
        await self._readings.join("shards", self._learn_parents)

    async def _learn_parents(self) -> None:
        stream, now = self.stream, self._clock()
        listed = await self._backfill.shards(stream)
        if stream != self.stream:
            return
        self._listed, self._listed_at = listed, now
        for shard, parent in listed.items():
            # A parent that the stream no longer lists is gone for good, with its records.
            self.parents.learn(self._key(shard), None if parent is None else self._key(parent))

    async def _read(self) -> None:
        """Read the changes that the waiting clients need and that are missing before the present ones."""
        if self._failures >= FREE_FAILURES:
            await asyncio.sleep(PAUSE_SECONDS)
        recent, stream, chosen = self._recent, self.stream, self._readable_waiters()
        if not chosen:
            return
        lowest = self.parents.lowest(waiter.positions for waiter in chosen)
        ranges = self._missing_ranges(lowest)
        try:
            changes = await self._backfill.read(stream, ranges)
        except ResumeTokenRefused as refused:
            for waiter in chosen:  # only clients at the refused position: others in that shard may still succeed
                waiter.is_refused = waiter.positions.get(refused.key, START) == lowest.get(refused.key, START)
            return
        if recent is not self._recent:
            return  # changes of another stream arrive by now
        if changes is None or not self._insert_older({missing.key: missing.start for missing in ranges}, changes):
            self._failures += 1
            self._remembered_until = self._clock() + REMEMBERED_SECONDS
            self._unreachable = max(self._unreachable, min(_age(waiter.token) for waiter in chosen))
        elif all(self._found(waiter.positions) is Lack.OLDER for waiter in chosen):
            for waiter in chosen:  # the missing changes are lost: the stream no longer lists a shard in between
                waiter.is_refused = True

    def _readable_waiters(self) -> list[_ResumeWaiter]:
        """Return the clients to read for; after a failure the newer half, since too old tokens fail the others."""
        waiters = [waiter for waiter in self._waiting if not waiter.is_refused]
        waiters = [waiter for waiter in waiters if _age(waiter.token) > self._unreachable]
        waiters = [waiter for waiter in waiters if self._found(waiter.positions) is Lack.OLDER]
        waiters.sort(key=lambda waiter: _age(waiter.token))
        return waiters[len(waiters) // 2 if self._failures else 0 :]

    def _missing_ranges(self, lowest: dict[Key, str]) -> list[MissingRange]:
        """Return the shards to read, parents first."""
        seen = Seen(self.parents, lowest)
        shards = {self._key(shard): shard for shard in self._listed}
        ranges = []
        for key, shard in shards.items():
            start = seen.before(key)
            if start is None or not seen.is_related(key) or self._first_after(key, start) is not None:
                continue
            if key not in self._recent.shards and self._will_be_read_whole(key):
                continue
            parent = self._listed[shard]
            ranges.append(MissingRange(key, shard, parent, start, key not in self._frontier, self._before(key)))
        depth = {missing.key: len([*self.parents.ancestors(missing.key)]) for missing in ranges}
        return sorted(ranges, key=lambda missing: depth[missing.key])

    def _will_be_read_whole(self, key: Key) -> bool:
        """Return whether this process will read the whole shard, once its parent has ended."""
        return any(ancestor in self._frontier for ancestor in self.parents.ancestors(key))

    def _before(self, key: Key) -> Callable[[], int | None]:
        """Return a function that returns the sequence number of the first change of the shard that is held."""

        def before() -> int | None:
            for run in (self._older, self._recent):
                shard = run.shards.get(key) if run is not None else None
                if shard is not None and shard.floor and joined_by(shard.floor) is None:
                    return (sequence_at(shard.floor) or 0) + 1
                if shard is not None and shard.sequences:
                    return shard.sequences[0]
            return None

        return before


def _no_bound() -> None:
    """Return no sequence: a shard is read to its present end."""


def _age(token: ResumeToken) -> tuple[int, int]:
    """Return a sort key that orders the tokens of a stream approximately: the time and the newest sequence number."""
    return token.time, max((sequence_at(position) or 0 for position in token.positions.values()), default=0)
