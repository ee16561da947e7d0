"""The recent changes of one table, in the order this process was told them, so that whoever was away can go on.

Each change has a place, by which a client names what it has seen. A place is known as long as its change is kept. Of a
stream that has had one shard only, the sequence says it all: such a place is good in every process, and what came
before the log's first change is read from the stream itself.
"""

import asyncio
import time
from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

from datastore.change_sizes import size_of
from datastore.errors import Unavailable
from datastore.places import NOWHERE, Place
from datastore.streams import Change

MOST_CHANGES = 10_000
MOST_BYTES = 16_000_000
KEPT_SECONDS = 300.0
# Nobody waits longer for what is read again; for so long it is remembered what cannot be.
REACH_SECONDS = 30.0
REMEMBERED_SECONDS = 10.0
# Then so many readings may fail; each further one waits a little first.
FREE_FAILURES = 10
PAUSE_SECONDS = 1.0
# What it costs whoever asks for a reading, in read units.
READING_UNITS = 10.0


class Entry(NamedTuple):
    """A change that was told. Numbers rise in the order of telling; of a single shard they are the sequences."""

    number: int
    place: Place
    change: Change
    size: int = 0
    at: float = 0.0


# The sequence from which on all is kept, if that is known by now: of the first change that is, or next to that before.
Before = Callable[[], int | None]


class PlaceRefused(Exception):
    """The stream does not take the sequence for one of the shard: it is invented."""


def not_now() -> Unavailable:
    """What is told while nobody can say what came after a place."""
    return Unavailable("What you have missed cannot be read at the moment: subscribe again after the same event.")


class ReadOlder(Protocol):
    """Reads a shard again: the changes after a sequence and before another, or up to its present end (None).

    `before` is asked after each page: it may become known, or rise, meanwhile.
    None for what the stream holds no more, or takes too long to tell though it answers, and for more than
    `MOST_CHANGES` or `MOST_BYTES`. Raises `PlaceRefused`, and what the store does when it stays away.
    """

    def __call__(self, stream: str, shard: str, after: int, before: Before) -> Awaitable[list[Change] | None]: ...


class _Older:
    """What was read from the stream again: all after a sequence, up to where the log begins, which adds what it drops.

    Where the log was empty it may reach further than what was told until now.
    """

    def __init__(self, after: int, entries: list[Entry]) -> None:
        self.after = after
        self.entries = entries
        self.bytes = sum(entry.size for entry in entries)

    def add(self, gone: list[Entry], most_changes: int, most_bytes: int) -> None:
        entries = self.entries
        while entries and entries[-1].number >= gone[0].number:
            self.bytes -= entries.pop().size
        entries += gone
        self.bytes += sum(entry.size for entry in gone)
        dropped = 0
        while len(entries) - dropped > most_changes or self.bytes > most_bytes:
            self.after = entries[dropped].number
            self.bytes -= entries[dropped].size
            dropped += 1
        del entries[:dropped]

    def last_before(self, number: int | None) -> int:
        """The last of its changes before this one, of all without one; if there is none, what they come after."""
        end = len(self.entries) if number is None else bisect_left(self.entries, number, key=_number)
        return self.entries[end - 1].number if end else self.after


@dataclass(eq=False, slots=True)
class _Wanted:
    """A sequence after which somebody wants to go on."""

    sequence: int
    is_refused: bool = False


