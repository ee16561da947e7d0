"""The trace of an explained operation: which field caused which call (see `datastore.explain.report`)."""

from collections.abc import Hashable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass

from msgspec import Struct

from datastore.dynamodb.calls import TracedRead
from datastore.model.access_patterns import AccessPattern

# The field that is being resolved, as a path without list positions: `homeFeed.nodes.post.author`.
current_field: ContextVar[str | None] = ContextVar("current_field", default=None)


@dataclass(frozen=True, slots=True)
class SharedRead:
    """A read that needed no call of its own."""

    field: str | None
    pattern: str
    #: The read that fetched the result, None for the result of a write or of another operation.
    traced: TracedRead | None


class ReadTrace(Struct, eq=False):
    """The reads of a loader, which sends each once, and the hits of repeated reads."""

    _hits: list[SharedRead]
    _reads: dict[Hashable, TracedRead] = {}
    _written: set[Hashable] = set()

    def record(self, address: Hashable, pattern: AccessPattern, *, is_loaded: bool, prefetched: bool = False) -> None:
        """Record a read by the current field.

        `is_loaded` says that the loader has the result or that the read is in flight.
        """
        if not is_loaded:
            self._written.discard(address)
            self._reads[address] = TracedRead(current_field.get(), pattern.id, pattern.table.name, prefetched)
            return
        read = self._reads.get(address)
        if prefetched:
            return
        if read is not None and read.prefetched:
            read.field, read.prefetched = current_field.get(), False
            if read.from_other_request:
                self._hits.append(SharedRead(read.field, pattern.id, read))
        else:
            self._hits.append(SharedRead(current_field.get(), pattern.id, None if address in self._written else read))

    def traced(self, addresses: Iterable[Hashable]) -> tuple[TracedRead, ...]:
        """Return the recorded reads of the addresses, in their order."""
        return tuple(self._reads[address] for address in addresses)

    def mark_shared(self, address: Hashable) -> None:
        """Record that a read of another operation returned the item."""
        read = self._reads[address]
        read.from_other_request = True
        if not read.prefetched:
            self._hits.append(SharedRead(read.field, read.pattern, read))

    def mark_written(self, address: Hashable) -> None:
        """Record that later hits of the address use the result of a write."""
        self._written.add(address)
