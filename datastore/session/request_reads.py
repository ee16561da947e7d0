"""One request's share of the point reads of other requests of its process (see `read_cache`)."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from datastore.dynamodb.lazy_item import LazyItem
from datastore.errors import Timeout
from datastore.session.metering import Deadline
from datastore.session.read_cache import Address, GivenUp, Parts, PointReadFlight, ReadCache, ReadFreshness

Value = LazyItem | BaseException | None


class RequestReads:
    """Of one loader. `may_keep` are the addresses whose patterns say so, each with for how many milliseconds.

    `asked_after` is how many reads the process had sent when the request asked last: whoever lets nothing older count
    has it noted (`notes`).
    """

    def __init__(self, shared: ReadCache, consistent: bool, sharing: ReadFreshness, deadline: Deadline) -> None:
        self._consistent = consistent
        self._sharing = ReadFreshness.NEW if consistent else sharing
        self._deadline = deadline
        self._served_by_kept: set[Address] = set()
        self.shared = shared
        self.notes = self._sharing is ReadFreshness.NEW
        self.asked_after = 0
        self.may_keep: dict[Address, int] = {}

    def is_for_all(self, address: Address) -> bool:
        """Whether a read that is known, or on its way, is for those too who may not be shown what is kept."""
        self.may_keep.pop(address, None)  # what is not sent yet will be
        if address not in self._served_by_kept:
            return True
        self._served_by_kept.discard(address)
        return False

    async def values(
        self,
        addresses: Sequence[Address],
        read: Callable[[PointReadFlight, "RequestReads"], Awaitable[list[Any]]],
        parts: Callable[[Address], Parts],
        told: Callable[[Address, Parts], None],
    ) -> list[Value]:
        """What stands at each: read by others, or by `read` what nobody reads.

        `parts` tells what is wanted of an item, and what others have read of it is `told`.
        """
        values: dict[Address, Value] = {}
        left = addresses
        while left:
            own: list[Address] = []
            others: dict[Address, PointReadFlight] = {}
            now = self.shared.now()
            for address in left:
                wanted = parts(address)
                if (kept := self._kept(address, wanted, now)) is not None:
                    self._served_by_kept.add(address)
                    values[address] = kept.told(address)
                    told(address, kept.parts(address))
                elif (other := self._under_way(address, wanted)) is not None:
                    other.join()
                    others[address] = other
                else:
                    own.append(address)
            if own:
                flight = self.shared.begin(own, self._consistent, now)
                values |= zip(own, await _tried(read(flight, self), len(own)), strict=True)
            left = []
            for address, other in others.items():
                try:
                    values[address] = await self._brought(address, other)
                except GivenUp:
                    left.append(address)
                else:
                    told(address, other.parts(address))
        return [values[address] for address in addresses]

    def _kept(self, address: Address, parts: Parts, now: float) -> PointReadFlight | None:
        milliseconds = 0 if self.notes else self.may_keep.get(address, 0)
        return self.shared.kept(address, milliseconds / 1000, parts, self._since, now) if milliseconds else None

    def _under_way(self, address: Address, parts: Parts) -> PointReadFlight | None:
        return self.shared.under_way(address, self._consistent, parts, self._since)

    @property
    def _since(self) -> int:
        """Whatever serves this one was sent after so many."""
        if self.notes:
            return self.asked_after
        return self.shared.news if self._sharing is ReadFreshness.TOLD else 0

    async def _brought(self, address: Address, other: PointReadFlight) -> Value:
        # What is there is there, also when one's own read has taken until the deadline.
        if not other.has_landed:
            try:
                await other.landed(self._deadline.remaining())
            except Timeout as late:
                return late
        return other.told(address)


async def _tried(reading: Awaitable[list[Any]], count: int) -> list[Any]:
    """A failure of what was sent is not one of what others bring."""
    try:
        return await reading
    except Exception as problem:
        return [problem] * count
