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
MAX_AGE_SECONDS = CROWD_MS / 1000
# Read units of what is kept: half a unit is one item of 4 KB at the most, so these are 1,000 items or 4 MB.
MAX_CACHED_UNITS = 500.0
# For so long after a write an eventually consistent read may bring what was there before: "usually one second or less",
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.ReadConsistency.html
REPLICATION_SECONDS = 1.0

Address = tuple[Table, Key]
# The attributes that are read of items, None where they are read whole.
Projection = tuple[str, ...] | None
Projections = Mapping[Table, tuple[str, ...]]
WHOLE_ITEMS: Projections = MappingProxyType({})


class ReadFreshness(Enum):
    """Which reads of others a request may be served by.

    NEW: those that were sent after it asked, and nothing that is kept. TOLD: what was sent after this process was told
    of the last change, for events: what they show may not be older than what they tell of. RECENT: whatever was sent a
    moment ago.
    """

    OWN = "new"
    AFTER_LAST_EVENT = "told"
    CACHED = "recent"


class PointReadFlight(Struct, eq=False):
    """Point reads that one request has sent, as others wait for them or are served what they have brought.

    `began` is when, by the clock, and `number` its place among all that were sent. `narrowed` is what is read of the
    items of tables that are not read whole. `values` are there once it has ended and somebody may ask for them.
    """

    sent_at: float
    number: int
    addresses: Sequence[Address]
    consistent: bool
    projections: Projections = WHOLE_ITEMS
    values: Sequence[Any] | None = None
    finished: asyncio.Future[None] | None = None
    by_address: dict[Address, Any] | None = None

    def join(self) -> None:
        """Have what it brings kept, for one who will wait for it."""
        if self.finished is None:
            self.finished = asyncio.get_running_loop().create_future()

    @property
    def is_finished(self) -> bool:
        return self.finished is not None and self.finished.done()

    async def wait(self, seconds: float) -> None:
        """Wait until it has ended, for one who has joined: so long at the most, then it raises `Timeout`."""
        assert self.finished is not None
        # Not by awaiting the future itself: one reader's cancellation is not the others'.
        done, _ = await asyncio.wait([self.finished], timeout=seconds)
        if not done:
            raise Timeout("The store did not answer in time.")

    def projection(self, address: Address) -> Projection:
        """What is read of an item."""
        return self.projections.get(address[0])

    def result(self, address: Address) -> LazyItem | Exception | None:
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
        raise ReadAbandoned


class ReadAbandoned(Exception):
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
        self._flights: dict[bool, dict[Address, PointReadFlight]] = {False: {}, True: {}}
        self._units = 0.0
        self._cleared_at = clock()
        self._written_at: dict[Address, float] = {}
        self.flights_sent = 0
        self.watermark = 0

    def start_unless_shared(self, addresses: Sequence[Address], consistent: bool) -> PointReadFlight | None:
        """Note that these are sent now; not where others read any of them: what they bring is to be looked at first."""
        now = self.now()
        reads = self._flights[consistent]
        if reads and not reads.keys().isdisjoint(addresses):
            return None
        return self.start(addresses, consistent, now)

    def start(self, addresses: Sequence[Address], consistent: bool, now: float) -> PointReadFlight:
        """Note that these are sent now, whatever others read."""
        self.flights_sent += 1
        flight = PointReadFlight(now, self.flights_sent, addresses, consistent)
        reads = self._flights[consistent]
        for address in addresses:
            reads[address] = flight
        return flight

    def finish(self, flight: PointReadFlight, values: Sequence[Any], units: float | None) -> None:
        """Note what it brought. With `units`, the read units that it took, what was not written since is kept."""
        if units is None:
            reads = self._flights[flight.consistent]
            for address in flight.addresses:
                # If another has taken its place, nobody else joins that one: at the most it costs a read.
                if address in reads:
                    del reads[address]
        else:
            flight.values = values
            self._units += units
            if self._units > MAX_CACHED_UNITS:
                self._clear()
        if flight.finished is not None:
            flight.values = values
            flight.finished.set_result(None)

    def now(self) -> float:
        """By the clock. From then on nothing is found here that is too old."""
        now = self._clock()
        # A clock that was set back makes nothing last longer.
        if not 0 <= now - self._cleared_at < MAX_AGE_SECONDS:
            self._cleared_at = now
            self._clear()
            if self._written_at:
                left = {address: at for address, at in self._written_at.items() if 0 <= now - at < REPLICATION_SECONDS}
                self._written_at = left
        return now

    def in_flight(
        self, address: Address, consistent: bool, projection: Projection, after: int
    ) -> PointReadFlight | None:
        """A flight that will bring what is wanted of an item, and was sent after that many."""
        flight = self._flights[consistent].get(address)
        if flight is None or flight.values is not None:
            return None
        return flight if flight.number > after and _covers(flight.projection(address), projection) else None

    def cached(
        self, address: Address, seconds: float, projection: Projection, after: int, now: float
    ) -> PointReadFlight | None:
        """One that has brought it no longer ago than that, and was sent after that many."""
        flight = self._flights[False].get(address)
        if flight is None or flight.values is None or now - flight.sent_at >= seconds:
            return None
        if flight.number <= after or not _covers(flight.projection(address), projection):
            return None
        if flight.sent_at - self._written_at.get(address, -math.inf) < REPLICATION_SECONDS:
            return None
        # What is not there is not kept: once it comes it shall be seen.
        return flight if isinstance(flight.result(address), LazyItem) else None

    def invalidate_written(self, address: Address) -> None:
        """An item was written here, or may have been: what is under way may have missed it, and what is sent soon."""
        self._written_at[address] = self.now()
        self._drop(address)

    def invalidate_changed(self, table: Table, keys: Mapping[str, Any]) -> None:
        """Drop an item that has changed. `keys` are the names and values of its key."""
        self.advance_watermark()
        self._drop((table, key_of(table, keys)))

    def advance_watermark(self) -> None:
        """The process was told how something stands: what it shows beside it has to be as new."""
        self.watermark = self.flights_sent

    def _drop(self, address: Address) -> None:
        for reads in self._flights.values():
            reads.pop(address, None)

    def _clear(self) -> None:
        self._flights = {False: {}, True: {}}
        self._units = 0.0


class ReadCaches:
    """One per process: the shared reads of each prefix, whose tables' names begin with it. Not `on`, there are none."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, enabled: bool = True) -> None:
        self._clock = clock
        self._enabled = enabled
        self._caches: dict[str, ReadCache] = {}

    def for_prefix(self, prefix: str) -> ReadCache | None:
        cache = self._caches.get(prefix)
        if cache is None and self._enabled:
            cache = self._caches[prefix] = ReadCache(self._clock)
        return cache

    def invalidate_changed(self, prefix: str, table: Table, keys: Mapping[str, Any]) -> None:
        """See `ReadCache.changed`."""
        cache = self.for_prefix(prefix)
        if cache is not None:
            cache.invalidate_changed(table, keys)


def _covers(read: Projection, requested: Projection) -> bool:
    return read is None or (requested is not None and set(requested) <= set(read))
