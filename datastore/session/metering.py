"""The meter of one GraphQL request, which adds up its calls to DynamoDB, and its deadline."""

import math
import time
from collections.abc import Callable

from msgspec import Struct, field

from datastore.dynamodb.calls import WRITE_UNIT_COST, Call
from datastore.errors import BadUserInput, Timeout
from datastore.model.access_patterns import WRITES
from datastore.session.read_trace import SharedRead


class ReadTooMuch(BadUserInput):
    """The operation has read more than its limit. `extensions` hold the read units (`read`) and the `limit`."""

    def __init__(self, read: float, limit: float) -> None:
        super().__init__(
            f"The operation was stopped: it has consumed {read:,.1f} read units; its limit is {limit:,.1f}. Most of "
            "the items that it reads are filtered out: request smaller pages or time windows.",
            read=round(read, 1),
            limit=round(limit, 1),
        )


class Meter(Struct, eq=False):
    """The sum of one request's calls. Amounts are in read units."""

    calls: list[Call] = []
    #: Reads that needed no call. Recorded when the meter is `detailed`.
    hits: list[SharedRead] = []
    #: Whether the operation is explained, so that each read is traced to its field.
    detailed: bool = False
    #: The number of calls that have begun and not ended.
    open_calls: int = 0
    #: Units that are charged although no call of this request consumed them.
    deferred: float = 0.0
    #: The request may not read once it has consumed this amount.
    limit: float = math.inf
    #: Whether the limit ends with the first write, so that a mutation is not stopped halfway.
    completes_writes: bool = False
    spent: float = 0.0
    #: The error that stopped the request at its limit.
    stop_error: ReadTooMuch | None = None
    #: The number of items that are missing or hidden from the caller. Both are billed alike, so that the cost does not
    #: reveal whether a hidden item exists.
    withheld: int = 0

    def record(self, call: Call) -> None:
        """Add a call that has ended."""
        self.calls.append(call)
        self.spent += call.cost
        if self.completes_writes and call.may_have_written:
            self.limit = math.inf

    def check_limit(self, operation: str) -> None:
        """Raise `ReadTooMuch` if the limit forbids this call. Writes are always allowed: they finish a mutation."""
        if self.spent >= self.limit and not operation.startswith(WRITES):
            self.stop_error = ReadTooMuch(self.spent, self.limit)
            raise self.stop_error

    @property
    def units(self) -> float:
        return sum(call.units for call in self.calls)

    @property
    def is_complete(self) -> bool:
        """Whether all calls are billed: none is in flight, and none was abandoned."""
        if not self.calls:
            return self.open_calls == 0
        return self.open_calls == 0 and not any(call.abandoned for call in self.calls)

    @property
    def cost(self) -> float:
        """The units that the calls consumed, and the deferred ones."""
        return sum(call.cost for call in self.calls) + self.deferred

    def defer_writes(self, units: float) -> None:
        """Charge write units that are consumed after the response."""
        self.deferred += units * WRITE_UNIT_COST

    def charge(self, units: float) -> None:
        """Charge read units for work outside DynamoDB."""
        self.deferred += units

    def merge(self, other: "Meter") -> None:
        """Add the calls, units and hits of another meter."""
        self.calls += other.calls
        self.deferred += other.deferred
        self.hits += other.hits

    def take(self) -> "Meter":
        """Return a meter with the amounts so far, and reset this one."""
        taken = Meter()
        taken.calls, self.calls = self.calls, []
        taken.deferred, self.deferred = self.deferred, 0.0
        taken.withheld, self.withheld = self.withheld, 0
        self.spent = 0.0
        if self.detailed:
            # Clear the list in place: loaders hold a reference to it.
            taken.hits, taken.detailed = self.hits.copy(), True
            self.hits.clear()
        return taken


class Deadline(Struct, eq=False):
    """The moment at which a request is abandoned, `seconds` after it began."""

    seconds: float
    began_at: float = field(default_factory=time.monotonic)
    clock: Callable[[], float] = time.monotonic

    def remaining(self) -> float:
        """Return the seconds left. Raises `Timeout` once the deadline has passed."""
        remaining = self.began_at + self.seconds - self.clock()
        if remaining <= 0:
            raise Timeout(f"The request took longer than its {self.seconds:g} seconds.")
        return remaining
