"""Classification of a handler's failures: outages of the store, and faults of a record."""

from collections.abc import Callable
from functools import wraps

from datastore.dynamodb.client import RequestRefused, TransactionCancelled
from datastore.dynamodb.retry.backoff import Backoff
from datastore.errors import BadUserInput, DomainError, Throttled, Timeout

# Codes with which every record is refused, until an operator corrects the permissions, credentials or tables.
GENERAL_REFUSALS = {
    "AccessDeniedException",
    "ExpiredTokenException",
    "IncompleteSignatureException",
    "InvalidSignatureException",
    "MissingAuthenticationTokenException",
    "ResourceNotFoundException",
    "UnrecognizedClientException",
}
# The message for an index that was just declared; DynamoDB has no code for it.
BACKFILLING = "backfilling global secondary index"
TOO_LARGE = "413"
# Reasons of a cancelled transaction for which the action is at fault.
REFUSED_ACTIONS = {"ItemCollectionSizeLimitExceeded", "ValidationError"}
OUTAGE = Backoff(initial=0.1, maximum=5.0, attempts=8)


def _holds_for_all(predicate: Callable[[BaseException], bool]) -> Callable[[BaseException], bool]:
    """Return a predicate that holds for a group of exceptions if it holds for all of them."""

    @wraps(predicate)
    def holds(problem: BaseException) -> bool:
        return all(map(holds, problem.exceptions)) if isinstance(problem, BaseExceptionGroup) else predicate(problem)

    return holds


@_holds_for_all
def is_outage(problem: BaseException) -> bool:
    """Return whether the store has failed temporarily, so that the record is not at fault."""
    if isinstance(problem, RequestRefused):
        return problem.code in GENERAL_REFUSALS or _is_from_proxy(problem) or BACKFILLING in problem.message
    return isinstance(problem, DomainError) and problem.retryable


def _is_from_proxy(refused: RequestRefused) -> bool:
    """Return whether a proxy before DynamoDB refused the request, with a status and no code.

    If the request is too large, the record is at fault.
    """
    return refused.code.isdigit() and refused.code != TOO_LARGE


@_holds_for_all
def is_permanent(problem: BaseException) -> bool:
    """Return whether every retry would fail, since the record cannot be stored as it is."""
    if isinstance(problem, TransactionCancelled):
        return not REFUSED_ACTIONS.isdisjoint(problem.reasons)
    return isinstance(problem, BadUserInput | RequestRefused) and not is_outage(problem)


@_holds_for_all
def is_throttled(problem: BaseException) -> bool:
    """Return whether the request was throttled, for the whole store or for the key of one item."""
    return isinstance(problem, Throttled)


def is_general_outage(problem: BaseException) -> bool:
    """Return whether the outage concerns every record. A large request may cause throttling and timeouts."""
    return is_outage(problem) and not _may_be_load(problem)


@_holds_for_all
def _may_be_load(problem: BaseException) -> bool:
    return isinstance(problem, Throttled | Timeout)


def is_store_error(problem: BaseException) -> bool:
    """Return whether the store failed or refused the request.

    It is for requests that concern no record: every refusal of them may be temporary.
    """
    return isinstance(problem, DomainError | RequestRefused)
