"""Work that is done at the same time, of which nothing is still under way when it is over."""

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def gather_all(pieces: Iterable[Awaitable[T]]) -> list[T]:
    """What the pieces answer, in their order. The first failure is raised when all have come to their end.

    A caller that receives a failure may read again: no write of a sibling follows. A cancelled caller cancels
    all pieces, and waits for them.
    """
    outcomes = await asyncio.gather(*pieces, return_exceptions=True)
    answers: list[T] = []
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
        answers.append(outcome)
    return answers
