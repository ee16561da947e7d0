"""The recent changes of one table, in the order this process was told them, so that whoever was away can go on.

Each change has a place, by which a client names what it has seen. A place is known as long as its change is kept. Of a
stream that has had one shard only, the sequence says it all: such a place is good in every process, and what came
before the log's first change is read from the stream itself.
"""

import asyncio
import time
from bisect import bisect_right
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol

from datastore.errors import BadUserInput
from datastore.streams import Change

MOST_CHANGES = 10_000
MOST_BYTES = 16_000_000
KEPT_SECONDS = 300.0
# Where an order began and nothing had been told in it.
NOWHERE = "0"
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_LONGEST_ORDER, _LONGEST_SHARD, _LONGEST_SEQUENCE = 32, 16, 32


class Place(NamedTuple):
    """The change that was told last: by whose order (see `Sink.begin`), of which shard, and its sequence."""

    order: str
    shard: str
    sequence: int

    def __str__(self) -> str:
        return f"{self.order}.{self.shard}.{_in_36(self.sequence)}"


def place_from(text: str) -> Place:
    """The place that `str` made the text of. Raises `BadUserInput`."""
    order, _, rest = text.partition(".")
    shard, _, sequence = rest.partition(".")
    is_sound = len(order) <= _LONGEST_ORDER and len(shard) <= _LONGEST_SHARD and len(sequence) <= _LONGEST_SEQUENCE
    if not (is_sound and all(part and set(part) <= set(_DIGITS) for part in (order, shard, sequence))):
        raise BadUserInput("This is no id of an event.")
    return Place(order, shard, int(sequence, 36))


def _in_36(number: int) -> str:
    digits = ""
    while number:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return digits or "0"


class Entry(NamedTuple):
    """A change that was told. Numbers rise in the order of telling; of a single shard they are the sequences."""

    number: int
    place: Place
    change: Change
    size: int = 0
    at: float = 0.0


# The sequence of the first change that is kept, if any is by now.
Before = Callable[[], int | None]


class ReadOlder(Protocol):
    """Reads a shard again: the changes after a sequence and before another, or up to its present end (None).

    None for what the stream holds no more, refuses to tell, or is more than `MOST_CHANGES`.
    """

    def __call__(self, stream: str, shard: str, after: int, before: Before) -> Awaitable[list[Change] | None]: ...


