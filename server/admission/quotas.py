"""Quotas: a limit for each caller or address, and a limit for the process."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from datastore.errors import Throttled, Unavailable

RETRY_SECONDS = 5


class KeyedQuota:
    """A quota of `what`: `most` in all, and `each` for one key; 0 is unlimited. `whose` names a key in messages."""

    def __init__(self, what: str, most: int, each: int, whose: str = "caller") -> None:
        self._what = what
        self.most = most
        self._each = each
        self._whose = whose
        self._taken: Counter[str] = Counter()
        self.total = 0

    def take(self, key: str, many: int = 1, *, exempt: bool = False) -> None:
        """Take `many` units of the quota, which `leave` releases. An `exempt` key has only the limit of the process.

        Raises:
            Throttled: the key has reached its limit.
            Unavailable: the process has reached its limit.
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
        """Take units beyond any limit."""
        self._taken[key] += many
        self.total += many

    def leave(self, key: str, many: int = 1) -> None:
        self._taken[key] -= many
        self.total -= many
        self._forget(key)

    def of(self, key: str) -> int:
        """Return the units that the key has taken."""
        return self._taken.get(key, 0)

    def move(self, before: str, key: str) -> None:
        """Transfer one unit to another key. Raises `Throttled` if that has reached its limit."""
        if before == key:
            return
        if self._each and self.of(key) >= self._each:
            raise Throttled(f"A {self._whose} may have {self._each:,} {self._what} at once.", retryAfter=RETRY_SECONDS)
        self.leave(before)
        self.add(key)

    @contextmanager
    def taken(self, key: str) -> Iterator[None]:
        """Take one unit for the duration of a block."""
        self.take(key)
        try:
            yield
        finally:
            self.leave(key)

    def _forget(self, key: str) -> None:
        if not self._taken[key]:
            del self._taken[key]
