"""The recent changes of one table, in the order this process was told them, so that clients can resume.

A client names a `Place`: where each open shard was read to. It is good in every process. What came before the log's
first change of a shard is read from the stream again, once for all who wait for it.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol

from datastore.change_runs import Entry, Run, oldest
from datastore.change_sizes import size_of
from datastore.errors import Unavailable
from datastore.places import MOVES, UNKNOWN, Key, Moves, Place, Positions, idle, idle_since, key_of
from datastore.positions import START, joined_by, sequence_at
from datastore.shard_parents import Parents, Seen
from datastore.streams import Change

MOST_CHANGES = 10_000
MOST_BYTES = 16_000_000
KEPT_SECONDS = 300.0
# Nobody waits longer for what is read again; for so long it is remembered what cannot be.
REACH_SECONDS = 30.0
REMEMBERED_SECONDS = 10.0
# A position ahead of what was told here was given by a process that reads the stream a little earlier. One that stays
# ahead for so long is of another stream: of a table that was restored.
AHEAD_SECONDS = 10.0
# Listings are shared for so long by those who resume from shards that are not known.
LISTED_SECONDS = 1.0
# Then so many readings may fail; each further one waits a little first.
FREE_FAILURES = 10
PAUSE_SECONDS = 1.0
ENDED_KEPT = 100
# What it costs whoever asks for a reading, in read units.
READING_UNITS = 10.0
# After two answers without records one was asked for since.
ANSWERS = 2


class PlaceRefused(Exception):
    """The stream does not take a position for one of its shard: the table was restored, or is another one."""


def not_now() -> Unavailable:
    """The error while it cannot be found out what came after a place."""
    return Unavailable("What you have missed cannot be read at the moment: subscribe again after the same event.")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A shard of which changes are missing: those after `start`, and before the sequence that `before` answers.

    `before` may answer another one later. None: up to the present end of the shard, or to its last record if it
    `ends`.
    """

    key: Key
    shard: str
    parent: str | None
    start: str
    ends: bool
    before: Callable[[], int | None]


class ReadOlder(Protocol):
    """Reads shards again."""

    async def shards(self, stream: str) -> Mapping[str, str | None]:
        """The shards that the stream lists, with their parents."""

    async def read(self, stream: str, wanted: list[Wanted]) -> list[tuple[str, Change]] | None:
        """The changes that are wanted, with their shards, in the order of each key.

        None for what the stream holds no more, or takes too long to tell though it answers, and for more than
        `MOST_CHANGES` or `MOST_BYTES`.

        Raises:
            PlaceRefused: The stream does not accept a position.
            Unavailable: The store stays away.
        """


class _Lack(Enum):
    """Why it is not known which changes come after a place."""

    LISTING = auto()  # it names shards that are not known
    AHEAD = auto()  # it is further than what was told here
    OLDER = auto()  # some changes are not here


@dataclass(eq=False, slots=True)
class _Waiting:
    """A place after which somebody wants to resume."""

    place: Place
    positions: Positions
    is_refused: bool = False
    answered: set[Key] = field(default_factory=set)


