"""Tells of an outage without filling the log: when it begins, now and then while it lasts, and when it has ended."""

import time
from collections.abc import Callable

REPEAT_SECONDS = 60.0
# A failure that returns sooner after it was logged is logged when it lasts.
QUIET_SECONDS = 10.0


class OutageLog:
    """The log of one kind of outage.

    `log_failure` is called at the first failure and every `REPEAT_SECONDS` while it lasts, `log_recovery` at its end.
    `clock` is monotonic, in seconds.
    """

    def __init__(
        self,
        log_failure: Callable[[Exception], None],
        log_recovery: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log_failure = log_failure
        self._log_recovery = log_recovery
        self._clock = clock
        self._logged_at = float("-inf")
        self._is_logged = False

    def record_failure(self, problem: Exception) -> None:
        """To be called as often as something fails."""
        if self._clock() - self._logged_at >= (REPEAT_SECONDS if self._is_logged else QUIET_SECONDS):
            self._logged_at, self._is_logged = self._clock(), True
            self._log_failure(problem)

    def record_success(self) -> None:
        """To be called when it works again; what was not told to have begun is not told to have ended."""
        if self._is_logged:
            self._is_logged = False
            self._log_recovery()
