"""Hands records to subscribers through bounded queues: whoever publishes never waits and never fails.

Of what a subscriber cannot take in time some is left out, or it ends: its choice, and it is told how much it was.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from enum import StrEnum
from types import TracebackType
from typing import Any, Generic, NamedTuple, Self, TypeVar

from datastore.errors import SlowSubscriber

T = TypeVar("T")
R = TypeVar("R")


# So many events wait for a subscriber at the most, unless it asks for fewer.
WAITING_EVENTS = 1000


class Policy(StrEnum):
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
        return "dropped" if self is Policy.BUFFER else "conflated"


class Keeping(NamedTuple):
    """What is kept for a subscriber that does not keep up: by this policy, so many events at the most."""

    policy: Policy = Policy.CLOSE
    most: int = WAITING_EVENTS

    @classmethod
    def of(cls, policy: Policy, buffer: int) -> "Keeping":
        return cls(policy, buffer if policy is Policy.BUFFER else WAITING_EVENTS)

    @property
    def before(self) -> "Keeping":
        """What is kept on the way to the subscriber, where others are waited for: there nothing is dropped."""
        return Keeping(Policy.LATEST if self.policy is Policy.LATEST else Policy.CLOSE, WAITING_EVENTS)


class Room:
    """Bytes that may wait for one reader, in all that it follows; 0 is without limit."""

    __slots__ = ("most", "used")

    def __init__(self, most: int = 0) -> None:
        self.most = most
        self.used = 0

    def fits(self, size: int, instead: int = 0) -> bool:
        """Whether so many more may wait, `instead` of others. Where nothing else waits, anything may."""
        left = self.used - instead
        return not self.most or not left or left + size <= self.most


class _Waiting(NamedTuple, Generic[T]):
    event: T
    size: int
    left_out: int


class Backlog(Generic[T]):
    """What waits for one subscriber, within the room of its reader.

    What takes the place of another goes to the end of the line: what is taken is in the order in which it came, so
    that whoever has one has all that came before it, or something newer of the same key, or was told of it as dropped.
    """

    __slots__ = ("_count", "_dropped", "_dropped_last", "_keeping", "_line", "_room")

    def __init__(self, keeping: Keeping, room: Room | None = None) -> None:
        self._keeping = keeping
        self._room = room or Room()
        self._line: OrderedDict[Hashable, _Waiting[T]] = OrderedDict()
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
        if self._keeping.policy is Policy.BUFFER:
            if not self._can_have_place(size):  # other subscriptions of the reader take it up
                self._dropped_last += 1 + left_out
                return [event]
            gone = self._make_place(size)
            left_out, self._dropped_last = left_out + self._dropped_last, 0
        elif self._keeping.policy is Policy.LATEST:
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
        if self._keeping.policy is not Policy.LATEST:
            self._count += 1
            key = self._count
        self._line[key] = _Waiting(event, size, left_out)
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

    def _has_place(self, size: int, instead: _Waiting[T] | None = None) -> bool:
        if instead is not None:
            return self._room.fits(size, instead.size)
        return len(self._line) < self._keeping.most and self._room.fits(size)

    def _can_have_place(self, size: int) -> bool:
        """Whether there is place, or would be if nothing waited here."""
        return self._has_place(size) or self._room.fits(size, sum(one.size for one in self._line.values()))

    def _leave(self, waiting: _Waiting[T]) -> None:
        self._room.used -= waiting.size

    def _slow(self) -> SlowSubscriber:
        behind = len(self) + 1
        if len(self) < self._keeping.most:
            found = f"This subscription left more than {self._room.most:,} bytes unread"
        else:
            found = f"This subscription fell {behind} changes behind"
        return SlowSubscriber(f"{found} and was disconnected; subscribe again.", behind=behind)


class Subscription(Generic[T]):
    """One subscriber's events: iterate it in one task, inside `async with` (or call `aclose`).

    `left_out` counts the events that a newer one replaced while they waited, for the one that was given last.
    """

    def __init__(
        self,
        select: Callable[[Any], T | None],
        backlog: Backlog[T],
        key: Callable[[T], Hashable],
        forget: Callable[[Any], None],
    ) -> None:
        self._select = select
        self._backlog = backlog
        self._key = key
        self._forget = forget
        self._wake = asyncio.Event()
        self._ended = False
        self._problem: Exception | None = None
        self.left_out = 0

    def __len__(self) -> int:
        """How many events wait."""
        return len(self._backlog)

    def __bool__(self) -> bool:
        return True

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        while not self._backlog:
            if self._problem is not None:
                raise self._problem.with_traceback(None)  # subscribers may share it: keep no other's frames
            if self._ended:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
        event, self.left_out = self._backlog.take()
        return event

    def offer(self, record: Any) -> None:
        """Take what `select` makes of a record. Whatever goes wrong ends this subscription and nothing else."""
        self.take_from(self._select, record)

    def take_from(self, select: Callable[[Any], T | None], record: Any) -> None:
        """Take what a `select` makes of a record, as `offer` does."""
        try:
            event = select(record)
            if event is not None:
                self._add(event)
        except SlowSubscriber as problem:
            self._backlog.clear()
            self.end(problem)
        except Exception as problem:
            self.end(problem)

    def _add(self, event: T) -> None:
        self._backlog.add(event, self._key(event))
        self._wake.set()

    def end(self, problem: Exception | None = None) -> None:
        """No more events. Those that wait are still delivered, then the iteration ends, or raises `problem`."""
        if not self._ended:
            self._ended, self._problem = True, problem
            self._forget(self)
            self._wake.set()

    async def aclose(self) -> None:
        self.end()
        self._backlog.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class Joined(Generic[T]):
    """Records of another topic for a subscription: it ends when that topic ends."""

    def __init__(
        self, subscription: Subscription[T], select: Callable[[Any], T | None], forget: Callable[[Any], None]
    ) -> None:
        self._subscription = subscription
        self._select = select
        self._forget = forget

    def offer(self, record: Any) -> None:
        self._subscription.take_from(self._select, record)

    def end(self, problem: Exception | None = None) -> None:
        self._forget(self)
        self._subscription.end(problem)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._forget(self)


class Hub(Generic[R]):
    """Subscriptions by topic. Publishing costs one `select` for each subscriber of the topic.

    `before` hears of each record before any subscriber does.
    """

    def __init__(self, before: Callable[[R], None] = lambda _: None) -> None:
        self._before = before
        self._topics: dict[str, dict[int, Subscription[Any] | Joined[Any]]] = {}

    def subscribe(
        self,
        topic: str,
        select: Callable[[R], T | None],
        *,
        keeping: Keeping = Keeping(),  # noqa: B008 - a tuple
        key: Callable[[T], Hashable] | None = None,
    ) -> Subscription[T]:
        """Events from now on. `select` makes a record into an event, or skips it with None; it runs while publishing.

        `key` is for the policy LATEST; without it only the newest event of all waits.
        """
        backlog: Backlog[T] = Backlog(keeping)
        subscription = Subscription(select, backlog, key or (lambda _: None), lambda one: self._forget(topic, one))
        self._topics.setdefault(topic, {})[id(subscription)] = subscription
        return subscription

    def join(self, topic: str, subscription: Subscription[T], select: Callable[[R], T | None]) -> Joined[T]:
        """Add events of another topic to a subscription, in the order in which they come, until the context is left."""
        joined = Joined(subscription, select, lambda one: self._forget(topic, one))
        self._topics.setdefault(topic, {})[id(joined)] = joined
        return joined

    def publish(self, topic: str, record: R) -> None:
        self._before(record)
        for subscription in tuple(self._topics.get(topic, {}).values()):
            subscription.offer(record)

    def end(self, topic: str, problem: Exception | None = None) -> None:
        """End all subscriptions of a topic; each gets what waits for it first."""
        for subscription in tuple(self._topics.get(topic, {}).values()):
            subscription.end(problem)

    def count(self, topic: str) -> int:
        return len(self._topics.get(topic, {}))

    def _forget(self, topic: str, subscription: Subscription[Any] | Joined[Any]) -> None:
        subscriptions = self._topics.get(topic, {})
        subscriptions.pop(id(subscription), None)
        if not subscriptions:
            self._topics.pop(topic, None)
