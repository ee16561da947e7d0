"""The time of a store by the Date header of its answers, whatever the clock of this machine says.

Times of records in streams, signatures and presigned URLs go by the store's clock.
"""

import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

NOTE_SECONDS = 1.0


class StoreClock:
    """The clock of a store, which tells its time in whole seconds: this one is at most about a second behind it.

    Until the store has answered it is the clock `until_known`, or else this machine's. Between answers it goes by the
    monotonic clock, so setting this machine's clock does not change it. Notes may come from any thread.
    """

    def __init__(self, until_known: "StoreClock | None" = None) -> None:
        self._until_known = until_known
        self._began: float | None = None  # the store's time less that of the monotonic clock
        self._note_at = float("-inf")

    def note(self, date: bytes | str | None, *, at_once: bool = False) -> None:
        """Take the Date header of an answer: one a second, or each with `at_once`. What is no date is ignored."""
        now = time.monotonic()
        if date is None or (now < self._note_at and not at_once):
            return
        text = date if isinstance(date, str) else date.decode("latin-1")
        try:
            self._began = parsedate_to_datetime(text).timestamp() - now
        except ValueError:
            return
        self._note_at = now + NOTE_SECONDS

    @property
    def skew(self) -> float:
        """By how many seconds the store's clock is ahead of this machine's; negative where it is behind."""
        if self._began is not None:
            return self._began + time.monotonic() - time.time()
        return 0.0 if self._until_known is None else self._until_known.skew

    def now(self) -> datetime:
        """Return the store's time, in UTC."""
        return datetime.fromtimestamp(time.time() + self.skew, UTC)
