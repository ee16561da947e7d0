"""Deadlines of equal length for many concurrent operations, with one timer."""

import asyncio
from types import TracebackType


class Deadlines:
    """Deadlines of `seconds`, with the semantics of `asyncio.timeout`.

    Deadlines of equal length expire in the order in which they were set, so one timer serves all of them. Setting and
    removing a deadline costs an entry in a dict instead of a timer.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._pending: dict[DeadlineScope, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def deadline(self) -> "DeadlineScope":
        """Return a context manager that cancels the current task at the deadline, and raises `TimeoutError`."""
        return DeadlineScope(self)

    def add(self, scope: "DeadlineScope", loop: asyncio.AbstractEventLoop) -> None:
        """Set the deadline of a scope that is entered."""
        scope.expires_at = loop.time() + self.seconds
        self._pending[scope] = None
        if self._timer is None or self._loop is not loop:
            self._loop = loop
            self._timer = loop.call_at(scope.expires_at, self._expire_late)

    def _expire_late(self) -> None:
        """Expire the deadlines that have passed, and set the timer to the next deadline."""
        assert self._loop is not None
        self._timer, now = None, self._loop.time()
        while self._pending:
            oldest = next(iter(self._pending))
            if oldest.expires_at > now:
                self._timer = self._loop.call_at(oldest.expires_at, self._expire_late)
                return
            del self._pending[oldest]
            oldest.expire()

    def remove(self, scope: "DeadlineScope") -> None:
        """Remove the deadline of a scope that is left."""
        self._pending.pop(scope, None)


class DeadlineScope:
    """A context manager with the deadline of one block in a task."""

    __slots__ = ("_cancelling", "_deadlines", "_expired", "_task", "expires_at")

    def __init__(self, deadlines: Deadlines) -> None:
        self._deadlines = deadlines
        self._expired = False
        self.expires_at = 0.0

    def expire(self) -> None:
        """Cancel the task of the block."""
        self._expired = True
        self._task.cancel()

    def __enter__(self) -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None, "Only a task can be cancelled."
        self._task: asyncio.Task[object] = task
        self._cancelling = task.cancelling()
        self._deadlines.add(self, loop)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._deadlines.remove(self)
        # Another cancellation of the task must not be suppressed.
        if self._expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error
