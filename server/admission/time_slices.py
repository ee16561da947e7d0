"""Bounds for how long the event loop executes operations before it looks at its sockets and timers again."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SLICE_SECONDS = 0.02


class TimeSlices:
    """The time that each turn of the event loop has for work that takes long without an `await`.

    A turn of the loop runs every task that is ready. A hundred of them that execute for 50 ms each would keep all
    sockets waiting for five seconds. Work that calls `turn` first waits for a later turn of the loop once a slice is
    used up; `clock` returns seconds.
    """

    def __init__(self, seconds: float = SLICE_SECONDS, clock: Callable[[], float] = time.perf_counter) -> None:
        self._seconds = seconds
        self._clock = clock
        self._used = 0.0

    @property
    def is_used_up(self) -> bool:
        """Whether `turn` would wait."""
        return self._used >= self._seconds

    async def turn(self) -> None:
        """Wait until a turn of the loop has time left."""
        while self._used >= self._seconds:  # noqa: ASYNC110 - the next turn is what it waits for
            await asyncio.sleep(0)

    @contextmanager
    def used(self) -> Iterator[None]:
        """Count the time of a block, which must not `await`."""
        began = self._clock()
        try:
            yield
        finally:
            if not self._used:
                # The loop calls this at the beginning of its next turn, before the tasks that wait for it.
                asyncio.get_running_loop().call_soon(self._renew)
            self._used += self._clock() - began

    def _renew(self) -> None:
        self._used = 0.0