@dataclass(frozen=True, slots=True)
class _Older:
    """What was read from the stream again: all after a sequence, up to another."""

    after: int
    until: int
    entries: list[Entry]


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
        self._reading: asyncio.Task[None] | None = None
        self._wanted: list[int] = []
        self._clear()

    def _clear(self) -> None:
        self._entries: list[Entry] = []
        self._first = 0  # of those, which is the first that is still kept
        self._bytes = 0
        self._numbers: dict[Place, int] = {}
        # All after it are here: what is not known of a shard that was joined at its end.
        self._complete_after: int | None = None
        self.last_number = 0
        self.last_place = Place(NOWHERE, NOWHERE, 0)

    # What it is told

    def begin(self, order: str, stream: str, *, single: str | None, is_new: bool = True) -> None:
        if stream != self._stream:
            self._clear()
            self._hashes.clear()
            self._older = None
        self._order, self._stream, self._single = order, stream, single
        if is_new and (not self._entries or single is None):
            self.last_place = Place(order, NOWHERE, 0)
            self._numbers[self.last_place] = self.last_number

    def tell(self, shard: str, change: Change, *, is_past: bool = False) -> None:
        sequence = int(change.sequence)
        place = Place(self._order, self._hash(shard), sequence)
        follows = self._single == shard and sequence > self.last_number
        number = sequence if follows else self.last_number + 1
        entry = Entry(number, place, change, _size(change), self._clock())
        self._entries.append(entry)
        self._bytes += entry.size
        self._numbers[place] = self.last_number = number
        self.last_place = place
        self._drop()
        if not is_past:
            self._publish(entry)

    def lost(self, problem: Exception) -> None:
        self._clear()
        self._older = None
        self._lost(problem)

    def _hash(self, shard: str) -> str:
        """Of the stream, too: another of the same table may have shards of the same names."""
        found = self._hashes.get(shard)
        if found is None:
            found = self._hashes[shard] = blake2b(f"{self._stream}/{shard}".encode(), digest_size=5).hexdigest()
        return found

    def _drop(self) -> None:
        oldest = self._clock() - self._kept
        entries = self._entries
        while len(entries) - self._first > 1 and (
            len(entries) - self._first > self._most_changes
            or self._bytes > self._most_bytes
            or entries[self._first].at < oldest
        ):
            gone = entries[self._first]
            # Whoever saw it last misses nothing: only what came before is forgotten.
            self._forget_before(gone)
            self._complete_after = gone.number
            self._bytes -= gone.size
            self._first += 1
        if self._first > self._most_changes:
            del entries[: self._first]
            self._first = 0

    def _forget_before(self, gone: Entry) -> None:
        for place, number in list(_until(self._numbers, gone.number)):
            if number < gone.number:
                del self._numbers[place]

    # What is asked of it

    def after(self, number: int, most: int) -> list[Entry] | None:
        """The first that were told after a number; None where some of them are kept no longer."""
        if self._complete_after is not None and number < self._complete_after and not self._is_older(number):
            return None
        if self._is_older(number):
            assert self._older is not None
            older = self._older.entries
            start = bisect_right(older, number, key=_number)
            before = self._begins()
            found = [entry for entry in older[start : start + most] if before is None or entry.number < before]
            if found:
                return found
        start = bisect_right(self._entries, number, lo=self._first, key=_number)
        return self._entries[start : start + most]

    @property
    def _has_entries(self) -> bool:
        return len(self._entries) > self._first

    def _begins(self) -> int | None:
        return self._entries[self._first].number if self._has_entries else None

    def _is_older(self, number: int) -> bool:
        """Whether what was read again goes on from there up to what is kept."""
        older = self._older
        if older is None or not older.after <= number:
            return False
        return self._complete_after is None or self._complete_after <= older.until

    def number_of(self, place: Place) -> int | None:
        """From which number on whoever saw that last has to go on; None where this cannot be told from what is here."""
        known = self._numbers.get(place)
        if known is not None:
            return known
        if not self._is_of_single(place):
            return None
        number = place.sequence
        floor = self._begins() if self._complete_after is None else self._complete_after
        return number if (floor is not None and number >= floor) or self._is_older(number) else None

    def _is_of_single(self, place: Place) -> bool:
        return self._single is not None and place.shard == self._hash(self._single)

    async def reach(self, place: Place) -> int | None:
        """As `number_of`, and where it may help the stream is read again: once for all who wait. None is too old."""
        number = self.number_of(place)
        if number is not None or not self._is_of_single(place):
            return number
        self._wanted.append(place.sequence)
        try:
            while True:
                is_mine = self._reading is None or self._reading.done()
                if is_mine:
                    self._reading = asyncio.create_task(self._read())
                assert self._reading is not None
                await asyncio.wait([self._reading])
                number = self.number_of(place)
                if number is not None or is_mine:
                    return number
        finally:
            self._wanted.remove(place.sequence)

    async def _read(self) -> None:
        single, stream = self._single, self._stream
        if single is None:
            return
        after = min(self._wanted)
        changes = await self._read_older(stream, single, after, self._begins)
        if changes is None or (stream, single) != (self._stream, self._single):
            return
        shard = self._hash(single)
        places = [Place(self._order, shard, int(change.sequence)) for change in changes]
        entries = [Entry(place.sequence, place, change) for place, change in zip(places, changes, strict=True)]
        before = self._begins()
        until = before - 1 if before is not None else max([after, *[entry.number for entry in entries]])
        self._older = _Older(after, until, entries)
        asyncio.get_running_loop().call_later(self._kept, self._forget_older, self._older)

    def _forget_older(self, older: _Older) -> None:
        if self._older is older:
            self._older = None


def _number(entry: Entry) -> int:
    return entry.number


def _until(numbers: dict[Place, int], most: int) -> Any:
    """Those first in the dict up to a number: they were put there in order."""
    for place, number in numbers.items():
        if number > most:
            return
        yield place, number


def _size(change: Change) -> int:
    return 500 + sum(_bytes(image) for image in (change.old, change.new) if image is not None)


def _bytes(value: Any) -> int:
    """About what it takes in memory."""
    if isinstance(value, (str, bytes)):
        return 50 + len(value)
    if isinstance(value, dict):
        return 64 + sum(50 + len(key) + _bytes(one) for key, one in value.items())
    if isinstance(value, (list, set, tuple, frozenset)):
        return 64 + sum(map(_bytes, value))
    return 32
