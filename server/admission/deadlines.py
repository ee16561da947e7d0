"""Deadlines of equal length for many concurrent operations, with one timer."""

import asyncio
from types import TracebackType

from msgspec import Struct

from datastore.primitives.timer_queue import TimerQueue


class Deadlines(TimerQueue["DeadlineScope"]):
    """Deadlines of `seconds`, with the semantics of `asyncio.timeout`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds, DeadlineScope.expire)


class DeadlineScope(Struct, eq=False):
    """A context manager that cancels the current task at the deadline of its block, and raises `TimeoutError`."""

    _deadlines: Deadlines
    _task: asyncio.Task[object] | None = None
    _cancelling: int = 0
    _expired: bool = False

    def expire(self) -> None:
        """Cancel the task of the block."""
        self._expired = True
        assert self._task is not None, "The block has begun."
        self._task.cancel()

    def __enter__(self) -> None:
        loop = asyncio.get_running_loop()
        task = self._task = asyncio.current_task(loop)
        assert task is not None, "Only a task can be cancelled."
        self._cancelling = task.cancelling()
        self._deadlines.add(self, loop)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._deadlines.drop(self)
        if self._expired and self._task is not None:
            # Another cancellation of the task must not be suppressed.
            is_last = self._task.uncancel() <= self._cancelling
            if is_last and kind is asyncio.CancelledError:
                raise TimeoutError from error