class Log:
    """A `Sink`: keeps what it is told for a while, within bounds, and hands it on to `publish`, in order.

    `lost` is told what ended the telling. Nothing here waits but `reach` and `more`.
    """

    def __init__(
        self,
        publish: Callable[[Entry], None],
        lost: Callable[[Exception], None],
        read_older: ReadOlder,
        *,
        most_changes: int = MOST_CHANGES,
        most_bytes: int = MOST_BYTES,
        kept_seconds: float = KEPT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._publish = publish
        self._lost = lost
        self._read_older = read_older
        self._most_changes, self._most_bytes, self._kept = most_changes, most_bytes, kept_seconds
        self._clock = clock
        self.stream = ""
        self.parents = Parents()
        self._forgetting: asyncio.TimerHandle | None = None
        self._older: Run | None = None
        self._reading: asyncio.Task[None] | None = None
        self._listing: asyncio.Task[None] | None = None
        self._listed: Mapping[str, str | None] = {}
        self._listed_until = 0.0
        self._waiting: list[_Waiting] = []
        self._changed = asyncio.Event()
        self._is_closed = False
        self.generation = 0  # of what was read again
        self._clear()

    def _clear(self) -> None:
        self._forget_older()
        self._recent = Run()
        self._frontier: dict[Key, str] = {}
        self._answers: dict[Key, int] = {}
        self._moves = Moves({})
        self.parents.clear()
        self._listed, self._listed_until = {}, 0.0
        # Nothing up to that time can be read again; and how often that was found out lately.
        self._unreachable, self._failures, self._remembered_until = (-1, -1), 0, 0.0
        self.last_number = self._lowest = 0
        self.last_place = UNKNOWN

    # What it is told

    def begin(self, stream: str, positions: Mapping[str, str], parents: Mapping[str, str | None], since: float) -> None:
        if stream != self.stream:
            self._clear()
            self.stream = stream
        for shard, parent in parents.items():
            self.parents.learn(self._key(shard), None if parent is None else self._key(parent))
        begun = {self._key(shard): position for shard, position in positions.items()}
        ended = self.parents.all_ancestors([*begun, *self._frontier])
        for key, position in begun.items():
            if key not in self._recent.shards and key not in ended:
                origin = joined_by(position)
                self._frontier[key] = position if origin is None else idle(origin[0], since)
                self._recent.begin(key, self._frontier[key])
        for key in ended:
            self._frontier.pop(key, None)
        self._stand(max(self.last_place.time, int(since)))

    def start(self, shard: str, parent: str | None) -> None:
        key = self._key(shard)
        self.parents.learn(key, None if parent is None else self._key(parent))
        if key in self._recent.shards:
            return
        self._recent.begin(key, START)
        for ancestor in self.parents.ancestors(key):
            self._frontier.pop(ancestor, None)
        self._frontier[key] = START
        self._stand(self.last_place.time)
        self._wake()

    def tell(self, shard: str, change: Change, *, parent: str | None = None, is_past: bool = False) -> None:
        key = self._key(shard)
        if key not in self._frontier:
            self.start(shard, parent)
        number = self.last_number = self.last_number + 1
        if key in self._frontier:
            self._frontier[key] = change.sequence
            self._move(key, change.sequence, int(change.time.timestamp()))
        entry = Entry(number, key, int(change.sequence), self.last_place, change, size_of(change), self._clock())
        self._recent.add(entry)
        self.drop()
        if not is_past:
            self._publish(entry)
        self._wake()

    def answered(self, shard: str) -> None:
        """The shard had no more records: those who resume wait for such answers where none has come yet."""
        if self._waiting:
            key = self._key(shard)
            self._answers[key] = self._answers.get(key, 0) + 1
            self._wake()

    def lost(self, problem: Exception) -> None:
        self._clear()
        self._lost(problem)

    def _key(self, shard: str) -> Key:
        return key_of(self.stream, shard)

    def _stand(self, seconds: int) -> None:
        """Name the place at which all shards are, of another set of shards than before."""
        self._moves = Moves(self._frontier)
        self.last_place = Place(key_of(self.stream, ""), seconds, self._moves)

    def _move(self, key: Key, position: str, seconds: int) -> None:
        if len(self._moves.moves) >= max(MOVES, len(self._frontier)):
            self._stand(seconds)
        else:
            self._moves.moves.append((key, position))
            self.last_place = Place(self.last_place.stream, seconds, self._moves, len(self._moves.moves))

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def drop(self) -> None:
        """Keep no more than the bounds allow: for when nothing is told, from time to time."""
        earliest = self._clock() - self._kept
        run, entries, dropped, size = self._recent, self._recent.entries, 0, self._recent.bytes
        while len(entries) - dropped > 1 and (
            len(entries) - dropped > self._most_changes or size > self._most_bytes or entries[dropped].at < earliest
        ):
            size -= entries[dropped].size
            dropped += 1
        if not dropped:
            return
        gone = run.drop(dropped)
        self._forget_ended()
        if self._older is not None:
            self._older.add_all(gone)
            self._bound_older(self._older)

    def _forget_ended(self) -> None:
        """Positions may name shards that have ended since: those of a while are kept."""
        shards = self._recent.shards
        most = ENDED_KEPT + len(self._frontier)
        if len(shards) <= most:
            return
        ended = [key for key, shard in shards.items() if key not in self._frontier and not shard.sequences]
        for key in ended[: len(shards) - most]:
            del shards[key]
        self.parents.keep(shards.keys())

    def _bound_older(self, older: Run) -> None:
        dropped, size = 0, older.bytes
        while len(older.entries) - dropped > self._most_changes or size > self._most_bytes:
            size -= older.entries[dropped].size
            dropped += 1
        if dropped:
            older.drop(dropped)
            self.generation += 1

    # What is asked of it

    def after(self, number: int, most: int, generation: int) -> list[Entry] | None:
        """The first that were told after a number; None where it has to be found anew from the place."""
        older, kept = self._older, self._recent
        if older is not None and older.entries and number < older.entries[-1].number:
            return older.after(number, most) if generation == self.generation else None
        is_before = number < (kept.complete_after or 0)  # numbers of what was read again are negative
        if is_before and (older is None or generation != self.generation):
            return None
        return kept.after(number, most)

    def seen_by(self, place: Place) -> Seen:
        return Seen(self.parents, place.positions)

    def is_news(self, seen: Seen, entry: Entry) -> bool:
        """Whether a change comes after what was seen."""
        position = seen.before(entry.shard)
        if position is None:
            return False
        since = idle_since(position)
        if since is None:
            return entry.sequence > (sequence_at(position) or -1)
        return self._is_same_joining(entry.shard, position) or entry.change.time.timestamp() >= oldest(since)

    def _is_same_joining(self, key: Key, position: str) -> bool:
        run = self._recent.shards.get(key)
        ours, theirs = joined_by(run.floor if run else ""), joined_by(position)
        return ours is not None and theirs is not None and ours[0] == theirs[0]

    def has_reached(self, seen: Seen) -> bool:
        """Whether all that was seen has been told here, too."""
        return not any(self._is_ahead(key, position) for key, position in seen.positions.items())

    def _is_ahead(self, key: Key, position: str) -> bool:
        if key not in self._recent.shards:
            return any(ancestor in self._frontier for ancestor in self.parents.ancestors(key))
        sequence, told = sequence_at(position), sequence_at(self._frontier.get(key))
        if sequence is None or key not in self._frontier or joined_by(self._frontier[key]) is not None:
            return False
        return told is None or sequence > told

    def number_of(self, place: Place) -> int | None:
        """The number after which a follower at the place has to go on; None where what is here does not tell."""
        found = self._found(place.positions)
        return found if isinstance(found, int) else None

    def _found(self, positions: Positions) -> int | _Lack:
        seen, numbers = Seen(self.parents, positions), [self.last_number + 1]
        if not self.parents.is_known(positions):
            return _Lack.LISTING
        if not self.has_reached(seen):
            return _Lack.AHEAD
        older = () if self._older is None else self._older.shards
        for key in {*positions, *self._recent.shards, *older} - seen.ended:
            if key not in positions and not seen.is_related(key):
                return _Lack.LISTING
            first = self._first_after(key, positions.get(key, START))
            if first is None:
                return _Lack.OLDER
            numbers.append(first)
        return min(numbers) - 1

    def _unanswered(self, waiting: _Waiting) -> set[Key]:
        """The shards that were joined here, maybe before what was seen of them elsewhere, or is read again."""
        keys = filter(self._is_idle, self._frontier.keys() - waiting.answered)
        return {key for key in keys if not self._is_same_joining(key, waiting.positions.get(key, START))}

    def _first_after(self, key: Key, position: str) -> int | None:
        """The number of the first change of the shard after a position, of which all are here; else None."""
        for run in (self._recent, self._older):
            if run is not None and run.has_all_after(key, position):
                first = run.shards[key].first_after(position)
                recent = self._recent.shards.get(key)
                if first is None and recent is not None and recent.numbers:
                    first = recent.numbers[0]
                return self.last_number + 1 if first is None else first
        return None

    def _is_idle(self, key: Key) -> bool:
        return joined_by(self._frontier.get(key) or START) is not None

    async def more(self) -> None:
        """Returns when something has been told."""
        await self._changed.wait()

    async def reach(self, place: Place, charge: Callable[[float], None] = lambda _: None) -> int | None:
        """As `number_of`, and where it may help the stream is listed and read again: once for all who wait.

        None is too old. Each who waits for a reading is charged `READING_UNITS`. Raises what can be tried again, with
        the same place, while the stream cannot be read: `Unavailable` when that is not known within `REACH_SECONDS`,
        or the log is closed.
        """
        if place.stream != key_of(self.stream, "") or not place.positions:
            return None
        waiting = _Waiting(place, place.positions)
        found = self._found(waiting.positions)
        if isinstance(found, int) and not self._unanswered(waiting):
            return found
        self._waiting.append(waiting)
        try:
            async with asyncio.timeout(REACH_SECONDS):
                return await self._reached(waiting, charge)
        except TimeoutError:
            raise not_now() from None
        finally:
            self._waiting.remove(waiting)
            if not self._waiting:
                self._answers.clear()

    async def _reached(self, waiting: _Waiting, charge: Callable[[float], None]) -> int | None:
        is_charged, was_listed, ahead_until = False, False, self._clock() + AHEAD_SECONDS
        while True:
            found = self._found(waiting.positions)
            if self._is_closed:
                raise not_now()
            if isinstance(found, int):
                if not self._unanswered(waiting):
                    return found
                await self._answer(waiting)
                continue
            if found is _Lack.AHEAD:
                if self._clock() >= ahead_until:
                    return None
                await self._changed_within(ahead_until - self._clock())
                continue
            if was_listed and (found is _Lack.LISTING or self._is_gone(waiting.positions)):
                return None
            if not is_charged:
                charge(READING_UNITS)
                is_charged = True
            if not was_listed:
                was_listed = True
                await self._list()
                continue
            if waiting.is_refused or not self._is_readable(waiting.place):
                return None
            await self._shared_reading()

    def _is_gone(self, positions: Positions) -> bool:
        """Whether the stream does not list a shard any more of which changes are missing."""
        listed = {self._key(shard) for shard in self._listed}
        missing = {key for key in positions if self._first_after(key, positions[key]) is None}
        return bool(missing - listed - self.parents.all_ancestors(positions))

    async def _changed_within(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _answer(self, waiting: _Waiting) -> None:
        """Wait until the shards have answered that nothing came since they were joined, or something has come.

        Then all that was seen of them elsewhere, or read again, came before: the last of it is where they are.
        """
        keys = self._unanswered(waiting)
        until = {key: self._answers.get(key, 0) + ANSWERS for key in keys}
        while any(self._is_idle(key) and self._answers.get(key, 0) < until[key] for key in keys):
            if self._is_closed:
                raise not_now()
            await self._changed.wait()
        waiting.answered |= keys
        for key in filter(self._is_idle, keys):
            last = max(waiting.positions.get(key, START), self._last_read(key), key=lambda one: sequence_at(one) or -1)
            if sequence_at(last) is not None:
                self._frontier[key] = self._recent.shards[key].floor = last
                self._stand(self.last_place.time)

    def _last_read(self, key: Key) -> str:
        """The sequence up to which the shard was read again."""
        entries = [] if self._older is None else self._older.entries
        return next((entry.change.sequence for entry in reversed(entries) if entry.shard == key), START)

    async def aclose(self) -> None:
        """Read nothing again any more: whoever waits for that may come again, elsewhere."""
        self._is_closed = True
        self._forget_older()
        self._wake()
        for task in (self._reading, self._listing):
            if task is not None:
                task.cancel()
                await asyncio.wait([task])

    def _is_readable(self, place: Place) -> bool:
        if self._clock() >= self._remembered_until:
            self._unreachable, self._failures = (-1, -1), 0
        return _age(place) > self._unreachable

    # Reading again

    async def _list(self) -> None:
        if self._clock() < self._listed_until:
            return
        if self._listing is None or self._listing.done():
            self._listing = asyncio.create_task(self._learn())
            self._listing.add_done_callback(_heard)
        await _done(self._listing)

    async def _learn(self) -> None:
        stream = self.stream
        listed = await self._read_older.shards(stream)
        if stream != self.stream:
            return
        self._listed, self._listed_until = listed, self._clock() + LISTED_SECONDS
        for shard, parent in listed.items():
            # One that is listed no longer is gone for good: nobody can say what it had.
            self.parents.learn(self._key(shard), None if parent is None else self._key(parent))

    async def _shared_reading(self) -> None:
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read())
            self._reading.add_done_callback(_heard)
        await _done(self._reading)

    async def _read(self) -> None:
        """One reading: what is missing before what is here."""
        if self._failures >= FREE_FAILURES:
            await asyncio.sleep(PAUSE_SECONDS)
        recent, stream, chosen = self._recent, self.stream, self._chosen()
        if not chosen:
            return
        lowest = self.parents.lowest(one.positions for one in chosen)
        wanted = self._wanted(lowest)
        try:
            changes = await self._read_older.read(stream, wanted)
        except PlaceRefused:
            for one in chosen:
                one.is_refused = True
            return
        if recent is not self._recent:
            return  # another stream is told meanwhile
        if changes is None or not self._take(wanted, changes):
            self._failures += 1
            self._remembered_until = self._clock() + REMEMBERED_SECONDS
            self._unreachable = max(self._unreachable, min(_age(one.place) for one in chosen))
        elif all(self._found(one.positions) is _Lack.OLDER for one in chosen):
            for one in chosen:  # what is missing is not to be had: a shard between is listed no longer
                one.is_refused = True

    def _chosen(self) -> list[_Waiting]:
        """All who wait; once one was too old the newer half, so that such do not spoil it for others."""
        open_ = [one for one in self._waiting if not one.is_refused and _age(one.place) > self._unreachable]
        open_ = [one for one in open_ if self._found(one.positions) is _Lack.OLDER]
        open_.sort(key=lambda one: _age(one.place))
        return open_[len(open_) // 2 if self._failures else 0 :]

    def _wanted(self, lowest: dict[Key, str]) -> list[Wanted]:
        """Parents first."""
        seen = Seen(self.parents, lowest)
        shards = {self._key(shard): shard for shard in self._listed}
        wanted = []
        for key, shard in shards.items():
            start = seen.before(key)
            if start is None or not seen.is_related(key) or self._first_after(key, start) is not None:
                continue
            if key not in self._recent.shards and self._comes_whole(key):
                continue
            parent = self._listed[shard]
            wanted.append(Wanted(key, shard, parent, start, key not in self._frontier, self._before(key)))
        depth = {one.key: len([*self.parents.ancestors(one.key)]) for one in wanted}
        return sorted(wanted, key=lambda one: depth[one.key])

    def _comes_whole(self, key: Key) -> bool:
        """Whether the shard is going to be read here once its parent has ended."""
        return any(ancestor in self._frontier for ancestor in self.parents.ancestors(key))

    def _before(self, key: Key) -> Callable[[], int | None]:
        def before() -> int | None:
            for run in (self._older, self._recent):
                shard = run.shards.get(key) if run is not None else None
                if shard is not None and shard.floor and joined_by(shard.floor) is None:
                    return (sequence_at(shard.floor) or 0) + 1
                if shard is not None and shard.sequences:
                    return shard.sequences[0]
            return None

        return before

    def _take(self, wanted: Collection[Wanted], changes: list[tuple[str, Change]]) -> bool:
        """Have what was read before what is here; False where that is too much."""
        older = self._older or Run()
        size = sum(size_of(change) for _, change in changes)
        if len(older.entries) + len(changes) > self._most_changes or older.bytes + size > self._most_bytes:
            return False
        first = self._lowest - len(changes)
        entries = [
            Entry(first + index, self._key(shard), int(change.sequence), UNKNOWN, change, size_of(change))
            for index, (shard, change) in enumerate(changes)
        ]
        older.put_before(entries, {one.key: one.start for one in wanted})
        self._stop_forgetting()
        self._older, self._lowest = older, first
        self.generation += 1
        self._forgetting = asyncio.get_running_loop().call_later(self._kept, self._forget_older)
        return True

    def _forget_older(self) -> None:
        """Whoever is behind in it has missed something then: only what comes after it is here."""
        self._stop_forgetting()
        self._older = None
        self.generation += 1

    def _stop_forgetting(self) -> None:
        if self._forgetting is not None:
            self._forgetting.cancel()
        self._forgetting = None


async def _done(task: asyncio.Task[None]) -> None:
    """Waits for a task that others wait for, too. Raises what it ended by."""
    await asyncio.wait([task])
    if (problem := _heard(task)) is not None:
        raise problem.with_traceback(None)  # others hear of it, too: keep no other's frames


def _heard(task: asyncio.Task[None]) -> BaseException | None:
    """What it ended by, which counts as told from then on: all who waited for it may have left."""
    return None if task.cancelled() else task.exception()


def _age(place: Place) -> tuple[int, int]:
    """What orders places of a stream, roughly: their times, and the newest of their sequences."""
    return place.time, max((sequence_at(one) or 0 for one in place.positions.values()), default=0)
