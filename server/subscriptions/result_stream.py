"""The results of a subscription for a consumer that requests one after the other, with their resume position."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import NamedTuple, Self

from datastore.change_streams.subscriptions.resume_position import ResumePosition
from server.operations.outcome import Outcome


def _no_position() -> None:
    return None


class RequestedResults(NamedTuple):
    """The results of a subscription that has begun."""

    outcomes: AsyncGenerator[Outcome, None]
    #: Returns the position after all requested results, while the consumer awaits the next one; None at other times.
    settled_position: Callable[[], ResumePosition | None] = _no_position
    #: The resume id from which the subscription resumes, if it does.
    resumes_after: str | None = None


class ResultStream:
    """The results of a subscription, to be iterated in one task and closed. The first request begins the subscription.

    The position may be read from other tasks.
    """

    def __init__(self, begin: Callable[[], Awaitable[RequestedResults]]) -> None:
        self._begin = begin
        self._begun: RequestedResults | None = None
        self._outcomes = self._iterate()

    @property
    def resumes_after(self) -> str | None:
        """The resume id of the last event that the client received before; None until the subscription has begun."""
        return None if self._begun is None else self._begun.resumes_after

    def settled_position(self) -> ResumePosition | None:
        """Return the position after all requested results, while the consumer awaits the next; None at other times."""
        return None if self._begun is None else self._begun.settled_position()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Outcome:
        return await anext(self._outcomes)

    async def aclose(self) -> None:
        await self._outcomes.aclose()

    async def _iterate(self) -> AsyncGenerator[Outcome, None]:
        self._begun = await self._begin()
        async with aclosing(self._begun.outcomes) as outcomes:
            async for outcome in outcomes:
                yield outcome
