"""What became of a try: what DynamoDB's refusals mean, and what is worth another one.

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.Errors.html
"""

import math
from collections.abc import Mapping
from typing import Any

import orjson

from datastore.dynamodb.codec import Item, decode_item, stored_bytes
from datastore.dynamodb.http1 import ConnectionLost, NotConnected, ResponseTimeout
from datastore.dynamodb.retry.budget import LATE_RETRY, RETRY
from datastore.dynamodb.retry.circuit_breaker import UNREACHABLE
from datastore.errors import DomainError, Throttled, Timeout, Unavailable

# What botocore retries, too, as throttling and as passing.
# https://docs.aws.amazon.com/sdkref/latest/guide/feature-retry-behavior.html
THROTTLING = {
    "Throttling",
    "ThrottledException",
    "RequestThrottled",
    "RequestThrottledException",
    "TooManyRequestsException",
    "BandwidthLimitExceeded",
    "PriorRequestNotComplete",
    "SlowDown",
    "ProvisionedThroughputExceededException",
    "ThrottlingException",
    "RequestLimitExceeded",
    "LimitExceededException",
    "ReplicatedWriteConflictException",
    "TransactionConflictException",
    "TransactionInProgressException",
}
# The service did not hear the whole request in time.
NOT_HEARD = {"RequestTimeout", "RequestTimeoutException"}
# It was signed with credentials that are not good, or not any more, or at a time that is not the service's.
BADLY_SIGNED = {
    "AuthFailure",
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "InvalidToken",
    "RequestExpired",
    "RequestInTheFuture",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
    "UnrecognizedClientException",
}
# A cancelled transaction is tried again when this is all that stood in its way.
TRANSIENT_REASONS = {"None", "TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"}
# What the embedded engine says when its disk is full or read-only. It has written nothing of the request then, and
# another try a moment later would come to the same.
UNWRITABLE = ("database or disk is full", "attempt to write a readonly database")
NO_ROOM = "The store has no room left to write; nothing was written. Try again later."
NO_ROOM_SECONDS = 5
LATE = "The store did not answer in time."


class RequestRefused(Exception):
    """DynamoDB refused a request for what it says: a fault of ours, never retried. `code` is DynamoDB's own."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class SignatureRefused(RequestRefused):
    """A request was refused for how it was signed: with other credentials or at another time it may not be.

    `date` is the service's time as it sent it.
    """

    date: bytes | None = None


class ConditionFailed(Exception):
    """A condition did not hold; `item` is the item as it stands, when it was asked for and exists.

    `repeated` means that the answer to an earlier try was lost, so that the try itself may have put the item there.
    `units` are the write units that it is billed.
    """

    def __init__(self, item: Item | None, units: int) -> None:
        super().__init__("The conditional request failed")
        self.item = item
        self.units = units
        self.repeated = False


class TransactionCancelled(Exception):
    """A transaction was cancelled; one reason and one item (or None) for each of its actions, in order.

    `units` are the write units that it is billed. `repeated` means that the answer to an earlier try was lost.
    """

    def __init__(self, reasons: list[str], items: list[Item | None], units: int) -> None:
        super().__init__(f"Transaction cancelled: {', '.join(reasons)}")
        self.reasons = reasons
        self.items = items
        self.units = units
        self.repeated = False


class RetryableFailure(Exception):
    """Worth another try; `final` is what the caller is told when there is none left.

    `unsure` tells that DynamoDB may have done what was asked all the same, `stale` that the connection had been kept
    for too long: what only reads need not wait before it tries again. `unanswered` is one to which no answer came,
    `late` one for which that took its time. `price` is what another try costs.
    """

    def __init__(
        self,
        final: DomainError,
        *,
        unsure: bool = True,
        stale: bool = False,
        unanswered: bool = False,
        late: bool = False,
        price: int = RETRY,
    ) -> None:
        super().__init__(str(final))
        self.final = final
        self.unsure = unsure
        self.stale = stale
        self.unanswered = unanswered
        self.late = late
        self.price = LATE_RETRY if late else price


# What a try may come to that another one need not.
PASSING = (RetryableFailure, NotConnected, ResponseTimeout, ConnectionLost)
# The outcomes of a try after which another one is made: the same request, or the same signed again.
REPEATED = (*PASSING, SignatureRefused)


def transient_of(problem: Exception) -> RetryableFailure:
    """What became of a try, by how it failed."""
    match problem:
        case RetryableFailure():
            return problem
        case NotConnected(late=late):
            final = Timeout(LATE) if late else Unavailable(UNREACHABLE)
            transient = RetryableFailure(final, unsure=False, unanswered=True, late=late)
        case ConnectionLost(stale=stale):
            transient = RetryableFailure(Unavailable(UNREACHABLE), stale=stale, unanswered=not stale)
        case _:
            transient = RetryableFailure(Timeout(LATE), unanswered=True, late=True)
    transient.__cause__ = problem
    return transient


def refusal_of(status: int, content: bytes) -> Exception:
    """What an answer other than 200 means."""
    try:
        problem = orjson.loads(content)
        code = str(problem.get("__type", "")).rpartition("#")[2]
    except (orjson.JSONDecodeError, AttributeError):
        problem, code = {}, ""
    if code in THROTTLING or status == 429:
        return RetryableFailure(Throttled("The store is busy; try again in a moment."), unsure=False)
    if status >= 500 and any(words in str(problem.get("message")) for words in UNWRITABLE):
        return Unavailable(NO_ROOM, retryAfter=NO_ROOM_SECONDS)
    if status >= 500 or code in NOT_HEARD:
        return RetryableFailure(Unavailable("The store fails at the moment; try again."))
    if code == "ConditionalCheckFailedException":
        return ConditionFailed(_item(problem), _billed(problem))
    if code == "TransactionCanceledException":
        return _cancelled(problem.get("CancellationReasons") or [])
    refused = SignatureRefused if code in BADLY_SIGNED else RequestRefused
    return refused(code or str(status), str(problem.get("message") or problem.get("Message") or ""))


def _cancelled(reasons: list[dict[str, Any]]) -> Exception:
    codes = [str(reason.get("Code", "None")) for reason in reasons]
    if codes and set(codes) <= TRANSIENT_REASONS:
        return RetryableFailure(Throttled("Others are changing the same items; try again in a moment."), unsure=False)
    return TransactionCancelled(codes, [_item(reason) for reason in reasons], sum(map(_billed, reasons)))


def _billed(problem: Mapping[str, Any]) -> int:
    """Write units for a condition that did not hold: the size of the item that is there, at least one.

    DynamoDB reports none. Of the other items of a cancelled transaction nothing is told: they count for one each.
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html
    """
    return max(1, math.ceil(stored_bytes(problem.get("Item") or {}) / 1024))


def _item(problem: Mapping[str, Any]) -> Item | None:
    item = problem.get("Item")
    return decode_item(item) if item else None
