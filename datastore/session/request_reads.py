"""A request's use of point reads that other requests of the process send (see `datastore.dynamodb.read_cache`)."""

from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Any

from datastore.dynamodb.read_cache import Address, PointReadFlight, Projection, ReadAbandoned, ReadCache
from datastore.dynamodb.records import LazyItem
from datastore.errors import Timeout
from datastore.session.metering import Deadline

Value = LazyItem | BaseException | None


class ReadFreshness(Enum):
    """The reads of other requests that may serve a request."""

    #: Reads that were sent after the request issued its own. No cached item.
    OWN = "own"
    #: Reads that were sent after the process received its latest change. For events, which must not show older data
    #: than the change that they announce.
    AFTER_LAST_EVENT = "after last event"
    #: Any recent read.
    CACHED = "cached"


class RequestReads:
    """The view that one loader has of the shared reads."""

    def __init__(self, cache: ReadCache, consistent: bool, freshness: ReadFreshness, deadline: Deadline) -> None:
        self._consistent = consistent
        self._freshness = ReadFreshness.OWN if consistent else freshness
        self._deadline = deadline
        self._served_from_cache: set[Address] = set()
        self.cache = cache
        #: Whether the loader must set `watermark` at each of its reads.
        self.tracks_order = self._freshness is ReadFreshness.OWN
        #: The number of flights that the process had sent at the loader's latest read.
        self.watermark = 0
        #: Milliseconds for which a cached item may serve the read, for patterns that allow it.
        self.ttl_by_address: dict[Address, int] = {}

    def is_usable_uncached(self, address: Address) -> bool:
        """Return whether an earlier read of the request serves a pattern that accepts no cached item.

        A read of the address that is still queued bypasses the cache from now on.
        """
        self.ttl_by_address.pop(address, None)
        if address not in self._served_from_cache:
            return True
        self._served_from_cache.discard(address)
        return False

    async def load(
        self,
        addresses: Sequence[Address],
        fetch: Callable[[PointReadFlight], Awaitable[list[Any]]],
        projection_of: Callable[[Address], Projection],
        on_shared_hit: Callable[[Address, Projection], None],
    ) -> list[Value]:
        """Return the values at the addresses, from the cache, from flights of other requests, and from `fetch`.

        `projection_of` returns the attributes that this request needs of an item. `on_shared_hit` receives the
        attributes that another request has read of it.
        """
        values: dict[Address, Value] = {}
        remaining = addresses
        while remaining:
            own: list[Address] = []
            shared: dict[Address, PointReadFlight] = {}
            now = self.cache.now()
            for address in remaining:
                projection = projection_of(address)
                if (cached := self._cached(address, projection, now)) is not None:
                    self._served_from_cache.add(address)
                    values[address] = cached.result(address)
                    on_shared_hit(address, cached.projection(address))
                elif (in_flight := self._in_flight(address, projection)) is not None:
                    in_flight.join()
                    shared[address] = in_flight
                else:
                    own.append(address)
            if own:
                flight = self.cache.start(own, self._consistent, now)
                values |= zip(own, await _errors_as_values(fetch(flight), len(own)), strict=True)
            remaining = []
            for address, flight in shared.items():
                try:
                    values[address] = await self._result(address, flight)
                except ReadAbandoned:
                    remaining.append(address)
                else:
                    on_shared_hit(address, flight.projection(address))
        return [values[address] for address in addresses]

    def _cached(self, address: Address, projection: Projection, now: float) -> PointReadFlight | None:
        milliseconds = 0 if self.tracks_order else self.ttl_by_address.get(address, 0)
        return (
            self.cache.cached(address, milliseconds / 1000, projection, self._minimum_number, now)
            if milliseconds
            else None
        )

    def _in_flight(self, address: Address, projection: Projection) -> PointReadFlight | None:
        return self.cache.in_flight(address, self._consistent, projection, self._minimum_number)

    @property
    def _minimum_number(self) -> int:
        """The number that a flight must exceed to serve this request."""
        if self.tracks_order:
            return self.watermark
        return self.cache.watermark if self._freshness is ReadFreshness.AFTER_LAST_EVENT else 0

    async def _result(self, address: Address, flight: PointReadFlight) -> Value:
        # A finished flight is used even if the deadline has passed during the request's own read.
        if not flight.is_finished:
            try:
                await flight.wait(self._deadline.remaining())
            except Timeout as late:
                return late
        return flight.result(address)


async def _errors_as_values(reading: Awaitable[list[Any]], count: int) -> list[Any]:
    """Return the values, or the error in the place of each, so that it does not fail the reads of other flights."""
    try:
        return await reading
    except Exception as problem:
        return [problem] * count
