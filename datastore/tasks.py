"""`gather_all`: concurrent work that has ended as a whole when it returns or raises."""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def gather_all(pieces: Iterable[Awaitable[T]]) -> list[T]:
    """Return the results, in order. When all pieces have ended, raise the first failure.

    A caller that receives a failure may read again: no write of another piece follows. Cancelling the caller cancels
    all pieces and waits for them.
    """
    outcomes = await asyncio.gather(*pieces, return_exceptions=True)
    answers: list[T] = []
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
        answers.append(outcome)
    return answers
