"""A log of outages that does not fill the log: it reports the beginning, the duration at intervals, and the end."""

import time
from collections.abc import Callable

REPEAT_SECONDS = 60.0
# A new outage is logged when this time has passed since the last logged failure, if it still lasts then.
QUIET_SECONDS = 10.0


class OutageLog:
    """The log of one kind of outage.

    `log_failure` is called at the first failure and every `REPEAT_SECONDS` of the outage, `log_recovery` at its end.
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
        """Record a failure. The caller calls this at every failure."""
        if self._clock() - self._logged_at >= (REPEAT_SECONDS if self._is_logged else QUIET_SECONDS):
            self._logged_at, self._is_logged = self._clock(), True
            self._log_failure(problem)

    def record_success(self) -> None:
        """Record a success. The end of an outage is logged only if its beginning was."""
        if self._is_logged:
            self._is_logged = False
            self._log_recovery()
