"""The quota of SportMonks: a number of calls to an endpoint per hour. The hour begins with the first call.

https://docs.sportmonks.com/cricket/api-rate-limit
"""

from collections.abc import Callable
from datetime import datetime, timedelta

from pipelines.matches.providers.provider import ProviderUnavailable

CALLS = 2000
WINDOW = timedelta(hours=1)
# This share of the calls is not paced. Polling every two seconds uses less than the pace of the rest.
UNPACED_SHARE = 0.8
# A caller that would have to wait longer gets an error instead.
MAX_WAIT = 5.0
# After other processes with the same token used up the quota, the end of their hour is unknown.
RETRY_INTERVAL = timedelta(minutes=5)


class Quota:
    """The remaining calls to one endpoint. The last fifth is spread over the rest of the hour."""

    def __init__(self, endpoint: str, *, now: Callable[[], datetime], calls: int = CALLS) -> None:
        self._endpoint = endpoint
        self._now = now
        self._calls = calls
        self._started = self._last = now()
        self._used = 0
        self._closed_until: datetime | None = None

    def take(self) -> float | ProviderUnavailable:
        """Count one call. Returns the seconds to wait before it, or the error if it must not be made now."""
        now = self._now()
        if self._closed_until is not None and now < self._closed_until:
            return self._closed((self._closed_until - now).total_seconds())
        if self._used == 0 or now >= self._started + WINDOW:
            self._started, self._last, self._used, self._closed_until = now, now, 0, None
        start = self._next_start(now)
        wait = (start - now).total_seconds()
        if wait > MAX_WAIT:
            return self._closed(wait)
        self._last = start
        self._used += 1
        return wait

    def observe_remaining(self, remaining: int) -> None:
        """Take over the count of the service, which includes other processes with the same token."""
        self._used = max(self._used, self._calls - remaining)

    def exhausted(self, retry_after: float | None) -> ProviderUnavailable:
        """Refuse calls for `retry_after` seconds after a 429; without `retry_after` for the rest of the hour.

        If the own calls did not use up the quota, the rest is at most `RETRY_INTERVAL`. Returns the error.
        """
        now = self._now()
        rest = self._started + WINDOW - now
        if retry_after is not None:
            rest = timedelta(seconds=retry_after)
        elif self._used < self._calls * UNPACED_SHARE:
            rest = min(rest, RETRY_INTERVAL)
        self._closed_until = now + rest
        return self._closed(rest.total_seconds())

    def _next_start(self, now: datetime) -> datetime:
        if self._used < self._calls * UNPACED_SHARE:
            return now
        end = self._started + WINDOW
        left = self._calls - self._used
        return end if left <= 0 else max(now, self._last + (end - self._last) / left)

    def _closed(self, seconds: float) -> ProviderUnavailable:
        return ProviderUnavailable(
            f"SportMonks: the quota of {self._endpoint} is used up for {seconds:.0f} s.", retry_after=seconds
        )
