"""The record of a call to DynamoDB: the request, its retries, the consumed units and the reads that caused it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from msgspec import Struct

from datastore.dynamodb.requests import PreparedRequest
from datastore.errors import DomainError
from datastore.model.access_patterns import WRITES

# A write unit costs five times as much as a read unit, on demand and in every region:
# https://aws.amazon.com/dynamodb/pricing/on-demand/
WRITE_UNIT_COST = 5
ITEM_WRITES = frozenset({"PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "TransactWriteItems"})


@dataclass(slots=True, eq=False)
class TracedRead:
    """A read or write of one operation, recorded while the operation is explained."""

    #: The path of the first GraphQL field that caused it, None outside of all fields.
    field: str | None
    #: The id of the access pattern, or "".
    pattern: str
    table: str
    #: Whether the read was enqueued before a field requested it.
    prefetched: bool = False
    #: Whether a read of another operation returned the item.
    from_other_request: bool = False


@dataclass(frozen=True, slots=True)
class CallDetails:
    """The details of a call of an explained operation."""

    #: The reads that the call answers, in the order of its keys.
    traced: tuple[TracedRead, ...]
    #: Items read (ScannedCount).
    scanned: int
    #: Items returned (Count).
    returned: int
    #: Items put, updated or deleted.
    written: int
    #: Read and write units by the table's full name, or by None where DynamoDB does not name the table.
    units: Mapping[str | None, tuple[float, float]]


class Call(Struct, gc=False):
    """One DynamoDB request with all its attempts.

    The client fills it in while the request is in flight, and does not change it afterwards. It is not frozen, for
    speed.
    """

    operation: str
    #: The request of the latest attempt.
    prepared: PreparedRequest
    #: The ids of the access patterns that the call serves.
    patterns: tuple[str, ...] = ()
    #: When the first attempt was sent, in epoch seconds.
    started_at: float = 0.0
    attempts: int = 1
    #: The duration of all attempts, with the waits between them.
    seconds: float = 0.0
    #: The capacity units that DynamoDB reported.
    units: float = 0.0
    #: Whether all attempts failed.
    failed: bool = False
    #: Whether DynamoDB may have applied the request without confirming it.
    ambiguous: bool = False
    #: Whether the caller stopped waiting before the response arrived, so that the consumed units are unknown.
    abandoned: bool = False
    #: Write units that DynamoDB bills for a failed condition and does not report.
    unreported_units: float = 0.0
    #: The consumed units, reported and unreported, in read units.
    cost: float = 0.0
    #: Set only for explained operations.
    details: CallDetails | None = None
    #: When the latest attempt was sent, in the event loop's time; infinite between attempts.
    attempted_at: float = math.inf

    @property
    def tables(self) -> tuple[str, ...]:
        return self.prepared.tables

    @property
    def index(self) -> str | None:
        return self.prepared.index

    @property
    def request(self) -> Mapping[str, Any]:
        """The request as parsed JSON."""
        return self.prepared.payload

    @property
    def may_have_written(self) -> bool:
        """Whether the call changed an item, or may have. A failed condition consumes units and changes nothing."""
        return self.operation.startswith(WRITES) and (self.units > 0 or self.ambiguous)


class CallMeter(Protocol):
    """A meter that the client reports one request's calls to."""

    #: The number of calls that have begun and not ended.
    open_calls: int

    def check_limit(self, operation: str, /) -> None:
        """Raise an error if the request may not make this call."""

    def record(self, call: Call, /) -> None:
        """Add a call that has ended."""


def with_retry_hints(problem: DomainError, call: Call) -> DomainError:
    """Mark the error of an ambiguous write: the caller must not simply repeat the write."""
    if call.ambiguous and call.operation.startswith(WRITES):
        problem.extensions.pop("retryAfter", None)
        problem.extensions |= {"retryable": False, "mayHaveBeenApplied": True}
    return problem


def consumed_units(response: Mapping[str, Any]) -> float:
    """Return the capacity units that a response reports, over all tables."""
    if "ConsumedCapacity" not in response:
        return 0.0
    consumed = response["ConsumedCapacity"]
    if consumed.__class__ is dict:
        return float(consumed["CapacityUnits"]) if "CapacityUnits" in consumed else 0.0
    return float(sum([entry.get("CapacityUnits", 0.0) for entry in consumed or ()]))


def call_details(
    operation: str, payload: Mapping[str, Any], response: Mapping[str, Any], traced: tuple[TracedRead, ...]
) -> CallDetails:
    """Return the details of a call. The response of a failed call is empty."""
    returned = _returned(response)
    return CallDetails(
        traced,
        scanned=int(response.get("ScannedCount", returned)),
        returned=returned,
        written=_written(operation, payload, response) if response else 0,
        units=_units_by_table(operation, response),
    )


def _returned(response: Mapping[str, Any]) -> int:
    if "Count" in response:
        return int(response["Count"])
    if "Responses" in response:
        return sum(map(len, response["Responses"].values()))
    return 1 if response.get("Item") else 0


def _written(operation: str, payload: Mapping[str, Any], response: Mapping[str, Any]) -> int:
    if not operation.startswith(WRITES):
        return 0
    if operation == "BatchWriteItem":
        unprocessed = response.get("UnprocessedItems") or {}
        return sum(map(len, payload["RequestItems"].values())) - sum(map(len, unprocessed.values()))
    if operation == "TransactWriteItems":
        return sum("ConditionCheck" not in action for action in payload["TransactItems"])
    return 1


def _units_by_table(operation: str, response: Mapping[str, Any]) -> dict[str | None, tuple[float, float]]:
    """Return read and write units. DynamoDB separates them for transactions only; other calls consume one kind."""
    consumed = response.get("ConsumedCapacity") or ()
    by_table: dict[str | None, tuple[float, float]] = {}
    for entry in [consumed] if isinstance(consumed, dict) else consumed:
        units = float(entry.get("CapacityUnits", 0.0))
        default = 0.0 if "ReadCapacityUnits" in entry or not operation.startswith(WRITES) else units
        written = float(entry.get("WriteCapacityUnits", default))
        read, before = units - written, by_table.get(entry.get("TableName"), (0.0, 0.0))
        by_table[entry.get("TableName")] = before[0] + read, before[1] + written
    return by_table
