"""The first attempts of calls that are sent together."""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any

from datastore.dynamodb.calls import Call
from datastore.dynamodb.http1 import HttpResponse, StartedRequest


class FirstAttempts:
    """The first attempts of calls that are sent together, and the calls that proceed in tasks.

    A callback handles each response. A task, or a coroutine for each call, would cost more than the rest of the call
    together, and nearly all first attempts succeed. A call whose attempt fails proceeds in a task of its own.

    `finish` returns the result of a call for the response of its first attempt, or raises an exception. `proceed` then
    returns a coroutine of the result, which begins with the given future of the first attempt. `abandon` records a call
    whose caller has stopped waiting.
    """

    def __init__(
        self,
        finish: Callable[[Call, HttpResponse], Any],
        proceed: Callable[[Call, "asyncio.Future[HttpResponse]"], Coroutine[Any, Any, Any]],
        abandon: Callable[[Call], None],
    ) -> None:
        self._finish = finish
        self._proceed = proceed
        self._abandon = abandon
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self._results: list[Any] = []
        # The place of each call's result, the call, and its request.
        self._in_flight: dict[asyncio.Future[HttpResponse], tuple[int, Call, StartedRequest]] = {}
        self._tasks: dict[asyncio.Task[Any], int] = {}
        self._complete: asyncio.Future[None] | None = None

    def add(self, call: Call, request: StartedRequest) -> None:
        """Add a call whose first attempt was sent."""
        self._in_flight[request.response] = len(self._results), call, request
        self._results.append(None)
        request.response.add_done_callback(self._respond, context=self._context)

    def add_task(self, calling: Coroutine[Any, Any, Any]) -> None:
        """Start a task that makes a call, and add its result."""
        self._start_task(len(self._results), calling)
        self._results.append(None)

    async def results(self) -> list[Any]:
        """Return the result of each call, or its exception, in their order. If this is cancelled, abandon all calls."""
        if self._in_flight or self._tasks:
            self._complete = self._loop.create_future()
            try:
                await self._complete
            except BaseException as reason:
                self._abandon_all()
                if self._tasks and isinstance(reason, asyncio.CancelledError):
                    await asyncio.wait(self._tasks)
                raise
        return self._results

    def _respond(self, response: "asyncio.Future[HttpResponse]") -> None:
        attempt = self._in_flight.pop(response, None)
        if attempt is None:
            return  # abandoned
        place, call, _ = attempt
        try:
            self._results[place] = self._finish(call, response.result())
        except Exception:
            self._start_task(place, self._proceed(call, response))
        else:
            self._notify()

    def _start_task(self, place: int, calling: Coroutine[Any, Any, Any]) -> None:
        task = self._loop.create_task(calling)
        self._tasks[task] = place
        task.add_done_callback(self._end_task)

    def _end_task(self, task: asyncio.Task[Any]) -> None:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        self._results[self._tasks.pop(task)] = task.result() if error is None else error
        self._notify()

    def _notify(self) -> None:
        if not (self._in_flight or self._tasks) and self._complete is not None and not self._complete.done():
            self._complete.set_result(None)

    def _abandon_all(self) -> None:
        attempts, self._in_flight = self._in_flight, {}
        for _, call, request in attempts.values():
            request.abandon()
            self._abandon(call)
        for task in self._tasks:
            task.cancel()
