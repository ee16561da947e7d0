"""Fair shares of the event loop: round-robin reading from clients, and time slices."""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType

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
    Such a task first calls `wait_for_slice`, which waits for a later turn of the loop if the slice is used up. It then
    works in a `with` block, whose time is counted, and which must not `await`. `clock` returns seconds.
    """

    def __init__(self, seconds: float = SLICE_SECONDS, clock: Callable[[], float] = time.perf_counter) -> None:
        self._seconds = seconds
        self._clock = clock
        self._used = self._started_at = 0.0
        #: Whether `wait_for_slice` would wait.
        self.is_used_up = False
        self._is_renewing = False  # the loop will call `_renew`
        self._count = 0  # the blocks that were measured in this turn
        # The tasks that wait for a slice, in order, and those that were woken and found the new slice used up.
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._woken_too_early: list[asyncio.Future[None]] = []

    async def wait_for_slice(self) -> None:
        """Wait for a turn of the loop that has time left."""
        add = self._waiting.append
        while self.is_used_up:
            turn = asyncio.get_running_loop().create_future()
            add(turn)
            await turn
            add = self._woken_too_early.append

    def __enter__(self) -> None:
        self._started_at = self._clock()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._used += self._clock() - self._started_at
        self._count += 1
        self.is_used_up = self._used >= self._seconds
        if not self._is_renewing:
            self._renew_soon()

    def _renew(self) -> None:
        """Begin a new slice. Wake as many tasks as the last one had time for, and one more."""
        self._used, self.is_used_up = 0.0, False
        self._waiting.extendleft(reversed(self._woken_too_early))
        self._woken_too_early.clear()
        for _ in range(min(self._count + 1, len(self._waiting))):
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
        self._count, self._is_renewing = 0, False
        if self._waiting:
            self._renew_soon()

    def _renew_soon(self) -> None:
        # The loop calls this in its next turn, before it resumes the tasks that wait for a slice.
        self._is_renewing = True
        asyncio.get_running_loop().call_soon(self._renew)
