"""What became of a try: what DynamoDB's refusals mean, and what is worth another one.

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.Errors.html
"""

import math
from collections.abc import Mapping
from typing import Any

import orjson

from datastore.dynamodb.codec import Item, decode_item, item_bytes
from datastore.dynamodb.http1 import ConnectionLost, NotConnected, ResponseTimeout
from datastore.dynamodb.retry.budget import RETRY_COST, TIMEOUT_RETRY_COST
from datastore.dynamodb.retry.circuit_breaker import UNREACHABLE
from datastore.errors import DomainError, Throttled, Timeout, Unavailable

# What botocore retries, too, as throttling and as passing.
# https://docs.aws.amazon.com/sdkref/latest/guide/feature-retry-behavior.html
THROTTLING_CODES = {
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
REQUEST_TIMEOUT_CODES = {"RequestTimeout", "RequestTimeoutException"}
# It was signed with credentials that are not good, or not any more, or at a time that is not the service's.
SIGNATURE_CODES = {
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
DISK_FULL_MESSAGES = ("database or disk is full", "attempt to write a readonly database")
DISK_FULL = "The store has no room left to write; nothing was written. Try again later."
DISK_FULL_RETRY_SECONDS = 5
NO_ANSWER_IN_TIME = "The store did not answer in time."


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
        self.is_retry = False


class TransactionCancelled(Exception):
    """A transaction was cancelled; one reason and one item (or None) for each of its actions, in order.

    `units` are the write units that it is billed. `repeated` means that the answer to an earlier try was lost.
    """

    def __init__(self, reasons: list[str], items: list[Item | None], units: int) -> None:
        super().__init__(f"Transaction cancelled: {', '.join(reasons)}")
        self.reasons = reasons
        self.items = items
        self.units = units
        self.is_retry = False


class RetryableFailure(Exception):
    """A failed attempt that may be retried. `error` is raised when no retry is left.

    ambiguous: DynamoDB may have applied the request.
    stale_connection: the server had closed a kept connection; a read is retried at once.
    unanswered: no response arrived; with `timed_out`, after a long wait.
    cost: the tokens that a retry takes from the budget.
    """

    def __init__(
        self,
        error: DomainError,
        *,
        ambiguous: bool = True,
        stale_connection: bool = False,
        unanswered: bool = False,
        timed_out: bool = False,
        cost: int = RETRY_COST,
    ) -> None:
        super().__init__(str(error))
        self.error = error
        self.ambiguous = ambiguous
        self.stale_connection = stale_connection
        self.unanswered = unanswered
        self.timed_out = timed_out
        self.cost = TIMEOUT_RETRY_COST if timed_out else cost


# What a try may come to that another one need not.
RETRYABLE = (RetryableFailure, NotConnected, ResponseTimeout, ConnectionLost)
# The outcomes of a try after which another one is made: the same request, or the same signed again.
RETRIED = (*RETRYABLE, SignatureRefused)


def as_retryable(problem: Exception) -> RetryableFailure:
    """What became of a try, by how it failed."""
    match problem:
        case RetryableFailure():
            return problem
        case NotConnected(timed_out=timed_out):
            error = Timeout(NO_ANSWER_IN_TIME) if timed_out else Unavailable(UNREACHABLE)
            failure = RetryableFailure(error, ambiguous=False, unanswered=True, timed_out=timed_out)
        case ConnectionLost(stale=stale):
            failure = RetryableFailure(Unavailable(UNREACHABLE), stale_connection=stale, unanswered=not stale)
        case _:
            failure = RetryableFailure(Timeout(NO_ANSWER_IN_TIME), unanswered=True, timed_out=True)
    failure.__cause__ = problem
    return failure


def error_of_response(status: int, content: bytes) -> Exception:
    """What an answer other than 200 means."""
    try:
        problem = orjson.loads(content)
        code = str(problem.get("__type", "")).rpartition("#")[2]
    except (orjson.JSONDecodeError, AttributeError):
        problem, code = {}, ""
    if code in THROTTLING_CODES or status == 429:
        return RetryableFailure(Throttled("The store is busy; try again in a moment."), ambiguous=False)
    if status >= 500 and any(words in str(problem.get("message")) for words in DISK_FULL_MESSAGES):
        return Unavailable(DISK_FULL, retryAfter=DISK_FULL_RETRY_SECONDS)
    if status >= 500 or code in REQUEST_TIMEOUT_CODES:
        return RetryableFailure(Unavailable("The store fails at the moment; try again."))
    if code == "ConditionalCheckFailedException":
        return ConditionFailed(_item_in_error(problem), _write_units(problem))
    if code == "TransactionCanceledException":
        return _cancelled_transaction(problem.get("CancellationReasons") or [])
    refused = SignatureRefused if code in SIGNATURE_CODES else RequestRefused
    return refused(code or str(status), str(problem.get("message") or problem.get("Message") or ""))


def _cancelled_transaction(reasons: list[dict[str, Any]]) -> Exception:
    codes = [str(reason.get("Code", "None")) for reason in reasons]
    if codes and set(codes) <= TRANSIENT_REASONS:
        return RetryableFailure(
            Throttled("Others are changing the same items; try again in a moment."), ambiguous=False
        )
    return TransactionCancelled(codes, [_item_in_error(reason) for reason in reasons], sum(map(_write_units, reasons)))


def _write_units(problem: Mapping[str, Any]) -> int:
    """Write units for a condition that did not hold: the size of the item that is there, at least one.

    DynamoDB reports none. Of a cancelled transaction's other items nothing is reported: they count for one each.
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html
    """
    return max(1, math.ceil(item_bytes(problem.get("Item") or {}) / 1024))


def _item_in_error(problem: Mapping[str, Any]) -> Item | None:
    item = problem.get("Item")
    return decode_item(item) if item else None
