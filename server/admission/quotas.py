"""Places of which there are so many: for each caller or address, and for the process."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from datastore.errors import Throttled, Unavailable

RETRY_SECONDS = 5


class KeyedQuota:
    """`what` is there `most` times in all, and `each` times for one key; 0 is without limit."""

    def __init__(self, what: str, most: int, each: int, whose: str = "caller") -> None:
        self._what = what
        self.most = most
        self._each = each
        self._whose = whose
        self._taken: Counter[str] = Counter()
        self.total = 0

    def take(self, key: str, many: int = 1, *, exempt: bool = False) -> None:
        """Take places, which `leave` gives back. A key that is `exempt` may have any number, as long as there are some.

        Raises `Throttled` when the key has all of its own, and `Unavailable` when there is none left for anybody.
        """
        if self._each and not exempt and self._taken[key] + many > self._each:
            self._forget(key)
            message = f"A {self._whose} may have {self._each:,} {self._what} at once: close one first."
            raise Throttled(message, retryAfter=RETRY_SECONDS)
        if self.most and self.total + many > self.most:
            self._forget(key)
            message = f"All {self.most:,} {self._what} of this server are taken; try again in a moment."
            raise Unavailable(message, retryAfter=RETRY_SECONDS)
        self.add(key, many)

    def add(self, key: str, many: int = 1) -> None:
        """Count more, whether there are places or not."""
        self._taken[key] += many
        self.total += many

    def leave(self, key: str, many: int = 1) -> None:
        self._taken[key] -= many
        self.total -= many
        self._forget(key)

    def of(self, key: str) -> int:
        """How many the key has."""
        return self._taken.get(key, 0)

    def move(self, before: str, key: str) -> None:
        """Let a place that is taken count for another key. Raises `Throttled` when that has all of its own."""
        if before == key:
            return
        if self._each and self.of(key) >= self._each:
            raise Throttled(f"A {self._whose} may have {self._each:,} {self._what} at once.", retryAfter=RETRY_SECONDS)
        self.leave(before)
        self.add(key)

    @contextmanager
    def taken(self, key: str) -> Iterator[None]:
        """Hold a place meanwhile."""
        self.take(key)
        try:
            yield
        finally:
            self.leave(key)

    def _forget(self, key: str) -> None:
        if not self._taken[key]:
            del self._taken[key]
