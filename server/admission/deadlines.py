"""A deadline for each of many pieces of work, all of them given the same time."""

import asyncio
from types import TracebackType


class Deadlines:
    """Ends what takes longer than so many `seconds`, as `asyncio.timeout` does.

    One timer serves all that is under way, whose deadlines come in the order in which they began: to begin and to end
    is an entry in a dict, where a timer for each is set up and cancelled.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._under_way: dict[Limited, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def limited(self) -> "Limited":
        """A context manager for the work of the current task. It raises `TimeoutError` when the time was up."""
        return Limited(self)

    def begin(self, work: "Limited", loop: asyncio.AbstractEventLoop) -> None:
        work.until = loop.time() + self.seconds
        self._under_way[work] = None
        if self._timer is None or self._loop is not loop:
            self._loop = loop
            self._timer = loop.call_at(work.until, self._look)

    def _look(self) -> None:
        """End what is late, and come again for what will be next."""
        assert self._loop is not None
        self._timer, now = None, self._loop.time()
        while self._under_way:
            oldest = next(iter(self._under_way))
            if oldest.until > now:
                self._timer = self._loop.call_at(oldest.until, self._look)
                return
            del self._under_way[oldest]
            oldest.expire()


class Limited:
    """One piece of work."""

    __slots__ = ("_all", "_cancelling", "_expired", "_task", "until")

    def __init__(self, deadlines: Deadlines) -> None:
        self._all = deadlines
        self._expired = False
        self.until = 0.0

    def expire(self) -> None:
        self._expired = True
        self._task.cancel()

    def __enter__(self) -> None:
        loop = asyncio.get_running_loop()
        task = asyncio.current_task(loop)
        assert task is not None, "Only a task can be ended."
        self._task: asyncio.Task[object] = task
        self._cancelling = task.cancelling()
        self._all.begin(self, loop)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._all._under_way.pop(self, None)
        # Whoever else cancelled the task meanwhile is not to be kept from it.
        if self._expired and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error
