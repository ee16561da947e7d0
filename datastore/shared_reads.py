"""Point reads that the requests of a process share: while they are on their way, and for a moment what they brought.

Who sends a read pays for it, and it is theirs: they may give it up, and whoever waits for it then reads for themselves.
What this process writes is dropped when the write is acknowledged: who asks later is served by no read that may have
missed it.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, KeysView, Mapping, Sequence
from enum import Enum
from typing import Any

import orjson

from datastore.declarations import CROWD_MS, Table
from datastore.errors import Throttled, Timeout, Unavailable
from datastore.found import Found
from datastore.keyspace import TABLES
from datastore.keyspace.parts import Key, key_of

# Nobody joins a read that was sent longer ago: it may hang, and what it brings is as old as that.
JOINED_SECONDS = 0.25
LONGEST_SECONDS = CROWD_MS / 1000
MOST_ITEMS = 1_000
MOST_BYTES = 4 * 2**20

Address = tuple[Table, Key]
# The attributes that are read of items, None where they are read whole.
Parts = tuple[str, ...] | None
Narrowed = Mapping[Table, tuple[str, ...]]

_TABLES = {table.name: table for table in TABLES}


class Sharing(Enum):
    """Which reads of others a request may be served by.

    NEW: those that were sent after it asked, and nothing that is kept. TOLD: what was sent after this process was told
    of the last change, for events: what they show may not be older than what they tell of. RECENT: whatever was sent a
    moment ago.
    """

    NEW = "new"
    TOLD = "told"
    RECENT = "recent"


class Flight:
    """Point reads that one request has sent, as others wait for them.

    `began` is when, by the clock, and `number` its place among all that were sent. `narrowed` is what is read of the
    items of tables that are not read whole.
    """

    __slots__ = ("_landed", "_told", "began", "narrowed", "number")

    def __init__(self, began: float, number: int, narrowed: Narrowed) -> None:
        self.began = began
        self.number = number
        self.narrowed = narrowed
        self._landed: asyncio.Future[None] | None = None
        self._told: dict[Address, Any] = {}

    def join(self) -> None:
        """Have what it brings kept, for one who will wait for it."""
        if self._landed is None:
            self._landed = asyncio.get_running_loop().create_future()

    async def landed(self, seconds: float) -> None:
        """Wait until it has ended, for one who has joined: so long at the most, then it raises `Timeout`."""
        assert self._landed is not None
        # Not by awaiting the future itself: one reader's cancellation is not the others'.
        done, _ = await asyncio.wait([self._landed], timeout=seconds)
        if not done:
            raise Timeout("The store did not answer in time.")

    def end(self, addresses: Sequence[Address], values: Sequence[Any]) -> None:
        if self._landed is not None:
            self._told = dict(zip(addresses, values, strict=True))
            self._landed.set_result(None)

    def told(self, address: Address) -> Found | Exception | None:
        """What stands there, or what the store had against telling; raises `GivenUp` for any other end."""
        value: Found | BaseException | None = self._told[address]
        if value is None or isinstance(value, Found | Throttled | Unavailable):
            return value
        raise GivenUp


class GivenUp(Exception):
    """Whoever sent a read has gone, or failed with something of their own: it tells others nothing."""


class Kept:
    """An item, or the `parts` of one, that a flight brought a moment ago; `size` are its bytes of JSON."""

    __slots__ = ("began", "found", "number", "parts", "size")

    def __init__(self, found: Found, flight: Flight, parts: Parts) -> None:
        self.found = found
        self.began = flight.began
        self.number = flight.number
        self.parts = parts
        self.size = len(orjson.dumps(found.raw))


class SharedReads:
    """What the requests of a process share of the tables under one prefix.

    `sent` counts the flights. `news` is how many had been sent when the process was last told of a change.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._flights: dict[bool, dict[Address, Flight]] = {False: {}, True: {}}
        self._kept: dict[Address, Kept] = {}
        self._bytes = 0
        self.sent = 0
        self.news = 0

    def under_way(self, consistent: bool) -> KeysView[Address]:
        """What is being read."""
        return self._flights[consistent].keys()

    @property
    def kept_at(self) -> KeysView[Address]:
        """Of what something is kept."""
        return self._kept.keys()

    def flight(self, address: Address, consistent: bool, parts: Parts, since: int) -> Flight | None:
        """One that brings what is wanted of an item, joined: it was sent a moment ago, and after that many."""
        flight = self._flights[consistent].get(address)
        if flight is None or flight.number <= since or not self._is_recent(flight, JOINED_SECONDS):
            return None
        if not _covers(flight.narrowed.get(address[0]), parts):
            return None
        flight.join()
        return flight

    def kept(self, address: Address, seconds: float, parts: Parts, since: int) -> Kept | None:
        """What is known of an item for no longer than that, and was sent after that many."""
        kept = self._kept.get(address)
        if kept is None or kept.number <= since or not self._is_recent(kept, seconds):
            return None
        return kept if _covers(kept.parts, parts) else None

    def begin(self, addresses: Iterable[Address], consistent: bool, narrowed: Narrowed) -> Flight:
        """Note that these are sent now."""
        self.sent += 1
        flight = Flight(self._clock(), self.sent, narrowed)
        self._flights[consistent].update(dict.fromkeys(addresses, flight))
        return flight

    def end(
        self,
        flight: Flight,
        addresses: Sequence[Address],
        values: Sequence[Any],
        consistent: bool,
        keep: Collection[Address],
    ) -> None:
        """Note what they brought, in their order. What is there of `keep` is kept, unless it was written meanwhile."""
        flights = self._flights[consistent]
        for address, value in zip(addresses, values, strict=True):
            if flights.get(address) is not flight:
                continue
            del flights[address]
            # What is not there is not kept: once it comes it shall be seen.
            if address in keep and isinstance(value, Found):
                self._keep(address, Kept(value, flight, flight.narrowed.get(address[0])))
        flight.end(addresses, values)

    def written(self, address: Address) -> None:
        """An item was written, or may have been: what is under way may have missed it."""
        for flights in self._flights.values():
            flights.pop(address, None)
        self._drop(address)

    def changed(self, table: str, keys: Mapping[str, Any]) -> None:
        """The process was told of a change of an item, by the names and values of its key."""
        self.told()
        declared = _TABLES.get(table)
        if declared is not None:
            self.written((declared, key_of(declared, keys)))

    def told(self) -> None:
        """The process was told how something stands: what it shows beside it has to be as new."""
        self.news = self.sent

    def _is_recent(self, read: Flight | Kept, seconds: float) -> bool:
        # A clock that was set back makes nothing last longer.
        return 0 <= self._clock() - read.began < seconds

    def _keep(self, address: Address, kept: Kept) -> None:
        self._drop(address)
        self._kept[address] = kept
        self._bytes += kept.size
        # What is too old for anybody goes, so that requests which find nothing find that out quickly.
        while True:
            oldest = next(iter(self._kept))
            crowded = len(self._kept) > MOST_ITEMS or self._bytes > MOST_BYTES
            if not crowded and self._is_recent(self._kept[oldest], LONGEST_SECONDS):
                break
            self._drop(oldest)
            if not self._kept:
                break

    def _drop(self, address: Address) -> None:
        kept = self._kept.pop(address, None)
        if kept is not None:
            self._bytes -= kept.size


class ProcessReads:
    """One per process: the shared reads of each prefix, whose tables' names begin with it. Not `on`, there are none."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, on: bool = True) -> None:
        self._clock = clock
        self._on = on
        self._reads: dict[str, SharedReads] = {}

    def of(self, prefix: str) -> SharedReads | None:
        reads = self._reads.get(prefix)
        if reads is None and self._on:
            reads = self._reads[prefix] = SharedReads(self._clock)
        return reads

    def changed(self, prefix: str, table: str, keys: Mapping[str, Any]) -> None:
        """See `SharedReads.changed`."""
        reads = self.of(prefix)
        if reads is not None:
            reads.changed(table, keys)


def _covers(brought: Parts, wanted: Parts) -> bool:
    return brought is None or (wanted is not None and set(wanted) <= set(brought))
