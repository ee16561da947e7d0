"""Calls whose first attempt needs no task."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol

from msgspec import Struct

from datastore.dynamodb.calls import Call, CallMeter, TracedRead
from datastore.dynamodb.http1 import HttpResponse, StartedRequest
from datastore.dynamodb.retry.circuit_breaker import CircuitBreaker


class CallTerms(Struct):
    """The part that calls have in common that are made together."""

    breaker: CircuitBreaker
    #: When the calls began, in epoch seconds.
    began_at: float
    #: When they began, and when they have to end, in the event loop's time.
    now: float
    deadline: float
    meter: CallMeter | None
    traced: tuple[TracedRead, ...] = ()


class CallOwner(Protocol):
    """The client, as a started call uses it."""

    def finish(self, terms: CallTerms, call: Call, response: HttpResponse) -> dict[str, Any]:
        """Return the content of a response, and report the call. Raises the error of a failed attempt."""

    def proceed(
        self, terms: CallTerms, call: Call, first: "asyncio.Future[HttpResponse]"
    ) -> Coroutine[Any, Any, dict[str, Any]]:
        """Complete a call whose first attempt has failed."""

    def abandon(self, terms: CallTerms, call: Call) -> None:
        """Record a call whose caller has stopped waiting."""


class StartedCall:
    """A call in flight. `done` receives its response, or the exception that it raises.

    A callback handles the response to the first attempt, which is sent as `request`. A task, or a coroutine for each
    layer of the client, would cost more than the rest of the call, and nearly all first attempts succeed. A call whose
    attempt fails, or cannot be sent at once, proceeds in a task.
    """

    __slots__ = ("_call", "_done", "_owner", "_request", "_terms", "task")

    def __init__(
        self,
        owner: CallOwner,
        terms: CallTerms,
        call: Call,
        done: Callable[[Any], None],
        request: StartedRequest | None,
    ) -> None:
        self._owner = owner
        self._terms = terms
        self._call = call
        self._done = done
        self._request = request
        #: The task of a call that proceeds in one.
        self.task: asyncio.Task[dict[str, Any]] | None = None
        if request is not None:
            request.response.add_done_callback(self._respond)

    def run(self, calling: Coroutine[Any, Any, dict[str, Any]]) -> None:
        """Proceed in a task."""
        self.task = asyncio.get_running_loop().create_task(calling)
        self.task.add_done_callback(self._end)

    def abandon(self) -> None:
        """Stop waiting for the call. `done` receives a cancellation, unless the call has ended."""
        request, self._request = self._request, None
        if request is not None:
            request.abandon()
            self._owner.abandon(self._terms, self._call)
            self._done(asyncio.CancelledError())
        elif self.task is not None:
            self.task.cancel()

    def _respond(self, response: "asyncio.Future[HttpResponse]") -> None:
        if self._request is None:
            return  # abandoned
        self._request = None
        try:
            content = self._owner.finish(self._terms, self._call, response.result())
        except Exception:
            self.run(self._owner.proceed(self._terms, self._call, response))
        else:
            self._done(content)

    def _end(self, task: "asyncio.Task[dict[str, Any]]") -> None:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        self._done(task.result() if error is None else error)


async def gathered(starts: Sequence[Callable[[Callable[[Any], None]], StartedCall]]) -> Sequence[Any]:
    """Start calls, each by `start(done)`. Return the response of each, or its exception.

    If this is cancelled, all calls are abandoned.
    """
    results: list[Any] = [None] * len(starts)
    complete, missing = asyncio.get_running_loop().create_future(), len(starts)

    def done(place: int, result: Any) -> None:
        nonlocal missing
        results[place] = result
        missing -= 1
        if not missing and not complete.done():
            complete.set_result(None)

    calls = [start(partial(done, place)) for place, start in enumerate(starts)]
    try:
        if calls:
            await complete
    except BaseException as reason:
        tasks = [call.task for call in calls if call.task is not None and not call.task.done()]
        for call in calls:
            call.abandon()
        if tasks and isinstance(reason, asyncio.CancelledError):
            await asyncio.wait(tasks)
        raise
    return results
