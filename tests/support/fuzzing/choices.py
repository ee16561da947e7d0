"""Decisions made from bytes: the one source of chance of all generators."""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """Reads decisions from `data`, byte by byte. When the bytes run out, every decision is the first alternative.

    A generator lists its simplest alternative first, so that a shorter or smaller `data` makes a simpler example.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def is_spent(self) -> bool:
        """Whether all bytes have been read."""
        return self._at >= len(self._data)

    def below(self, limit: int) -> int:
        """Return a number from 0 to `limit` - 1, where 0 < `limit` <= 2 ** 24."""
        if limit <= 1:
            return 0
        at = self._at
        size = 1 if limit <= 256 else 2 if limit <= 65_536 else 3
        self._at = at + size
        return int.from_bytes(self._data[at : at + size], "big") % limit

    def rng(self, times: int, of: int = 16) -> bool:
        """Return True `times` out of `of`; False is the simpler alternative."""
        return self.below(of) >= of - times

    def pick(self, alternatives: Sequence[T]) -> T:
        """Return one of `alternatives`."""
        return alternatives[self.below(len(alternatives))]

    def usually(self, usual: T, others: Sequence[T], times: int = 2) -> T:
        """Return `usual`, or `times` out of 16 one of `others`."""
        return self.pick(others) if self.rng(times) else usual

    def some(self, make: Callable[[], T], most: int) -> list[T]:
        """Return up to `most` things that `make` makes."""
        return [make() for _ in range(self.below(most + 1))]

    def octets(self, most: int) -> bytes:
        """Return up to `most` arbitrary bytes."""
        size = self.below(most + 1)
        taken = self._data[self._at : self._at + size]
        self._at += size
        return taken
