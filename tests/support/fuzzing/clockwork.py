"""An event loop that is driven from outside, one step at a time, and tells what is left in it.

It is asyncio's loop without sockets, threads and the clock of the machine, so it can run thousands of connections a
second, and an hour takes no time.
"""

import asyncio
import heapq
import time
import traceback
from asyncio import Handle, TimerHandle
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any

# Callbacks that run without a moment of virtual time in between. A usual exchange needs some ten.
MOST_CALLBACKS = 50_000


class Endless(Exception):
    """Callbacks schedule callbacks, and no time passes."""


# As it is when it runs: in typeshed all that it raises NotImplementedError for is abstract.
_AbstractEventLoop: Any = asyncio.AbstractEventLoop


class Clockwork(_AbstractEventLoop):  # type: ignore[misc]
    """A loop that runs ready callbacks, and advances virtual time, only on request.

    `complaints` holds what asyncio's loop would log, with tracebacks. Work for threads is done at once. `longest` is
    how many seconds of CPU a callback took at the most: meanwhile nothing else is served.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.complaints: list[str] = []
        self.longest = 0.0
        self._ready: deque[Handle] = deque()
        self._scheduled: list[TimerHandle] = []

    # What drives it

    def run_ready(self) -> None:
        """Run callbacks until none is left that could run now. Raises `Endless`."""
        ready = self._ready
        with self._running():
            for _ in range(MOST_CALLBACKS):
                if not ready:
                    return
                handle = ready.popleft()
                if not handle.cancelled():
                    began = time.process_time()
                    handle._run()
                    self.longest = max(self.longest, time.process_time() - began)
        raise Endless(f"after {MOST_CALLBACKS:,} callbacks there is still something to run")

    def act(self, act: Callable[[], object]) -> None:
        """Call `act` inside the loop, and run what follows from it."""
        self.call_soon(act)
        self.run_ready()

    def advance(self, seconds: float) -> None:
        """Let so much time pass. Timers run at their moments, one moment after another."""
        end = self.now + seconds
        self.run_ready()
        while (due := self._next_due()) is not None and due <= end:
            self.now = max(self.now, due)
            while self._scheduled and self._scheduled[0].when() <= self.now:
                self._ready.append(heapq.heappop(self._scheduled))
            self.run_ready()
        self.now = max(self.now, end)

    def timers(self) -> list[TimerHandle]:
        """Return the timers that have not been cancelled."""
        return [timer for timer in self._scheduled if not timer.cancelled()]

    def tasks(self) -> "list[asyncio.Task[Any]]":
        """Return the tasks that are not done."""
        return [*asyncio.all_tasks(self)]

    def clear(self) -> None:
        """Cancel all there is."""
        for task in self.tasks():
            task.cancel()
        for timer in self.timers():
            timer.cancel()
        try:
            self.run_ready()
        except Endless:
            self._ready.clear()
        self._scheduled.clear()
        self.complaints.clear()

    def _next_due(self) -> float | None:
        while self._scheduled and self._scheduled[0].cancelled():
            heapq.heappop(self._scheduled)
        return self._scheduled[0].when() if self._scheduled else None

    @contextmanager
    def _running(self) -> Iterator[None]:
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            asyncio._set_running_loop(before)

    # What asyncio asks of a loop

    def time(self) -> float:
        return self.now

    def get_debug(self) -> bool:
        return False

    def get_task_factory(self) -> None:
        return None

    def is_running(self) -> bool:
        return asyncio._get_running_loop() is self

    def is_closed(self) -> bool:
        return False

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Context | None = None) -> Handle:
        handle = Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Context | None = None
    ) -> TimerHandle:
        timer = TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._scheduled, timer)
        return timer

    def _timer_handle_cancelled(self, handle: TimerHandle) -> None:
        """Called by a timer that is cancelled. It is taken away when it would be due."""

    def create_future(self) -> "asyncio.Future[Any]":
        return asyncio.Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Context | None = None) -> "asyncio.Task[Any]":
        return asyncio.Task(coro, loop=self, name=name, context=context)

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        trace = "" if error is None else "".join(traceback.format_exception(error))
        self.complaints.append(f"{context['message']}\n{trace}")