class Log:
    """A `Sink`: keeps what it is told for a while, within bounds, and hands it on to `publish`, in order.

    `lost` is told what ended the telling. Nothing here waits but `reach`.
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
        self._order = self._stream = NOWHERE
        self._single: str | None = None  # the only shard there has been
        self._hashes: dict[str, str] = {}
        self._older: _Older | None = None
        self._forgetting: asyncio.TimerHandle | None = None
        self._reading: asyncio.Task[None] | None = None
        self._wanted: list[_Wanted] = []
        self._is_closed = False
        self._clear()

    def _clear(self) -> None:
        self._stop_forgetting()
        self._older = None
        self._entries: list[Entry] = []
        self._bytes = 0
        # Nothing up to there can be read again; and how often that was found out lately.
        self._unreachable, self._failures, self._remembered_until = -1, 0, 0.0
        self._numbers: dict[Place, int] = {}
        # All after it are here: what is not known of a shard that was joined at its end.
        self._complete_after: int | None = None
        self.last_number = 0
        self.last_place = Place(NOWHERE, NOWHERE, 0)

    # What it is told

    def begin(self, order: str, stream: str, *, single: str | None, is_new: bool = True, at: int | None = None) -> None:
        is_another = (order, stream) != (self._order, self._stream)
        if stream != self._stream:
            self._clear()
            self._hashes.clear()
        self._order, self._stream, self._single = order, stream, single
        if at is not None and single is not None and not self.last_number:
            self.last_place = Place(order, self._hash(single), at)
            self._numbers[self.last_place] = self._complete_after = self.last_number = at
        # Where an order began is one place for good: it goes on where a shard ends.
        if is_new and is_another and (not self._entries or single is None):
            began = Place(order, NOWHERE, 0)
            self._numbers[began] = self.last_number
            if single is None or not self.last_number:
                self.last_place = began

    def tell(self, shard: str, change: Change, *, is_past: bool = False) -> None:
        sequence = int(change.sequence)
        place = Place(self._order, self._hash(shard), sequence)
        follows = self._single == shard and sequence > self.last_number
        number = sequence if follows else self.last_number + 1
        entry = Entry(number, place, change, size_of(change), self._clock())
        self._entries.append(entry)
        self._bytes += entry.size
        self._numbers[place] = self.last_number = number
        self.last_place = place
        self.drop()
        if not is_past:
            self._publish(entry)

    def lost(self, problem: Exception) -> None:
        self._clear()
        self._lost(problem)

    def _hash(self, shard: str) -> str:
        """Of the stream, too: another of the same table may have shards of the same names."""
        found = self._hashes.get(shard)
        if found is None:
            found = self._hashes[shard] = blake2b(f"{self._stream}/{shard}".encode(), digest_size=5).hexdigest()
        return found

    def drop(self) -> None:
        """Keep no more than the bounds allow: for when nothing is told, from time to time."""
        oldest = self._clock() - self._kept
        entries, dropped = self._entries, 0
        while len(entries) - dropped > 1 and (
            len(entries) - dropped > self._most_changes
            or self._bytes > self._most_bytes
            or entries[dropped].at < oldest
        ):
            self._bytes -= entries[dropped].size
            dropped += 1
        if not dropped:
            return
        gone = entries[:dropped]
        del entries[:dropped]  # at once: they would be held
        # Whoever saw the last of them misses nothing: only what came before is forgotten.
        self._forget_before(gone[-1])
        self._complete_after = gone[-1].number
        if self._older is not None:
            self._older.add(gone, self._most_changes, self._most_bytes)

    def _forget_before(self, gone: Entry) -> None:
        for place, number in list(_until(self._numbers, gone.number)):
            if number < gone.number:
                del self._numbers[place]

    # What is asked of it

    def after(self, number: int, most: int) -> list[Entry] | None:
        """The first that were told after a number; None where some of them are kept no longer."""
        if self._complete_after is not None and number < self._complete_after and not self._is_older(number):
            return None
        if self._older is not None and self._is_older(number):
            older = self._older.entries
            start = bisect_right(older, number, key=_number)
            begins = self._begins
            found = [entry for entry in older[start : start + most] if begins is None or entry.number < begins]
            if found:
                return found
        start = bisect_right(self._entries, number, key=_number)
        return self._entries[start : start + most]

    @property
    def _begins(self) -> int | None:
        return self._entries[0].number if self._entries else None

    def _is_older(self, number: int) -> bool:
        """Whether what was read again goes on from there up to what is kept."""
        return self._older is not None and self._older.after <= number

    def number_of(self, place: Place) -> int | None:
        """From which number on whoever saw that last has to go on; None where this cannot be told from what is here."""
        known = self._numbers.get(place)
        if known is not None:
            return known
        if not self._is_of_single(place):
            return None
        number = place.sequence
        floor = self._begins if self._complete_after is None else self._complete_after
        return number if (floor is not None and number >= floor) or self._is_older(number) else None

    def _is_of_single(self, place: Place) -> bool:
        return self._single is not None and place.shard == self._hash(self._single)

    async def reach(self, place: Place, charge: Callable[[float], None] = lambda _: None) -> int | None:
        """As `number_of`, and where it may help the stream is read again: once for all who wait. None is too old.

        Each who waits for that is charged `READING_UNITS`. Raises what can be tried again, with the same place, while
        the stream cannot be read: `Unavailable` when that is not known within `REACH_SECONDS`, or the log is closed.
        """
        number = self.number_of(place)
        if number is not None or not self._is_readable(place):
            return number
        charge(READING_UNITS)
        wanted = _Wanted(place.sequence)
        self._wanted.append(wanted)
        try:
            async with asyncio.timeout(REACH_SECONDS):
                while number is None and not wanted.is_refused and self._is_readable(place):
                    if self._is_closed:
                        raise not_now()
                    if self._reading is None or self._reading.done():
                        self._reading = asyncio.create_task(self._read())
                        self._reading.add_done_callback(_heard)
                    reading = self._reading
                    await asyncio.wait([reading])
                    if (problem := _heard(reading)) is not None:
                        raise problem.with_traceback(None)  # others are told it, too: keep nobody's frames
                    number = self.number_of(place)
        except TimeoutError:
            raise not_now() from None
        finally:
            self._wanted.remove(wanted)
        return number

    async def aclose(self) -> None:
        """Read nothing again any more: whoever waits for that may come again, elsewhere."""
        self._is_closed = True
        self._forget_older()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    def _is_readable(self, place: Place) -> bool:
        if self._clock() >= self._remembered_until:
            self._unreachable, self._failures = -1, 0
        return self._is_of_single(place) and place.sequence > self._unreachable

    async def _read(self) -> None:
        """One reading: what is missing before what is here."""
        if self._failures >= FREE_FAILURES:
            await asyncio.sleep(PAUSE_SECONDS)
        single, stream, kept, after = self._single, self._stream, self._entries, self._next_wanted()
        if single is None or after is None:
            return
        try:
            changes = await self._read_older(stream, single, after, self._held_from)
        except PlaceRefused:
            for one in self._wanted:  # nothing is known of others
                one.is_refused = one.is_refused or one.sequence == after
            return
        if kept is not self._entries or single != self._single:
            return  # another stream is told meanwhile, or shards that sequences do not order
        if changes is None or not self._take(single, after, changes):
            self._failures += 1
            self._remembered_until = self._clock() + REMEMBERED_SECONDS
            self._unreachable = max(self._unreachable, after)

    def _next_wanted(self) -> int | None:
        """The oldest, which brings all; once one was too old by halves, so that such do not spoil it for others."""
        floor = self._older.after if self._older is not None else None
        open_ = sorted(
            {
                one.sequence
                for one in self._wanted
                if not one.is_refused and one.sequence > self._unreachable and (floor is None or one.sequence < floor)
            }
        )
        if not open_:
            return None
        return open_[len(open_) // 2 if self._failures else 0]

    def _held_from(self) -> int | None:
        """From where on all is here, if that is known: a reading has to bring what comes before."""
        if self._older is not None and self._older.entries:
            return self._older.entries[0].number
        return self._begins if self._complete_after is None else self._complete_after + 1

    def _take(self, single: str, after: int, changes: list[Change]) -> bool:
        """Have what was read before what is here; False where that is too much."""
        shard = self._hash(single)
        places = [Place(self._order, shard, int(change.sequence)) for change in changes]
        entries = [
            Entry(place.sequence, place, change, size_of(change)) for place, change in zip(places, changes, strict=True)
        ]
        older = _Older(after, entries + ([] if self._older is None else self._older.entries))
        if len(older.entries) > self._most_changes or older.bytes > self._most_bytes:
            return False
        self._stop_forgetting()
        self._older = older
        self._forgetting = asyncio.get_running_loop().call_later(self._kept, self._forget_older)
        return True

    def _forget_older(self) -> None:
        """Whoever is behind in it has missed something then: only what comes after it is here."""
        self._stop_forgetting()
        older, self._older = self._older, None
        if older is not None and self._complete_after is None:
            self._complete_after = older.last_before(self._begins)

    def _stop_forgetting(self) -> None:
        if self._forgetting is not None:
            self._forgetting.cancel()
        self._forgetting = None


def _heard(task: asyncio.Task[None]) -> BaseException | None:
    """What it ended by, which counts as told from then on: all who waited for it may have left."""
    return None if task.cancelled() else task.exception()


def _number(entry: Entry) -> int:
    return entry.number


def _until(numbers: dict[Place, int], most: int) -> Any:
    """Those first in the dict up to a number: they were put there in order."""
    for place, number in numbers.items():
        if number > most:
            return
        yield place, number
