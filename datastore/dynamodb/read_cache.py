"""Single-flight point reads and a short-lived read cache, shared by the requests of a process.

The request that sends a read is its owner: it is billed and may cancel the read. If it does, each waiter sends its own
read. A write of this process invalidates the item when the write is acknowledged, so no later request is served by a
read that may have missed the write.
"""

import asyncio
import math
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from datastore.dynamodb.records import LazyItem
from datastore.errors import Throttled, Timeout, Unavailable
from datastore.model.access_patterns import SHARED_MS, Table
from datastore.model.composite_keys import Key, key_of

# The maximum age of a cached item, and of a flight that other requests may join: an older one may hang.
MAX_AGE_SECONDS = SHARED_MS / 1000
# The cache's capacity in read units. Half a unit reads at most 4 KB of one item: these are 1,000 items or 4 MB.
MAX_CACHED_UNITS = 500.0
# How long after a write an eventually consistent read may return the previous item: "usually one second or less",
# https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.ReadConsistency.html
REPLICATION_SECONDS = 1.0

Address = tuple[Table, Key]
# The attributes that are read of an item, None for the whole item.
Projection = tuple[str, ...] | None
Projections = Mapping[Table, tuple[str, ...]]
WHOLE_ITEMS: Projections = MappingProxyType({})


