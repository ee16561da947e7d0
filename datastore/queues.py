"""Bounded queues of events for subscribers, their overflow policies, and byte budgets."""

from collections import OrderedDict
from collections.abc import Hashable
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from msgspec import Struct

from datastore.errors import SlowSubscriber

T = TypeVar("T")

# The maximum number of queued events of a subscriber, unless it requests fewer.
MAX_EVENTS = 1000


class OverflowPolicy(StrEnum):
    """The treatment of a full queue, whose subscriber does not keep up."""

    #: Drop no event: the subscription ends with `SlowSubscriber`.
    CLOSE = "close"
    #: Conflate: keep only the newest event of each key. If these exceed the limits, as CLOSE.
    LATEST = "latest"
    #: Keep the newest events, and drop the oldest.
    BUFFER = "buffer"

    @property
    def count_field(self) -> str:
        """Return the extension that counts dropped events under this policy."""
        return "dropped" if self is OverflowPolicy.BUFFER else "conflated"


class QueueLimits(NamedTuple):
    """The limits of a subscriber's queue: the overflow policy and the maximum number of events."""

    policy: OverflowPolicy = OverflowPolicy.CLOSE
    max_events: int = MAX_EVENTS

    @classmethod
    def of(cls, policy: OverflowPolicy, buffer: int) -> "QueueLimits":
        """Return the limits for a policy. `buffer` is the maximum number of events under the policy BUFFER."""
        return cls(policy, buffer if policy is OverflowPolicy.BUFFER else MAX_EVENTS)

    @property
    def upstream(self) -> "QueueLimits":
        """The limits of a queue between the source and the subscriber's own queue, which drops no event by itself.

        LATEST still conflates. Any other policy becomes CLOSE.
        """
        return QueueLimits(
            OverflowPolicy.LATEST if self.policy is OverflowPolicy.LATEST else OverflowPolicy.CLOSE, MAX_EVENTS
        )


class ByteBudget:
    """The bytes that all queues of one listener may hold together. A `limit` of 0 means no limit."""

    __slots__ = ("limit", "used")

    def __init__(self, limit: int = 0) -> None:
        self.limit = limit
        self.used = 0

    def fits(self, size: int, replaced: int = 0) -> bool:
        """Return whether an event of `size` bytes fits once `replaced` bytes are released.

        An event of any size fits while no other bytes are queued.
        """
        used = self.used - replaced
        return not self.limit or not used or used + size <= self.limit


class _QueuedEvent(Struct, Generic[T], frozen=True):
    event: T
    size: int
    dropped: int


class BoundedQueue(Generic[T]):
    """The events queued for one subscriber, within its limits and the byte budget of its listener.

    A replacement goes to the back, so events leave in arrival order: a client that has an event also has every earlier
    one, or a newer one with the same key, or has it counted as dropped.
    """

    __slots__ = ("_budget", "_count", "_dropped_after", "_dropped_before", "_events", "_limits")

    def __init__(self, limits: QueueLimits, budget: ByteBudget | None = None) -> None:
        self._limits = limits
        self._budget = budget or ByteBudget()
        self._events: OrderedDict[Hashable, _QueuedEvent[T]] = OrderedDict()
        self._count = 0
        self._dropped_before = 0  # events dropped before the first queued one
        self._dropped_after = 0  # events dropped after the last queued one

    def __len__(self) -> int:
        return len(self._events)

    @property
    def is_drained(self) -> bool:
        """Whether the queue is empty and every dropped event was counted by an event that has left the queue."""
        return not (self._events or self._dropped_before or self._dropped_after)

    def add(self, event: T, key: Hashable = None, *, size: int = 0, dropped: int = 0) -> list[T]:
        """Enqueue an event of `size` bytes. Return the events dropped to make room, possibly this one.

        `dropped` is the number of events that this event has already replaced.

        Raises: `SlowSubscriber` on overflow, without a change of the queue.
        """
        policy = self._limits.policy
        dropped_events: list[T] = []
        if policy is OverflowPolicy.LATEST:
            replaced = self._events.get(key)
            if not self._fits(size, replaced):
                raise self._overflow_error()
            if replaced is not None:
                self._release_bytes(self._events.pop(key))
                dropped += 1 + replaced.dropped
                dropped_events.append(replaced.event)
        else:
            if policy is OverflowPolicy.BUFFER:
                if not self._could_fit(size):  # other queues of the listener use up the byte budget
                    self._dropped_after += 1 + dropped
                    return [event]
                dropped_events = self._drop_oldest(size)
                dropped, self._dropped_after = dropped + self._dropped_after, 0
            elif len(self._events) >= self._limits.max_events or (self._budget.limit and not self._budget.fits(size)):
                raise self._overflow_error()
            self._count += 1
            key = self._count
        self._events[key] = _QueuedEvent(event, size, dropped)
        self._budget.used += size
        return dropped_events

    def take(self) -> tuple[T, int]:
        """Remove and return the first event, with the number of events dropped before it or replaced by it."""
        _, queued = self._events.popitem(last=False)
        self._budget.used -= queued.size
        dropped, self._dropped_before = self._dropped_before, 0
        return queued.event, queued.dropped + dropped

    def clear(self) -> list[T]:
        """Remove and return all events."""
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

    def _fits(self, size: int, replaced: _QueuedEvent[T] | None = None) -> bool:
        if replaced is not None:
            return self._budget.fits(size, replaced.size)
        return len(self._events) < self._limits.max_events and self._budget.fits(size)

    def _could_fit(self, size: int) -> bool:
        """Return whether the event fits, or would fit if this queue were empty."""
        return self._fits(size) or self._budget.fits(size, sum(queued.size for queued in self._events.values()))

    def _release_bytes(self, queued: _QueuedEvent[T]) -> None:
        self._budget.used -= queued.size

    def _overflow_error(self) -> SlowSubscriber:
        behind = len(self) + 1
        if len(self) < self._limits.max_events:
            reason = f"This subscription left more than {self._budget.limit:,} bytes unread"
        else:
            reason = f"This subscription fell {behind} changes behind"
        return SlowSubscriber(f"{reason} and was disconnected; subscribe again.", behind=behind)
