"""Retries of a call until it succeeds, with a log of the outage that does not fill the log."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

T = TypeVar("T")

REPEAT_SECONDS = 60.0
# A new outage is logged when this time has passed since the last logged failure, if it still lasts then.
QUIET_SECONDS = 10.0


class OutageLog:
    """The log of one kind of outage.

    `log_failure` is called at the first failure and every `REPEAT_SECONDS` of the outage, `log_recovery` at its end.
    `clock` is monotonic, in seconds.
    """

    #: The number of calls that `retry` is retrying.
    retried = 0

    def __init__(
        self,
        log_failure: Callable[[Exception], None],
        log_recovery: Callable[[], None] = lambda: None,
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


async def retry(
    call: Callable[[], Awaitable[T]],
    delays: Iterator[float],
    is_retried: Callable[[Exception], bool],
    outage: OutageLog | None = None,
) -> T:
    """Return the result of `call`. Retry a failure for which `is_retried` returns true, after the next of the `delays`.

    Calls that fail together share an `outage`: it ends when none of them is being retried.

    Raises:
        Exception: The failure of `call`, if it is not retried or the delays are exhausted.
    """
    outage = outage or OutageLog(lambda _: None)
    failures = 0
    try:
        while True:
            try:
                result = await call()
                break
            except Exception as problem:
                delay = next(delays, None) if is_retried(problem) else None
                if delay is None:
                    raise
                failures += 1
                outage.retried += failures == 1
                outage.record_failure(problem)
            await asyncio.sleep(delay)
    finally:
        outage.retried -= failures > 0
    if failures and not outage.retried:
        outage.record_success()
    return result
