"""Bounded queues of events for subscribers, and what happens when a subscriber does not keep up."""

from collections import OrderedDict
from collections.abc import Hashable
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from datastore.errors import SlowSubscriber

T = TypeVar("T")

# The maximum of waiting events per subscriber, unless it requests fewer.
MAX_EVENTS = 1000


class OverflowPolicy(StrEnum):
    """What happens to a subscriber that does not keep up.

    CLOSE: its iteration raises `SlowSubscriber`. LATEST: of each key only the newest event waits; it is ended only when
    there is no place for the newest of all keys. BUFFER: the newest wait, and the oldest are left out.
    """

    CLOSE = "close"
    LATEST = "latest"
    BUFFER = "buffer"

    @property
    def count_field(self) -> str:
        """Return the extension that counts dropped events under this policy."""
        return "dropped" if self is OverflowPolicy.BUFFER else "conflated"


class QueueLimits(NamedTuple):
    """The limits of a slow subscriber's queue: its overflow policy and its maximum of events."""

    policy: OverflowPolicy = OverflowPolicy.CLOSE
    max_events: int = MAX_EVENTS

    @classmethod
    def of(cls, policy: OverflowPolicy, buffer: int) -> "QueueLimits":
        return cls(policy, buffer if policy is OverflowPolicy.BUFFER else MAX_EVENTS)

    @property
    def upstream(self) -> "QueueLimits":
        """What is kept on the way to the subscriber, where others are waited for: there nothing is dropped."""
        return QueueLimits(
            OverflowPolicy.LATEST if self.policy is OverflowPolicy.LATEST else OverflowPolicy.CLOSE, MAX_EVENTS
        )


class ByteBudget:
    """Bytes that may wait for one reader, in all that it follows; 0 is without limit."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit
        self.used = 0

    def fits(self, size: int, replaced: int = 0) -> bool:
        """Return whether `size` more bytes may wait, in place of `replaced`. An empty queue accepts any event."""
        left = self.used - replaced
        return not self.limit or not left or left + size <= self.limit


class _QueuedEvent(NamedTuple, Generic[T]):
    event: T
    size: int
    dropped: int


class BoundedQueue(Generic[T]):
    """What waits for one subscriber, within the room of its reader.

    What takes the place of another goes to the end of the line: what is taken is in the order in which it came, so
    that a client with an event has every earlier one, or a newer one of its key, or its count as dropped.
    """

    __slots__ = ("_budget", "_count", "_dropped_after", "_dropped_before", "_events", "_limits")

    def __init__(self, limits: QueueLimits, budget: ByteBudget | None = None) -> None:
        self._limits = limits
        self._budget = budget or ByteBudget()
        self._events: OrderedDict[Hashable, _QueuedEvent[T]] = OrderedDict()
        self._count = 0
        self._dropped_before = 0  # before the first that waits
        self._dropped_after = 0  # after the last

    def __len__(self) -> int:
        return len(self._events)

    @property
    def is_drained(self) -> bool:
        """Whether what is taken next tells of all that was left out: nothing waits, and nothing was dropped since."""
        return not (self._events or self._dropped_before or self._dropped_after)

    def add(self, event: T, key: Hashable = None, *, size: int = 0, dropped: int = 0) -> list[T]:
        """Enqueue an event of `size` bytes. Return the events dropped to make room, possibly this one.

        `left_out` is how many it stands for beside itself. Raises `SlowSubscriber`, and keeps what waits, when there is
        no place for it.
        """
        if self._limits.policy is OverflowPolicy.BUFFER:
            if not self._could_fit(size):  # other subscriptions of the reader take it up
                self._dropped_after += 1 + dropped
                return [event]
            dropped_events = self._drop_oldest(size)
            dropped, self._dropped_after = dropped + self._dropped_after, 0
        elif self._limits.policy is OverflowPolicy.LATEST:
            dropped_events = []
            replaced = self._events.get(key)
            if not self._fits(size, replaced):
                raise self._overflow_error()
            if replaced is not None:
                self._release_bytes(self._events.pop(key))
                dropped += 1 + replaced.dropped
                dropped_events.append(replaced.event)
        else:
            dropped_events = []
            if not self._fits(size):
                raise self._overflow_error()
        if self._limits.policy is not OverflowPolicy.LATEST:
            self._count += 1
            key = self._count
        self._events[key] = _QueuedEvent(event, size, dropped)
        self._budget.used += size
        return dropped_events

    def take(self) -> tuple[T, int]:
        """The first of those that wait, and how many were left out before it, or for it."""
        _, queued = self._events.popitem(last=False)
        self._release_bytes(queued)
        dropped, self._dropped_before = self._dropped_before, 0
        return queued.event, queued.dropped + dropped

    def clear(self) -> list[T]:
        """Those that waited."""
        events = [queued.event for queued in self._events.values()]
        for queued in self._events.values():
            self._release_bytes(queued)
        self._events.clear()
        return events

    def _drop_oldest(self, size: int) -> list[T]:
        dropped_events = []
        while self._events and not self._fits(size):
            _, oldest = self._events.popitem(last=False)
            self._release_bytes(oldest)
            self._dropped_before += 1 + oldest.dropped
            dropped_events.append(oldest.event)
        return dropped_events

    def _fits(self, size: int, instead: _QueuedEvent[T] | None = None) -> bool:
        if instead is not None:
            return self._budget.fits(size, instead.size)
        return len(self._events) < self._limits.max_events and self._budget.fits(size)

    def _could_fit(self, size: int) -> bool:
        """Whether there is place, or would be if nothing waited here."""
        return self._fits(size) or self._budget.fits(size, sum(one.size for one in self._events.values()))

    def _release_bytes(self, queued: _QueuedEvent[T]) -> None:
        self._budget.used -= queued.size

    def _overflow_error(self) -> SlowSubscriber:
        behind = len(self) + 1
        if len(self) < self._limits.max_events:
            found = f"This subscription left more than {self._budget.limit:,} bytes unread"
        else:
            found = f"This subscription fell {behind} changes behind"
        return SlowSubscriber(f"{found} and was disconnected; subscribe again.", behind=behind)
