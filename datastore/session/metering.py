"""What one GraphQL request did to the store: every call, what it consumed, and how long it may still take."""

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from datastore.dynamodb.prepared_request import PreparedRequest
from datastore.errors import BadUserInput, Timeout
from datastore.explain.trace import CallDetails, SharedRead
from datastore.model.access_patterns import WRITES

# A write unit costs five times what a read unit does, on demand and in every region:
# https://aws.amazon.com/dynamodb/pricing/on-demand/
WRITE_UNIT_COST = 5


class Call(Struct, gc=False):
    """One DynamoDB request as it went over the wire; `units` are the capacity units it reported.

    There are thousands a second, hence not frozen: the client fills one in while it is on its way, and nobody changes
    it once it has ended. `sent` is what was sent, `request` the same as parsed JSON.
    `began` is when it was first sent, in epoch seconds; `seconds` how long it took with all tries. `unsure` tells that
    DynamoDB may have done what was asked although it did not say so. `patterns` are the ids of the access patterns that
    it serves, `failed` whether it brought nothing but an error; `details` are there when it is to be explained.
    `unreported` are the write units that DynamoDB bills for a condition that did not hold, and does not report.
    `abandoned` is one that was given up before it was answered: what it is billed nobody tells.
    `tried` is when its last try was made, in the loop's time; infinite between tries.
    """

    operation: str
    prepared: PreparedRequest
    patterns: tuple[str, ...] = ()
    started_at: float = 0.0
    attempts: int = 1
    seconds: float = 0.0
    units: float = 0.0
    failed: bool = False
    ambiguous: bool = False
    abandoned: bool = False
    unreported_units: float = 0.0
    details: CallDetails | None = None
    attempted_at: float = math.inf

    @property
    def tables(self) -> tuple[str, ...]:
        return self.prepared.tables

    @property
    def index(self) -> str | None:
        return self.prepared.index

    @property
    def request(self) -> Mapping[str, Any]:
        return self.prepared.payload

    @property
    def cost(self) -> float:
        """What it consumed, in read units, with what was not reported."""
        units = self.units + self.unreported_units
        return units * WRITE_UNIT_COST if self.operation.startswith(WRITES) else units

    @property
    def may_have_written(self) -> bool:
        """Whether it changed something, or may have: a condition that did not hold consumed, and changed, nothing."""
        return self.operation.startswith(WRITES) and (self.units > 0 or self.ambiguous)


class ReadTooMuch(BadUserInput):
    """An operation was stopped for what it had read. `extensions` hold what that was (`read`) and the `limit`."""

    def __init__(self, read: float, limit: float) -> None:
        super().__init__(
            f"The operation was stopped: it has read {read:,.1f} read units, far more than its estimate, and may read "
            f"{limit:,.1f}. Too much of what it looks at is not to be shown: ask for smaller pages or windows.",
            read=round(read, 1),
            limit=round(limit, 1),
        )


class Meter:
    """Adds up the calls of one request. When it is `detailed`, who asked for what is noted too.

    `open` counts the calls that have begun and not ended. Once it has consumed what it is `allowed`, in read units, it
    reads no more: `stopped` is what was told then. What `finishes` is not stopped any more once it has written.
    `withheld` counts the items that are missing or that the caller may not see: what they cost must not tell which.
    """

    __slots__ = (
        "calls",
        "completes_writes",
        "deferred",
        "detailed",
        "hits",
        "limit",
        "open_calls",
        "spent",
        "stop_error",
        "withheld",
    )

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.hits: list[SharedRead] = []
        self.detailed = False
        self.open_calls = 0
        self.deferred = 0.0
        self.limit = float("inf")
        self.completes_writes = False
        self.spent = 0.0
        self.stop_error: ReadTooMuch | None = None
        self.withheld = 0

    def record(self, call: Call) -> None:
        """Add a call that has ended."""
        self.calls.append(call)
        self.spent += call.cost
        if self.completes_writes and call.may_have_written:
            self.limit = float("inf")

    def check_limit(self, operation: str) -> None:
        """Raise `ReadTooMuch` where a call may not be made any more. Writes always may: they end what was begun."""
        if self.spent >= self.limit and not operation.startswith(WRITES):
            self.stop_error = ReadTooMuch(self.spent, self.limit)
            raise self.stop_error

    @property
    def units(self) -> float:
        return sum(call.units for call in self.calls)

    @property
    def is_complete(self) -> bool:
        """Whether the units are all that is billed: nothing is under way, and nothing was given up."""
        return self.open_calls == 0 and not any(call.abandoned for call in self.calls)

    @property
    def cost(self) -> float:
        """What was consumed, in read units, and what is written behind it."""
        return sum(call.cost for call in self.calls) + self.deferred

    def defer_writes(self, units: float) -> None:
        """Count write units that are consumed once nobody waits for them any more."""
        self.deferred += units * WRITE_UNIT_COST

    def charge(self, units: float) -> None:
        """Count read units for work that is no call of ours."""
        self.deferred += units

    def merge(self, other: "Meter") -> None:
        """Have what another added up, too."""
        self.calls += other.calls
        self.deferred += other.deferred
        self.hits += other.hits

    def drain(self) -> tuple[list[Call], float]:
        """The calls and what is written behind, of one that is not `detailed`; from now on it counts anew."""
        drained = self.calls, self.deferred
        self.calls, self.deferred, self.spent = [], 0.0, 0.0
        return drained

    def take(self) -> "Meter":
        """What was added up so far; from now on it counts anew."""
        taken = Meter()
        taken.calls, self.calls = self.calls, []
        taken.deferred, self.deferred = self.deferred, 0.0
        taken.withheld, self.withheld = self.withheld, 0
        self.spent = 0.0
        if self.detailed:
            # Emptied, not replaced: loaders keep the list.
            taken.hits, taken.detailed = self.hits.copy(), True
            self.hits.clear()
        return taken


class Deadline:
    """The moment by which a request must be done. `remaining` raises `Timeout` once it has passed."""

    __slots__ = ("_at", "_clock", "_seconds")

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seconds = seconds
        self._at = clock() + seconds

    def remaining(self) -> float:
        left = self._at - self._clock()
        if left <= 0:
            raise Timeout(f"The request took longer than its {self._seconds:g} seconds.")
        return left
