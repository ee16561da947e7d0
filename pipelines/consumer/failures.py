"""Telling a store that is out of order from a record that is."""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import chain, repeat
from typing import TypeVar

from datastore.dynamodb.client import RequestRefused, TransactionCancelled
from datastore.dynamodb.retry.backoff import Backoff
from datastore.errors import BadUserInput, DomainError, Throttled, Timeout

T = TypeVar("T")

# What is refused for these is refused for every record, until somebody mends the rights, keys or tables.
REFUSED_TO_ALL = {
    "AccessDeniedException",
    "ExpiredTokenException",
    "IncompleteSignatureException",
    "InvalidSignatureException",
    "MissingAuthenticationTokenException",
    "ResourceNotFoundException",
    "UnrecognizedClientException",
}
# An index that was just declared; DynamoDB has no code of its own for it.
BACKFILLING = "backfilling global secondary index"
TOO_LARGE = "413"
# Reasons of a cancelled transaction that are an action's own.
REFUSED_ACTIONS = {"ItemCollectionSizeLimitExceeded", "ValidationError"}
OUTAGE = Backoff(initial=0.1, maximum=5.0, attempts=8)
TOLD_AGAIN_SECONDS = 60.0


def is_outage(problem: BaseException) -> bool:
    """Whether it is the store's trouble, which passes, and not the record's. Of several, whether all are."""
    if isinstance(problem, BaseExceptionGroup):
        return all(map(is_outage, problem.exceptions))
    if isinstance(problem, RequestRefused):
        return problem.code in REFUSED_TO_ALL or _is_no_answer(problem) or BACKFILLING in problem.message
    return isinstance(problem, DomainError) and problem.retryable


def _is_no_answer(refused: RequestRefused) -> bool:
    """Whether somebody before DynamoDB refused, with a status and no code: a proxy. But a size is the record's own."""
    return refused.code.isdigit() and refused.code != TOO_LARGE


def is_permanent(problem: BaseException) -> bool:
    """Whether every other try will fail, too: the record cannot be stored as it is. Of several, whether all are."""
    if isinstance(problem, BaseExceptionGroup):
        return all(map(is_permanent, problem.exceptions))
    if isinstance(problem, TransactionCancelled):
        return not REFUSED_ACTIONS.isdisjoint(problem.reasons)
    return isinstance(problem, BadUserInput | RequestRefused) and not is_outage(problem)


def is_throttled(problem: BaseException) -> bool:
    """Whether it was too much for a moment: for the store, or for the key of one item."""
    if isinstance(problem, BaseExceptionGroup):
        return all(map(is_throttled, problem.exceptions))
    return isinstance(problem, Throttled)


def is_for_all(problem: BaseException) -> bool:
    """Whether it is an outage for every record: neither throttled, nor late, which too much at once may be."""
    return is_outage(problem) and not _may_be_of_few(problem)


def _may_be_of_few(problem: BaseException) -> bool:
    if isinstance(problem, BaseExceptionGroup):
        return all(map(_may_be_of_few, problem.exceptions))
    return isinstance(problem, Throttled | Timeout)


def is_any_refusal(problem: BaseException) -> bool:
    """The same for requests that are about no record: whatever the store says against them may pass."""
    return isinstance(problem, DomainError | RequestRefused)


async def waited_out(
    ask: Callable[[], Awaitable[T]],
    tell: Callable[[Exception], None],
    *,
    backoff: Backoff = OUTAGE,
    for_ever: bool = True,
    passes: Callable[[BaseException], bool] = is_outage,
) -> T:
    """The answer, however long it takes: what `passes` is asked again. `tell` hears of an outage once a minute.

    Without `for_ever` the problem is raised after the tries of `backoff`.
    """
    delays = chain(backoff.delays(), repeat(backoff.maximum) if for_ever else ())
    tell_at = 0.0
    while True:
        try:
            return await ask()
        except Exception as problem:
            delay = next(delays, None) if passes(problem) else None
            if delay is None:
                raise
            if (moment := asyncio.get_running_loop().time()) >= tell_at:
                tell(problem)
                tell_at = moment + TOLD_AGAIN_SECONDS
        await asyncio.sleep(delay)
