"""Deadlines of equal length for many concurrent operations, with one timer."""

import asyncio
from types import TracebackType

from datastore.primitives.timer_queue import TimerQueue


class Deadlines(TimerQueue["DeadlineScope"]):
    """Deadlines of `seconds`, with the semantics of `asyncio.timeout`."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds, DeadlineScope.expire)

    def deadline(self) -> "DeadlineScope":
        """Return a context manager that cancels the current task at the deadline, and raises `TimeoutError`."""
        return DeadlineScope(self)


class DeadlineScope:
    """A context manager with the deadline of one block in a task."""

    __slots__ = ("_cancelling", "_deadlines", "_expired", "_task")

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._expired = False

    def expire(self) -> None:
        """Cancel the task of the block."""
        self._expired = True
        self._task.cancel()

    def __enter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None, "Only a task can be cancelled."
        self._task: asyncio.Task[object] = task
        self._cancelling = task.cancelling()
        self._deadlines.add(self)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._deadlines.drop(self)
        # Another cancellation of the task must not be suppressed.
        if self._expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error
