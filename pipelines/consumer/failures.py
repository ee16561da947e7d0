"""Classification of a handler's failures: outages of the store, and faults of a record."""

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


def is_outage(problem: BaseException) -> bool:
    """Return whether the store has failed temporarily, so that the record is not at fault.

    For a group, return whether this holds for all of its exceptions.
    """
    if isinstance(problem, BaseExceptionGroup):
        return all(map(is_outage, problem.exceptions))
    if isinstance(problem, RequestRefused):
        return problem.code in GENERAL_REFUSALS or _is_from_proxy(problem) or BACKFILLING in problem.message
    return isinstance(problem, DomainError) and problem.retryable


def _is_from_proxy(refused: RequestRefused) -> bool:
    """Return whether a proxy before DynamoDB refused the request, with a status and no code.

    If the request is too large, the record is at fault.
    """
    return refused.code.isdigit() and refused.code != TOO_LARGE


def is_permanent(problem: BaseException) -> bool:
    """Return whether every retry would fail, since the record cannot be stored as it is.

    For a group, return whether this holds for all of its exceptions.
    """
    if isinstance(problem, BaseExceptionGroup):
        return all(map(is_permanent, problem.exceptions))
    if isinstance(problem, TransactionCancelled):
        return not REFUSED_ACTIONS.isdisjoint(problem.reasons)
    return isinstance(problem, BadUserInput | RequestRefused) and not is_outage(problem)


def is_throttled(problem: BaseException) -> bool:
    """Return whether the request was throttled, for the whole store or for the key of one item."""
    if isinstance(problem, BaseExceptionGroup):
        return all(map(is_throttled, problem.exceptions))
    return isinstance(problem, Throttled)


def is_general_outage(problem: BaseException) -> bool:
    """Return whether the outage concerns every record. A large request may cause throttling and timeouts."""
    return is_outage(problem) and not _may_be_load(problem)


def _may_be_load(problem: BaseException) -> bool:
    if isinstance(problem, BaseExceptionGroup):
        return all(map(_may_be_load, problem.exceptions))
    return isinstance(problem, Throttled | Timeout)


def is_store_error(problem: BaseException) -> bool:
    """Return whether the store failed or refused the request.

    It is for requests that concern no record: every refusal of them may be temporary.
    """
    return isinstance(problem, DomainError | RequestRefused)
