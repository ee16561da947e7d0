"""The classification of failed attempts: the meaning of DynamoDB's error responses, and which failures are retried.

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Programming.Errors.html
"""

import math
from collections.abc import Mapping
from typing import Any, get_args

import orjson

from datastore.dynamodb.codec import Item, decode_item, item_bytes
from datastore.dynamodb.http1 import NotConnected, ResponseLost, ResponseTimeout
from datastore.dynamodb.retry.budget import RETRY_COST, TIMEOUT_RETRY_COST
from datastore.dynamodb.retry.circuit_breaker import UNREACHABLE
from datastore.errors import DomainError, Throttled, Timeout, Unavailable
from datastore.model.access_patterns import Operation

ITEM_OPERATIONS = frozenset(get_args(Operation))

# Operations that are not retried after throttling: the reader of the shard lowers its rate instead
# (datastore/change_streams/shards/read_pace.py).
UNRETRIED_THROTTLES = {"GetRecords"}
# Prefixes of the operations that change nothing and may be retried at once.
READ_PREFIXES = ("Get", "BatchGet", "TransactGet", "Query", "Scan", "Describe", "List")
# Codes of throttling and transient errors: DynamoDB has not executed the request. botocore retries them, too.
# https://docs.aws.amazon.com/sdkref/latest/guide/feature-retry-behavior.html
UNEXECUTED_CODES = {
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
# The service did not receive the whole request in time.
REQUEST_TIMEOUT_CODES = {"RequestTimeout", "RequestTimeoutException"}
# The credentials are invalid or have expired, or the time of signing is not the service's.
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
# A cancelled transaction that has only these reasons is retried.
TRANSIENT_REASONS = {"None", "TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"}
# Messages of the embedded engine if its disk is full or read-only. It has written nothing, and an immediate retry would
# fail in the same way.
DISK_FULL_MESSAGES = ("database or disk is full", "attempt to write a readonly database")
DISK_FULL = "The store has no room left to write; nothing was written. Try again later."
DISK_FULL_RETRY_SECONDS = 5
NO_ANSWER_IN_TIME = "The store did not answer in time."


class RequestRefused(Exception):
    """DynamoDB refused a request: a defect of the gateway or of its set-up.

    Only `SignatureRefused` is retried. `code` is DynamoDB's, or the status of a response without a code.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class SignatureRefused(RequestRefused):
    """DynamoDB refused the signature of a request. It may accept one with other credentials or at another time."""

    #: The Date header of the response.
    date: bytes | None = None


class ConditionFailed(Exception):
    """The condition of a write failed."""

    def __init__(self, item: Item | None, units: int) -> None:
        super().__init__("The conditional request failed")
        #: The stored item, if it exists and the request asked for it.
        self.item = item
        #: The estimated write units. DynamoDB bills but does not report them.
        self.units = units
        #: Whether the response of an earlier attempt was lost, so that `item` may be the result of that attempt.
        self.after_lost_response = False


class TransactionCancelled(Exception):
    """A transaction was cancelled. `reasons` and `items` have an entry for each of its actions, in order."""

    def __init__(self, reasons: list[str], items: list[Item | None], units: int) -> None:
        super().__init__(f"Transaction cancelled: {', '.join(reasons)}")
        self.reasons = reasons
        self.items = items
        #: The estimated write units. DynamoDB bills but does not report them.
        self.units = units
        #: Whether the response of an earlier attempt was lost.
        self.after_lost_response = False


class RetryableFailure(Exception):
    """A failed attempt that may be retried. `error` is raised if no retry is allowed.

    ambiguous: DynamoDB may have applied the request.
    stale_connection: the server had closed an idle connection. A read is retried at once.
    counts_as_outage: the circuit breaker counts it as a failure.
    timed_out: no response arrived in time.
    cost: the tokens that a retry takes from the budget. After a timeout it is `TIMEOUT_RETRY_COST` instead.
    """

    def __init__(
        self,
        error: DomainError,
        *,
        ambiguous: bool = True,
        stale_connection: bool = False,
        counts_as_outage: bool = False,
        timed_out: bool = False,
        cost: int = RETRY_COST,
    ) -> None:
        super().__init__(str(error))
        self.error = error
        self.ambiguous = ambiguous
        self.stale_connection = stale_connection
        self.counts_as_outage = counts_as_outage
        self.timed_out = timed_out
        self.cost = TIMEOUT_RETRY_COST if timed_out else cost


# Failures that may not recur.
AttemptFailure = RetryableFailure | NotConnected | ResponseTimeout | ResponseLost
RETRYABLE = (RetryableFailure, NotConnected, ResponseTimeout, ResponseLost)


def as_retryable(problem: AttemptFailure) -> RetryableFailure:
    """Convert a `RETRYABLE` failure to a `RetryableFailure`."""
    match problem:
        case RetryableFailure():
            return problem
        case NotConnected(timed_out=timed_out):
            error = Timeout(NO_ANSWER_IN_TIME) if timed_out else Unavailable(UNREACHABLE)
            failure = RetryableFailure(error, ambiguous=False, counts_as_outage=True, timed_out=timed_out)
        case ResponseLost(stale=stale):
            failure = RetryableFailure(Unavailable(UNREACHABLE), stale_connection=stale, counts_as_outage=not stale)
        case ResponseTimeout():
            failure = RetryableFailure(Timeout(NO_ANSWER_IN_TIME), counts_as_outage=True, timed_out=True)
    failure.__cause__ = problem
    return failure


def error_of_response(status: int, content: bytes) -> Exception:
    """Return the error of a response with a status other than 200."""
    try:
        problem = orjson.loads(content)
        code = str(problem.get("__type", "")).rpartition("#")[2]
    except (orjson.JSONDecodeError, AttributeError):
        problem, code = {}, ""
    if code in UNEXECUTED_CODES or status == 429:
        return RetryableFailure(Throttled("The store is busy; try again in a moment."), ambiguous=False)
    if status >= 500 and any(words in str(problem.get("message")) for words in DISK_FULL_MESSAGES):
        return Unavailable(DISK_FULL, retryAfter=DISK_FULL_RETRY_SECONDS)
    if status >= 500 or code in REQUEST_TIMEOUT_CODES:
        return RetryableFailure(Unavailable("The store reports an error at the moment; try again."))
    if code == "ConditionalCheckFailedException":
        return ConditionFailed(_item_in_error(problem), _write_units(problem))
    if code == "TransactionCanceledException":
        return _cancelled_transaction(problem.get("CancellationReasons") or [])
    refused = SignatureRefused if code in SIGNATURE_CODES else RequestRefused
    return refused(code or str(status), str(problem.get("message") or problem.get("Message") or ""))


def is_missing_table(operation: str, error: Exception) -> bool:
    """Return whether an item operation failed because its table is missing.

    The error of operations on tables and streams is passed on unchanged.
    """
    is_missing = isinstance(error, RequestRefused) and error.code == "ResourceNotFoundException"
    return is_missing and operation in ITEM_OPERATIONS


def _cancelled_transaction(reasons: list[dict[str, Any]]) -> Exception:
    codes = [str(reason.get("Code", "None")) for reason in reasons]
    if codes and set(codes) <= TRANSIENT_REASONS:
        return RetryableFailure(
            Throttled("Other requests are changing the same items; try again in a moment."), ambiguous=False
        )
    return TransactionCancelled(codes, [_item_in_error(reason) for reason in reasons], sum(map(_write_units, reasons)))


def _write_units(problem: Mapping[str, Any]) -> int:
    """Return the write units of a failed condition: the size of the stored item in KB, at least one.

    DynamoDB bills but does not report them. Items of a cancelled transaction that it does not return count as one each.
    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html
    """
    return max(1, math.ceil(item_bytes(problem.get("Item") or {}) / 1024))


def _item_in_error(problem: Mapping[str, Any]) -> Item | None:
    item = problem.get("Item")
    return decode_item(item) if item else None
