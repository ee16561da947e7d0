"""Point reads that the requests of a process share: while they are on their way, and for a moment what they brought.

Who sends a read pays for it, and it is theirs: they may give it up, and whoever waits for it then reads for themselves.
What this process writes is dropped when the write is acknowledged: who asks later is served by no read that may have
missed it.
"""

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from datastore.dynamodb.lazy_item import LazyItem
from datastore.errors import Throttled, Timeout, Unavailable
from datastore.model.access_patterns import CROWD_MS, Table
from datastore.model.composite_keys import Key, key_of

# Nobody joins a read that was sent longer ago, which may hang, and nothing is kept for longer.
LONGEST_SECONDS = CROWD_MS / 1000
# Read units of what is kept: half a unit is one item of 4 KB at the most, so these are 1,000 items or 4 MB.
MOST_UNITS = 500.0
# For so long after a write an eventually consistent read may bring what was there before: "usually one second or less",
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.ReadConsistency.html
SETTLING_SECONDS = 1.0

Address = tuple[Table, Key]
# The attributes that are read of items, None where they are read whole.
Parts = tuple[str, ...] | None
Narrowed = Mapping[Table, tuple[str, ...]]
WHOLE: Narrowed = MappingProxyType({})


class ReadFreshness(Enum):
    """Which reads of others a request may be served by.

    NEW: those that were sent after it asked, and nothing that is kept. TOLD: what was sent after this process was told
    of the last change, for events: what they show may not be older than what they tell of. RECENT: whatever was sent a
    moment ago.
    """

    NEW = "new"
    TOLD = "told"
    RECENT = "recent"


class PointReadFlight(Struct, eq=False):
    """Point reads that one request has sent, as others wait for them or are served what they have brought.

    `began` is when, by the clock, and `number` its place among all that were sent. `narrowed` is what is read of the
    items of tables that are not read whole. `values` are there once it has ended and somebody may ask for them.
    """

    began: float
    number: int
    addresses: Sequence[Address]
    consistent: bool
    narrowed: Narrowed = WHOLE
    values: Sequence[Any] | None = None
    waited_for: asyncio.Future[None] | None = None
    by_address: dict[Address, Any] | None = None

    def join(self) -> None:
        """Have what it brings kept, for one who will wait for it."""
        if self.waited_for is None:
            self.waited_for = asyncio.get_running_loop().create_future()

    @property
    def has_landed(self) -> bool:
        return self.waited_for is not None and self.waited_for.done()

    async def landed(self, seconds: float) -> None:
        """Wait until it has ended, for one who has joined: so long at the most, then it raises `Timeout`."""
        assert self.waited_for is not None
        # Not by awaiting the future itself: one reader's cancellation is not the others'.
        done, _ = await asyncio.wait([self.waited_for], timeout=seconds)
        if not done:
            raise Timeout("The store did not answer in time.")

    def parts(self, address: Address) -> Parts:
        """What is read of an item."""
        return self.narrowed.get(address[0])

    def told(self, address: Address) -> LazyItem | Exception | None:
        """What stands there, or what the store had against telling; raises `GivenUp` for any other end.

        One is that who sent it had no time for another try.
        """
        if self.by_address is None:
            assert self.values is not None
            self.by_address = dict(zip(self.addresses, self.values, strict=True))
        value: LazyItem | BaseException | None = self.by_address[address]
        if value is None or isinstance(value, LazyItem):
            return value
        if isinstance(value, Throttled | Unavailable) and not value.out_of_time:
            return value
        raise GivenUp


class GivenUp(Exception):
    """Whoever sent a read has gone, or failed with something of their own: it tells others nothing."""


