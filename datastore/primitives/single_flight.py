"""Single-flight: one call for all concurrent callers with the same key."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from datastore.errors import Unavailable
from datastore.primitives.tasks import cancel

K = TypeVar("K")
V = TypeVar("V")


class SingleFlight(Generic[K, V]):
    """The running calls, by key.

    A call continues when its callers are cancelled or time out. With `cancel_unused` it is cancelled with its last
    caller.
    """

    def __init__(self, *, cancel_unused: bool = False) -> None:
        self._cancel_unused = cancel_unused
        self._joinable: dict[K, asyncio.Task[V]] = {}
        self._running: set[asyncio.Task[V]] = set()
        self._callers: Counter[asyncio.Task[V]] = Counter()

    def __contains__(self, key: K) -> bool:
        """Return whether a call is running that the next caller would join."""
        return key in self._joinable

    def start(self, key: K, call: Callable[[], Coroutine[Any, Any, V]]) -> asyncio.Task[V]:
        """Return the running call for `key`; if there is none, start one."""
        task = self._joinable.get(key)
        if task is None:
            task = self._joinable[key] = asyncio.create_task(call())
            self._running.add(task)
            task.add_done_callback(lambda done: self._on_done(key, done))
        return task

    async def join(self, key: K, call: Callable[[], Coroutine[Any, Any, V]], seconds: float | None = None) -> V:
        """Return the result of the running call for `key`; if there is none, start one.

        Raises:
            TimeoutError: The call did not end within `seconds`.
            Unavailable: The call was cancelled.
            Exception: The error of the call.
        """
        task = self.start(key, call)
        self._callers[task] += 1
        try:
            return await result_of(task, seconds)
        finally:
            self._callers[task] -= 1
            if not self._callers[task]:
                del self._callers[task]
                if self._cancel_unused and not task.done():
                    self.forget(key)
                    task.cancel()

    def forget(self, key: K) -> None:
        """Make the next caller start a call of its own."""
        self._joinable.pop(key, None)

    async def aclose(self) -> None:
        """Cancel the calls, and wait for their end."""
        await cancel(*self._running)

    def _on_done(self, key: K, task: asyncio.Task[V]) -> None:
        self._running.discard(task)
        if self._joinable.get(key) is task:
            del self._joinable[key]
        if not task.cancelled():
            task.exception()  # mark as retrieved: all callers may have left


async def result_of(task: asyncio.Task[V], seconds: float | None = None) -> V:
    """Return the result of a task that several callers share. Cancelling a caller does not cancel the task.

    Raises:
        TimeoutError: The task did not end within `seconds`.
        Unavailable: The task was cancelled.
        Exception: The error of the task.
    """
    await asyncio.wait([task], timeout=seconds)
    if not task.done():
        raise TimeoutError
    if task.cancelled():
        raise Unavailable("The gateway is stopping; try again.")
    error = task.exception()
    if error is not None:
        raise error.with_traceback(None)  # the callers share it: keep no frames of others
    return task.result()
