"""A cache that evicts its least recently used entries."""

from collections import OrderedDict
from collections.abc import Callable
from math import inf
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class LruCache(Generic[K, V]):
    """A cache of at most `max_entries` entries, whose sizes add up to at most `max_size`.

    `size_of` returns the size of an entry. An entry that is larger than `max_size` is not kept, and
    evicts no other. A value is never None.
    """

    __slots__ = ("_entries", "_max_entries", "_max_size", "_size_of", "peek", "size")

    def __init__(
        self, max_entries: float = inf, *, max_size: float = inf, size_of: Callable[[K, V], int] | None = None
    ) -> None:
        self._entries: OrderedDict[K, V] = OrderedDict()
        self._max_entries = max_entries
        self._max_size = max_size
        self._size_of = size_of
        #: The sum of the sizes.
        self.size = 0
        #: Returns the value of a key, or None. It does not count as use.
        self.peek: Callable[[K], V | None] = self._entries.get

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def get(self, key: K) -> V | None:
        """Return the value of a key, which is the most recently used one afterwards, or None."""
        value = self._entries.get(key)
        if value is not None:
            self._entries.move_to_end(key)
        return value

    def put(self, key: K, value: V) -> None:
        """Store the value of a key, which is the most recently used one afterwards, and evict others as needed."""
        self.pop(key)
        size = 0 if self._size_of is None else self._size_of(key, value)
        if size > self._max_size:
            return
        self._entries[key] = value
        self.size += size
        while len(self._entries) > self._max_entries or self.size > self._max_size:
            self.pop(self.least_recent())

    def pop(self, key: K) -> V | None:
        """Remove a key. Return its value, or None if there was none."""
        value = self._entries.pop(key, None)
        if value is not None and self._size_of is not None:
            self.size -= self._size_of(key, value)
        return value

    def least_recent(self) -> K:
        """Return the least recently used key. Raises `StopIteration` if there is none."""
        return next(iter(self._entries))

    def clear(self) -> None:
        self._entries.clear()
        self.size = 0