class ReadCache:
    """What the requests of a process share of the tables under one prefix.

    `sent` counts the flights. `news` is how many had been sent when the process was last told of a change.

    All of it is forgotten together, every `LONGEST_SECONDS` and when too much is kept: then nothing need be done for
    each item, and an item that is asked for all the time is read once between.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # What is read by the consistent reads and by the others, and of these what is kept.
        self._reads: dict[bool, dict[Address, PointReadFlight]] = {False: {}, True: {}}
        self._units = 0.0
        self._since = clock()
        self._written: dict[Address, float] = {}
        self.sent = 0
        self.news = 0

    def lone(self, addresses: Sequence[Address], consistent: bool) -> PointReadFlight | None:
        """Note that these are sent now; not where others read any of them: what they bring is to be looked at first."""
        now = self.now()
        reads = self._reads[consistent]
        if reads and not reads.keys().isdisjoint(addresses):
            return None
        return self.begin(addresses, consistent, now)

    def begin(self, addresses: Sequence[Address], consistent: bool, now: float) -> PointReadFlight:
        """Note that these are sent now, whatever others read."""
        self.sent += 1
        flight = PointReadFlight(now, self.sent, addresses, consistent)
        reads = self._reads[consistent]
        for address in addresses:
            reads[address] = flight
        return flight

    def end(self, flight: PointReadFlight, values: Sequence[Any], units: float | None) -> None:
        """Note what it brought. With `units`, the read units that it took, what was not written since is kept."""
        if units is None:
            reads = self._reads[flight.consistent]
            for address in flight.addresses:
                # If another has taken its place, nobody else joins that one: at the most it costs a read.
                if address in reads:
                    del reads[address]
        else:
            flight.values = values
            self._units += units
            if self._units > MOST_UNITS:
                self._forget()
        if flight.waited_for is not None:
            flight.values = values
            flight.waited_for.set_result(None)

    def now(self) -> float:
        """By the clock. From then on nothing is found here that is too old."""
        now = self._clock()
        # A clock that was set back makes nothing last longer.
        if not 0 <= now - self._since < LONGEST_SECONDS:
            self._since = now
            self._forget()
            if self._written:
                left = {address: at for address, at in self._written.items() if 0 <= now - at < SETTLING_SECONDS}
                self._written = left
        return now

    def under_way(self, address: Address, consistent: bool, parts: Parts, since: int) -> PointReadFlight | None:
        """A flight that will bring what is wanted of an item, and was sent after that many."""
        flight = self._reads[consistent].get(address)
        if flight is None or flight.values is not None:
            return None
        return flight if flight.number > since and _covers(flight.parts(address), parts) else None

    def kept(self, address: Address, seconds: float, parts: Parts, since: int, now: float) -> PointReadFlight | None:
        """One that has brought it no longer ago than that, and was sent after that many."""
        flight = self._reads[False].get(address)
        if flight is None or flight.values is None or now - flight.began >= seconds:
            return None
        if flight.number <= since or not _covers(flight.parts(address), parts):
            return None
        if flight.began - self._written.get(address, -math.inf) < SETTLING_SECONDS:
            return None
        # What is not there is not kept: once it comes it shall be seen.
        return flight if isinstance(flight.told(address), LazyItem) else None

    def written(self, address: Address) -> None:
        """An item was written here, or may have been: what is under way may have missed it, and what is sent soon."""
        self._written[address] = self.now()
        self._drop(address)

    def changed(self, table: Table, keys: Mapping[str, Any]) -> None:
        """Drop an item that has changed. `keys` are the names and values of its key."""
        self.told()
        self._drop((table, key_of(table, keys)))

    def told(self) -> None:
        """The process was told how something stands: what it shows beside it has to be as new."""
        self.news = self.sent

    def _drop(self, address: Address) -> None:
        for reads in self._reads.values():
            reads.pop(address, None)

    def _forget(self) -> None:
        self._reads = {False: {}, True: {}}
        self._units = 0.0


class ProcessReads:
    """One per process: the shared reads of each prefix, whose tables' names begin with it. Not `on`, there are none."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, on: bool = True) -> None:
        self._clock = clock
        self._on = on
        self._reads: dict[str, ReadCache] = {}

    def of(self, prefix: str) -> ReadCache | None:
        reads = self._reads.get(prefix)
        if reads is None and self._on:
            reads = self._reads[prefix] = ReadCache(self._clock)
        return reads

    def changed(self, prefix: str, table: Table, keys: Mapping[str, Any]) -> None:
        """See `ReadCache.changed`."""
        reads = self.of(prefix)
        if reads is not None:
            reads.changed(table, keys)


def _covers(brought: Parts, wanted: Parts) -> bool:
    return brought is None or (wanted is not None and set(wanted) <= set(brought))
