"""Fair shares of the event loop: round-robin reading from clients, and time slices."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# The bytes that are processed in one turn of the event loop: 170 frames or some 50 short messages, within a few ms.
TURN_BYTES = 1024
# The seconds for which operations execute before the event loop handles its sockets and timers again.
SLICE_SECONDS = 0.02

# Processes at most the given number of bytes, and returns the number of bytes that it processed.
Take = Callable[[int], int]


class FairReader:
    """A round-robin queue of clients with input. One turn of the event loop reads `bytes_per_turn`."""

    def __init__(self, bytes_per_turn: int = TURN_BYTES) -> None:
        self.bytes_per_turn = bytes_per_turn
        self._waiting: deque[Take] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None

    def enqueue(self, take: Take) -> None:
        """Call `take` once, when the calls before it have run."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # the previous loop has ended, so its queue is obsolete
            self._waiting.clear()
            self._loop = loop
        self._waiting.append(take)
        if len(self._waiting) == 1:
            loop.call_soon(self._next)

    def _next(self) -> None:
        remaining = self.bytes_per_turn
        try:
            for _ in range(len(self._waiting)):
                remaining -= self._waiting[0](remaining)
                self._waiting.popleft()
                if remaining <= 0:
                    break
        except BaseException:
            self._waiting.popleft()
            raise
        finally:
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._next)


class TimeSlices:
    """A limit of the time that each turn of the event loop spends on long work without an `await`.

    A turn of the loop runs every ready task: a hundred tasks of 50 ms each would block all sockets for five seconds.
    Such a task first calls `wait_for_slice`, which waits for a later turn of the loop if the slice is used up. `clock`
    returns seconds.
    """

    def __init__(self, seconds: float = SLICE_SECONDS, clock: Callable[[], float] = time.perf_counter) -> None:
        self._seconds = seconds
        self._clock = clock
        self._used = 0.0

    @property
    def is_used_up(self) -> bool:
        """Whether `wait_for_slice` would wait."""
        return self._used >= self._seconds

    async def wait_for_slice(self) -> None:
        """Wait for a turn of the loop that has time left."""
        while self._used >= self._seconds:  # noqa: ASYNC110 - it waits for the next turn
            await asyncio.sleep(0)

    @contextmanager
    def measure(self) -> Iterator[None]:
        """Count the time of a block, which must not `await`."""
        started_at = self._clock()
        try:
            yield
        finally:
            if not self._used:
                # The loop calls this in its next turn, before it resumes the tasks that wait for a slice.
                asyncio.get_running_loop().call_soon(self._renew)
            self._used += self._clock() - started_at

    def _renew(self) -> None:
        self._used = 0.0
