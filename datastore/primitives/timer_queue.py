"""One timer for many members with the same delay."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

# The members that are due and called in one turn of the event loop: a ping takes some microseconds.
MAX_CALLS_PER_TURN = 100


class TimerQueue(Generic[T]):
    """A queue that calls `act` for each member once, `seconds` after it was added, and then removes it.

    All delays are equal, so the queue is sorted by insertion. The timer is not cancelled when members are dropped:
    adding and dropping a member costs an entry in a dict instead of a timer.
    """

    def __init__(self, seconds: float, act: Callable[[T], None]) -> None:
        self.seconds = seconds
        self._act = act
        self._due: OrderedDict[T, float] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def add(self, member: T, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Add a member. `loop` is the running event loop, if the caller knows it."""
        loop = loop or asyncio.get_running_loop()
        self._due[member] = due = loop.time() + self.seconds
        if self._timer is None or self._loop is not loop:
            self._loop = loop
            self._timer = loop.call_at(due, self._call_due)

    def drop(self, member: T) -> None:
        """Remove a member, if it is in the queue."""
        self._due.pop(member, None)

    def _call_due(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        try:
            for _ in range(min(MAX_CALLS_PER_TURN, len(self._due))):
                member = next(iter(self._due), None)
                if member is None or self._due[member] > now:
                    break
                del self._due[member]
                self._act(member)
        finally:
            self._timer = loop.call_at(next(iter(self._due.values())), self._call_due) if self._due else None
