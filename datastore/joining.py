"""What one request is served of the reads that others of its process have sent (see `shared_reads`)."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from datastore.errors import Timeout
from datastore.found import Found
from datastore.metering import Deadline
from datastore.shared_reads import Address, Flight, GivenUp, Kept, Narrowed, Parts, SharedReads, Sharing

Value = Found | BaseException | None
WHOLE: Narrowed = {}


class Joiner:
    """Of one loader. `may_keep` are the addresses whose patterns say so, each with for how many milliseconds.

    `asked_after` is how many reads the process had sent when the request asked last: whoever lets nothing older count
    has it noted (`notes`).
    """

    def __init__(self, shared: SharedReads, consistent: bool, sharing: Sharing, deadline: Deadline) -> None:
        self._consistent = consistent
        self._sharing = Sharing.NEW if consistent else sharing
        self._deadline = deadline
        self._served_by_kept: set[Address] = set()
        self.shared = shared
        self.notes = self._sharing is Sharing.NEW
        self.asked_after = 0
        self.may_keep: dict[Address, int] = {}

    def is_for_all(self, address: Address) -> bool:
        """Whether a read that is known, or on its way, is for those too who may not be shown what is kept."""
        self.may_keep.pop(address, None)  # what is not sent yet will be
        if address not in self._served_by_kept:
            return True
        self._served_by_kept.discard(address)
        return False

    def finds_none(self, addresses: Sequence[Address]) -> bool:
        """Whether there is nothing that others read, as is the rule: told at little cost."""
        shared = self.shared
        if self.may_keep and not self.notes and not shared.kept_at.isdisjoint(addresses):
            return False
        under_way = shared.under_way(self._consistent)
        return not under_way or under_way.isdisjoint(addresses)

    async def values(
        self,
        addresses: Sequence[Address],
        read: Callable[[Sequence[Address]], Awaitable[list[Any]]],
        parts: Callable[[Address], Parts],
        told: Callable[[Address, Parts], None],
    ) -> list[Value]:
        """What stands at each: read by others, or by `read` what nobody reads.

        `parts` tells what is wanted of an item, and what others have read of it is `told`.
        """
        values: dict[Address, Value] = {}
        left = addresses
        while left:
            others = {address: found for address in left if (found := self._others(address, parts(address)))}
            own = [address for address in left if address not in others]
            if own:
                values |= zip(own, await _tried(read, own), strict=True)
            left = []
            for address, other in others.items():
                try:
                    values[address] = await self._brought(address, other)
                except GivenUp:
                    left.append(address)
                else:
                    told(address, other.parts if isinstance(other, Kept) else other.narrowed.get(address[0]))
        return [values[address] for address in addresses]

    def begin(self, addresses: Sequence[Address], narrowed: Narrowed) -> Flight:
        return self.shared.begin(addresses, self._consistent, narrowed)

    def end(self, flight: Flight, addresses: Sequence[Address], values: Sequence[Value]) -> None:
        self.shared.end(flight, addresses, values, self._consistent, self.may_keep)

    def _others(self, address: Address, parts: Parts) -> Flight | Kept | None:
        shared = self.shared
        since = self.asked_after if self.notes else shared.news if self._sharing is Sharing.TOLD else 0
        milliseconds = 0 if self.notes else self.may_keep.get(address, 0)
        kept = shared.kept(address, milliseconds / 1000, parts, since) if milliseconds else None
        return kept or shared.flight(address, self._consistent, parts, since)

    async def _brought(self, address: Address, other: Flight | Kept) -> Value:
        if isinstance(other, Kept):
            self._served_by_kept.add(address)
            return other.found
        try:
            await other.landed(self._deadline.remaining())
        except Timeout as late:
            return late
        return other.told(address)


async def _tried(read: Callable[[Sequence[Address]], Awaitable[list[Any]]], own: Sequence[Address]) -> list[Any]:
    """A failure of what was sent is not one of what others bring."""
    try:
        return await read(own)
    except Exception as problem:
        return [problem] * len(own)
