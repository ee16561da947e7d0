"""Quotas: the number of things that a caller or an address may hold at once, and the process in total."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from datastore.errors import Throttled, Unavailable

RETRY_SECONDS = 5


class KeyedQuota:
    """A quota: `limit` units in total, and `per_key` units for each key. 0 is unlimited.

    Messages name the units `noun`, and the owner of a key `holder`.
    """

    def __init__(self, noun: str, limit: int, per_key: int, holder: str = "caller") -> None:
        self._noun = noun
        self.limit = limit
        self._per_key = per_key
        self._holder = holder
        self._taken: Counter[str] = Counter()
        self.total = 0

    def acquire(self, key: str, count: int = 1, *, exempt: bool = False) -> None:
        """Take `count` units. `release` returns them. For an `exempt` key only the limit of the process applies.

        Raises:
            Throttled: the key has reached its limit.
            Unavailable: the process has reached its limit.
        """
        if self._per_key and not exempt and self._taken[key] + count > self._per_key:
            self._forget(key)
            message = f"A {self._holder} may have {self._per_key:,} {self._noun} at once: close one first."
            raise Throttled(message, retryAfter=RETRY_SECONDS)
        if self.limit and self.total + count > self.limit:
            self._forget(key)
            message = f"All {self.limit:,} {self._noun} of this server are taken; try again in a moment."
            raise Unavailable(message, retryAfter=RETRY_SECONDS)
        self.add(key, count)

    def add(self, key: str, count: int = 1) -> None:
        """Take units regardless of the limits."""
        self._taken[key] += count
        self.total += count

    def release(self, key: str, count: int = 1) -> None:
        self._taken[key] -= count
        self.total -= count
        self._forget(key)

    def held_by(self, key: str) -> int:
        """Return the units that the key has taken."""
        return self._taken.get(key, 0)

    def transfer(self, before: str, key: str) -> None:
        """Transfer one unit to another key. Raises `Throttled` if that key has reached its limit."""
        if before == key:
            return
        if self._per_key and self.held_by(key) >= self._per_key:
            raise Throttled(
                f"A {self._holder} may have {self._per_key:,} {self._noun} at once.", retryAfter=RETRY_SECONDS
            )
        self.release(before)
        self.add(key)

    @contextmanager
    def holding(self, key: str) -> Iterator[None]:
        """Take one unit for the duration of a block."""
        self.acquire(key)
        try:
            yield
        finally:
            self.release(key)

    def _forget(self, key: str) -> None:
        if not self._taken[key]:
            del self._taken[key]
