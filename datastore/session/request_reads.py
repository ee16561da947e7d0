"""One request's share of the point reads of other requests of its process (see `read_cache`)."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from datastore.dynamodb.lazy_item import LazyItem
from datastore.errors import Timeout
from datastore.session.metering import Deadline
from datastore.session.read_cache import Address, PointReadFlight, Projection, ReadAbandoned, ReadCache, ReadFreshness

Value = LazyItem | BaseException | None


class RequestReads:
    """Of one loader. `may_keep` are the addresses whose patterns say so, each with for how many milliseconds.

    `asked_after` is how many reads the process had sent when the request asked last: whoever lets nothing older count
    has it noted (`notes`).
    """

    def __init__(self, cache: ReadCache, consistent: bool, freshness: ReadFreshness, deadline: Deadline) -> None:
        self._consistent = consistent
        self._freshness = ReadFreshness.OWN if consistent else freshness
        self._deadline = deadline
        self._served_from_cache: set[Address] = set()
        self.cache = cache
        self.tracks_order = self._freshness is ReadFreshness.OWN
        self.watermark = 0
        self.ttl_by_address: dict[Address, int] = {}

    def is_usable_uncached(self, address: Address) -> bool:
        """Whether a read that is known, or on its way, is for those too who may not be shown what is kept."""
        self.ttl_by_address.pop(address, None)  # what is not sent yet will be
        if address not in self._served_from_cache:
            return True
        self._served_from_cache.discard(address)
        return False

    async def load(
        self,
        addresses: Sequence[Address],
        fetch: Callable[[PointReadFlight, "RequestReads"], Awaitable[list[Any]]],
        projection_of: Callable[[Address], Projection],
        on_shared_hit: Callable[[Address, Projection], None],
    ) -> list[Value]:
        """What stands at each: read by others, or by `read` what nobody reads.

        `parts` tells what is wanted of an item, and what others have read of it is `told`.
        """
        values: dict[Address, Value] = {}
        left = addresses
        while left:
            own: list[Address] = []
            others: dict[Address, PointReadFlight] = {}
            now = self.cache.now()
            for address in left:
                projection = projection_of(address)
                if (cached := self._cached(address, projection, now)) is not None:
                    self._served_from_cache.add(address)
                    values[address] = cached.result(address)
                    on_shared_hit(address, cached.projection(address))
                elif (other := self._in_flight(address, projection)) is not None:
                    other.join()
                    others[address] = other
                else:
                    own.append(address)
            if own:
                flight = self.cache.start(own, self._consistent, now)
                values |= zip(own, await _errors_as_values(fetch(flight, self), len(own)), strict=True)
            left = []
            for address, other in others.items():
                try:
                    values[address] = await self._result(address, other)
                except ReadAbandoned:
                    left.append(address)
                else:
                    on_shared_hit(address, other.projection(address))
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
        """Whatever serves this one was sent after so many."""
        if self.tracks_order:
            return self.watermark
        return self.cache.watermark if self._freshness is ReadFreshness.AFTER_LAST_EVENT else 0

    async def _result(self, address: Address, other: PointReadFlight) -> Value:
        # What is there is there, also when one's own read has taken until the deadline.
        if not other.is_finished:
            try:
                await other.wait(self._deadline.remaining())
            except Timeout as late:
                return late
        return other.result(address)


async def _errors_as_values(reading: Awaitable[list[Any]], count: int) -> list[Any]:
    """A failure of what was sent is not one of what others bring."""
    try:
        return await reading
    except Exception as problem:
        return [problem] * count
