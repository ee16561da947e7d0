"""Bounded queues of events for subscribers, and what happens when a subscriber does not keep up."""

from collections import OrderedDict
from collections.abc import Hashable
from enum import StrEnum
from typing import Generic, NamedTuple, TypeVar

from datastore.errors import SlowSubscriber

T = TypeVar("T")

# So many events wait for a subscriber at the most, unless it asks for fewer.
WAITING_EVENTS = 1000


class OverflowPolicy(StrEnum):
    """What happens to a subscriber that does not keep up.

    CLOSE: its iteration raises `SlowSubscriber`. LATEST: of each key only the newest event waits; it is ended only when
    there is no place for the newest of all keys. BUFFER: the newest wait, and the oldest are left out.
    """

    CLOSE = "close"
    LATEST = "latest"
    BUFFER = "buffer"

    @property
    def tells(self) -> str:
        """What a client is told the number of, where something was left out."""
        return "dropped" if self is OverflowPolicy.BUFFER else "conflated"


class QueueLimits(NamedTuple):
    """What is kept for a subscriber that does not keep up: by this policy, so many events at the most."""

    policy: OverflowPolicy = OverflowPolicy.CLOSE
    most: int = WAITING_EVENTS

    @classmethod
    def of(cls, policy: OverflowPolicy, buffer: int) -> "QueueLimits":
        return cls(policy, buffer if policy is OverflowPolicy.BUFFER else WAITING_EVENTS)

    @property
    def before(self) -> "QueueLimits":
        """What is kept on the way to the subscriber, where others are waited for: there nothing is dropped."""
        return QueueLimits(
            OverflowPolicy.LATEST if self.policy is OverflowPolicy.LATEST else OverflowPolicy.CLOSE, WAITING_EVENTS
        )


class ByteBudget:
    """Bytes that may wait for one reader, in all that it follows; 0 is without limit."""

    __slots__ = ("most", "used")

    def __init__(self, most: int = 0) -> None:
        self.most = most
        self.used = 0

    def fits(self, size: int, instead: int = 0) -> bool:
        """Whether so many more may wait, `instead` of others. Where nothing else waits, anything may."""
        left = self.used - instead
        return not self.most or not left or left + size <= self.most


class _QueuedEvent(NamedTuple, Generic[T]):
    event: T
    size: int
    left_out: int


class BoundedQueue(Generic[T]):
    """What waits for one subscriber, within the room of its reader.

    What takes the place of another goes to the end of the line: what is taken is in the order in which it came, so
    that whoever has one has all that came before it, or something newer of the same key, or was told of it as dropped.
    """

    __slots__ = ("_count", "_dropped", "_dropped_last", "_keeping", "_line", "_room")

    def __init__(self, keeping: QueueLimits, room: ByteBudget | None = None) -> None:
        self._keeping = keeping
        self._room = room or ByteBudget()
        self._line: OrderedDict[Hashable, _QueuedEvent[T]] = OrderedDict()
        self._count = 0
        self._dropped = 0  # before the first that waits
        self._dropped_last = 0  # after the last

    def __len__(self) -> int:
        return len(self._line)

    @property
    def is_told(self) -> bool:
        """Whether what is taken next tells of all that was left out: nothing waits, and nothing was dropped since."""
        return not (self._line or self._dropped or self._dropped_last)

    def add(self, event: T, key: Hashable = None, *, size: int = 0, left_out: int = 0) -> list[T]:
        """Let it wait, of so many bytes; what is left out therefor, which may be this event itself.

        `left_out` is how many it stands for beside itself. Raises `SlowSubscriber`, and keeps what waits, when there is
        no place for it.
        """
        if self._keeping.policy is OverflowPolicy.BUFFER:
            if not self._can_have_place(size):  # other subscriptions of the reader take it up
                self._dropped_last += 1 + left_out
                return [event]
            gone = self._make_place(size)
            left_out, self._dropped_last = left_out + self._dropped_last, 0
        elif self._keeping.policy is OverflowPolicy.LATEST:
            gone = []
            replaced = self._line.get(key)
            if not self._has_place(size, replaced):
                raise self._slow()
            if replaced is not None:
                self._leave(self._line.pop(key))
                left_out += 1 + replaced.left_out
                gone.append(replaced.event)
        else:
            gone = []
            if not self._has_place(size):
                raise self._slow()
        if self._keeping.policy is not OverflowPolicy.LATEST:
            self._count += 1
            key = self._count
        self._line[key] = _QueuedEvent(event, size, left_out)
        self._room.used += size
        return gone

    def take(self) -> tuple[T, int]:
        """The first of those that wait, and how many were left out before it, or for it."""
        _, waiting = self._line.popitem(last=False)
        self._leave(waiting)
        dropped, self._dropped = self._dropped, 0
        return waiting.event, waiting.left_out + dropped

    def clear(self) -> list[T]:
        """Those that waited."""
        events = [waiting.event for waiting in self._line.values()]
        for waiting in self._line.values():
            self._leave(waiting)
        self._line.clear()
        return events

    def _make_place(self, size: int) -> list[T]:
        gone = []
        while self._line and not self._has_place(size):
            _, oldest = self._line.popitem(last=False)
            self._leave(oldest)
            self._dropped += 1 + oldest.left_out
            gone.append(oldest.event)
        return gone

    def _has_place(self, size: int, instead: _QueuedEvent[T] | None = None) -> bool:
        if instead is not None:
            return self._room.fits(size, instead.size)
        return len(self._line) < self._keeping.most and self._room.fits(size)

    def _can_have_place(self, size: int) -> bool:
        """Whether there is place, or would be if nothing waited here."""
        return self._has_place(size) or self._room.fits(size, sum(one.size for one in self._line.values()))

    def _leave(self, waiting: _QueuedEvent[T]) -> None:
        self._room.used -= waiting.size

    def _slow(self) -> SlowSubscriber:
        behind = len(self) + 1
        if len(self) < self._keeping.most:
            found = f"This subscription left more than {self._room.most:,} bytes unread"
        else:
            found = f"This subscription fell {behind} changes behind"
        return SlowSubscriber(f"{found} and was disconnected; subscribe again.", behind=behind)
