"""Tells of an outage without filling the log: when it begins, now and then while it lasts, and when it has ended."""

import time
from collections.abc import Callable

AGAIN_SECONDS = 60.0
# One that comes back sooner after it was told is told when it lasts.
SOON_SECONDS = 10.0


class OutageLog:
    """Of one thing. `tell` hears of the problem at once, and again every `AGAIN_SECONDS`; `ended` of its end.

    `clock` tells seconds that never go back.
    """

    def __init__(
        self,
        tell: Callable[[Exception], None],
        ended: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tell = tell
        self._ended = ended
        self._clock = clock
        self._told_at = float("-inf")
        self._is_told = False

    def goes_on(self, problem: Exception) -> None:
        """To be called as often as something fails."""
        if self._clock() - self._told_at >= (AGAIN_SECONDS if self._is_told else SOON_SECONDS):
            self._told_at, self._is_told = self._clock(), True
            self._tell(problem)

    def ends(self) -> None:
        """To be called when it works again; what was not told to have begun is not told to have ended."""
        if self._is_told:
            self._is_told = False
            self._ended()
