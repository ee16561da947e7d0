"""How fast what clients send is read: by turns, each client at a pace, so that none keeps the loop to itself."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

# Of what came, for one turn of the event loop: at most 170 frames, or some 50 short messages. They take a few ms.
TURN_BYTES = 1024

# Takes at most so many bytes, and returns how many they were.
Take = Callable[[int], int]


class FairReader:
    """Who has something to be read, one after another; `most` bytes of it all in one turn of the event loop."""

    def __init__(self, most: int = TURN_BYTES) -> None:
        self.most = most
        self._waiting: deque[Take] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None

    def ask(self, take: Take) -> None:
        """Call `take` once, when its turn has come."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # the one before ended with what was waiting
            self._waiting.clear()
            self._loop = loop
        self._waiting.append(take)
        if len(self._waiting) == 1:
            loop.call_soon(self._next)

    def _next(self) -> None:
        left = self.most
        try:
            for _ in range(len(self._waiting)):
                left -= self._waiting[0](left)
                self._waiting.popleft()
                if left <= 0:
                    break
        except BaseException:
            self._waiting.popleft()
            raise
        finally:
            if self._waiting:
                asyncio.get_running_loop().call_soon(self._next)


@dataclass(frozen=True, slots=True)
class RateLimit:
    """So many `at_once`, and `per_second` from then on; 0 is without limit."""

    at_once: float = 0
    per_second: float = 0


class TokenBucket:
    """One client's: what it sent is counted after it was read, and when it was too much the rest has to wait."""

    __slots__ = ("_clock", "_left", "_pace", "_then")

    def __init__(self, pace: RateLimit, clock: Callable[[], float]) -> None:
        self._pace = pace
        self._clock = clock
        self._left = float(pace.at_once)
        self._then = clock()

    def wait(self, count: int) -> float:
        """Count so many, and return the seconds until the next may be read."""
        if not self._pace.at_once or not self._pace.per_second:
            return 0.0
        now = self._clock()
        refilled = self._left + (now - self._then) * self._pace.per_second
        self._left = min(self._pace.at_once, refilled) - count
        self._then = now
        return max(0.0, -self._left / self._pace.per_second)
