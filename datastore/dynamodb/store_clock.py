"""The time of a store, from the Date header of its responses, independent of this machine's clock.

The times of stream records, signatures and presigned URLs are those of the store's clock.
"""

import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

OBSERVE_SECONDS = 1.0


class StoreClock:
    """The clock of a store. Its Date headers have whole seconds, so this clock is at most about a second behind.

    Before the first response it is the clock `until_known`, by default this machine's. Between responses the monotonic
    clock advances it, so setting this machine's clock does not change it. Any thread may call `observe`.
    """

    def __init__(self, until_known: "StoreClock | None" = None) -> None:
        self._until_known = until_known
        self._offset: float | None = None  # the store's time minus the monotonic clock's
        self._observe_at = float("-inf")

    def observe(self, date: bytes | str | None, *, at_once: bool = False) -> None:
        """Set the clock by the Date header of a response: once a second, or at each call with `at_once`.

        A malformed date is ignored.
        """
        now = time.monotonic()
        if date is None or (now < self._observe_at and not at_once):
            return
        text = date if isinstance(date, str) else date.decode("latin-1")
        try:
            self._offset = parsedate_to_datetime(text).timestamp() - now
        except ValueError:
            return
        self._observe_at = now + OBSERVE_SECONDS

    @property
    def skew(self) -> float:
        """The seconds by which the store's clock is ahead of this machine's; negative if it is behind."""
        if self._offset is not None:
            return self._offset + time.monotonic() - time.time()
        return 0.0 if self._until_known is None else self._until_known.skew

    def now(self) -> datetime:
        """Return the store's time, in UTC."""
        return datetime.fromtimestamp(time.time() + self.skew, UTC)