class PointReadFlight(Struct, eq=False):
    """Point reads that one request has sent. Other requests may wait for them, or use them from the cache."""

    #: By the cache's clock.
    sent_at: float
    #: The number of flights up to this one.
    number: int
    addresses: Sequence[Address]
    consistent: bool
    #: The attributes that are read, for tables whose items are not read whole.
    projections: Projections = WHOLE_ITEMS
    #: The results, kept if they are cached or a request waits for them.
    values: Sequence[Any] | None = None
    #: Created for the first waiter. Done when the results have arrived.
    finished: asyncio.Future[None] | None = None
    #: The results by address, filled in at the first access.
    by_address: dict[Address, Any] | None = None

    def join(self) -> None:
        """Keep the results for a waiter. It calls `wait` later."""
        if self.finished is None:
            self.finished = asyncio.get_running_loop().create_future()

    @property
    def is_finished(self) -> bool:
        return self.finished is not None and self.finished.done()

    async def wait(self, seconds: float) -> None:
        """Wait for the results, after `join`. Raises `Timeout` after the given seconds."""
        assert self.finished is not None
        # Awaiting the future itself would cancel it with this waiter, for all other waiters too.
        done, _ = await asyncio.wait([self.finished], timeout=seconds)
        if not done:
            raise Timeout("The store did not answer in time.")

    def projection(self, address: Address) -> Projection:
        """Return the attributes that are read of an item."""
        return self.projections.get(address[0])

    def result(self, address: Address) -> LazyItem | Exception | None:
        """Return the item, None if it is missing, or the store's error.

        Raises `ReadAbandoned` for a failure that concerns the owner only, such as too little time for a retry.
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
    """The owner of a shared read cancelled it, or failed for a reason of its own."""


class ReadCache:
    """The shared point reads of the tables under one prefix.

    The cache is cleared as a whole, every `MAX_AGE_SECONDS` and when it is full, so that no item needs work of its own.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # By consistency: flights without results, and for eventual consistency also cached flights.
        self._flights: dict[bool, dict[Address, PointReadFlight]] = {False: {}, True: {}}
        self._units = 0.0
        self._cleared_at = clock()
        self._written_at: dict[Address, float] = {}
        self.flights_sent = 0
        #: The number of flights that had been sent when the process last received a change.
        self.watermark = 0

    def start_unless_shared(self, addresses: Sequence[Address], consistent: bool) -> PointReadFlight | None:
        """Register a flight, or return None if another flight or the cache holds any of the addresses."""
        now = self.now()
        reads = self._flights[consistent]
        if reads and not reads.keys().isdisjoint(addresses):
            return None
        return self.start(addresses, consistent, now)

    def start(self, addresses: Sequence[Address], consistent: bool, now: float) -> PointReadFlight:
        """Register a flight. It replaces other flights of its addresses."""
        self.flights_sent += 1
        flight = PointReadFlight(now, self.flights_sent, addresses, consistent)
        reads = self._flights[consistent]
        for address in addresses:
            reads[address] = flight
        return flight

    def finish(self, flight: PointReadFlight, values: Sequence[Any], units: float | None) -> None:
        """Register the results of a flight. With `units`, the consumed read units, the results are cached."""
        if units is None:
            reads = self._flights[flight.consistent]
            for address in flight.addresses:
                # This may delete a newer flight, which no request can join then. It costs at most one read.
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
        """Return the time, after clearing a cache that is too old."""
        now = self._clock()
        # A clock that was set back must not prolong the life of an entry.
        if not 0 <= now - self._cleared_at < MAX_AGE_SECONDS:
            self._cleared_at = now
            self._clear()
            if self._written_at:
                recent = {
                    address: at for address, at in self._written_at.items() if 0 <= now - at < REPLICATION_SECONDS
                }
                self._written_at = recent
        return now

    def in_flight(
        self, address: Address, consistent: bool, projection: Projection, after: int
    ) -> PointReadFlight | None:
        """Return a flight in progress that reads the projection of an item and has a number above `after`."""
        flight = self._flights[consistent].get(address)
        if flight is None or flight.values is not None:
            return None
        return flight if flight.number > after and _covers(flight.projection(address), projection) else None

    def cached(
        self, address: Address, seconds: float, projection: Projection, after: int, now: float
    ) -> PointReadFlight | None:
        """Return a finished flight that read the projection within `seconds` and has a number above `after`."""
        flight = self._flights[False].get(address)
        if flight is None or flight.values is None or now - flight.sent_at >= seconds:
            return None
        if flight.number <= after or not _covers(flight.projection(address), projection):
            return None
        if flight.sent_at - self._written_at.get(address, -math.inf) < REPLICATION_SECONDS:
            return None
        # A missing item is not cached, so that it is visible as soon as it is created.
        return flight if isinstance(flight.result(address), LazyItem) else None

    def invalidate_written(self, address: Address) -> None:
        """Drop an item that this process wrote, or may have written.

        Its reads that are in flight, or are sent within `REPLICATION_SECONDS`, are not cached: they may miss the write.
        """
        self._written_at[address] = self.now()
        self._drop(address)

    def invalidate_changed(self, table: Table, keys: Mapping[str, Any]) -> None:
        """Drop an item that a change feed reported as changed. `keys` holds its key attributes."""
        self.advance_watermark()
        self._drop((table, key_of(table, keys)))

    def advance_watermark(self) -> None:
        """Make later events use only reads that are sent from now on."""
        self.watermark = self.flights_sent

    def _drop(self, address: Address) -> None:
        for reads in self._flights.values():
            reads.pop(address, None)

    def _clear(self) -> None:
        self._flights = {False: {}, True: {}}
        self._units = 0.0


class ReadCaches:
    """The read caches of a client, one for each table prefix, or none if not `enabled`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, enabled: bool = True) -> None:
        self._clock = clock
        self._enabled = enabled
        self._caches: dict[str, ReadCache] = {}

    def for_prefix(self, prefix: str) -> ReadCache | None:
        if not self._enabled:
            return None
        if prefix not in self._caches:
            self._caches[prefix] = ReadCache(self._clock)
        return self._caches[prefix]

    def invalidate_changed(self, prefix: str, table: Table, keys: Mapping[str, Any]) -> None:
        """See `ReadCache.invalidate_changed`."""
        cache = self.for_prefix(prefix)
        if cache is not None:
            cache.invalidate_changed(table, keys)


def _covers(read: Projection, requested: Projection) -> bool:
    return read is None or (requested is not None and set(requested) <= set(read))
