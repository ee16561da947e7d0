"""Hands records to subscribers through bounded queues: whoever publishes never waits and never fails.

A subscriber that cannot keep up is disconnected, or given only the newest per key: its choice, never silent loss.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from enum import StrEnum
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from datastore.errors import SlowSubscriber

T = TypeVar("T")
R = TypeVar("R")


class Policy(StrEnum):
    """What happens to a subscriber that does not keep up.

    DISCONNECT: its iteration raises `SlowSubscriber`. LATEST: of each key only the newest event waits; it is
    disconnected only when more than `capacity` different keys wait.
    """

    DISCONNECT = "disconnect"
    LATEST = "latest"


class Backlog(Generic[T]):
    """What waits for one subscriber, by its policy; `most` of them at the most.

    What takes the place of another goes to the end of the line: what is taken is in the order in which it came, so
    that whoever has one has all that came before it, or something newer of the same key.
    """

    __slots__ = ("_keyed", "_line", "_most")

    def __init__(self, policy: Policy, most: int) -> None:
        self._most = most
        self._line: deque[T] = deque()
        self._keyed: dict[Hashable, T] | None = {} if policy is Policy.LATEST else None

    def __len__(self) -> int:
        return len(self._line if self._keyed is None else self._keyed)

    def add(self, event: T, key: Hashable) -> T | None:
        """Let it wait; what it took the place of. Raises `SlowSubscriber` when as many wait as may."""
        replaced = None if self._keyed is None else self._keyed.pop(key, None)
        if len(self) >= self._most:
            behind = len(self) + 1
            message = f"This subscription fell {behind} changes behind and was disconnected; subscribe again."
            raise SlowSubscriber(message, behind=behind)
        if self._keyed is None:
            self._line.append(event)
        else:
            self._keyed[key] = event
        return replaced

    def take(self) -> T:
        """The first of those that wait."""
        return self._line.popleft() if self._keyed is None else self._keyed.pop(next(iter(self._keyed)))

    def clear(self) -> None:
        self._line.clear()
        if self._keyed is not None:
            self._keyed.clear()


class Subscription(Generic[T]):
    """One subscriber's events: iterate it in one task, inside `async with` (or call `aclose`).

    `conflated` counts the events that a newer one of the same key replaced while they waited.
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
        self.conflated = 0

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
        return self._backlog.take()

    def offer(self, record: Any) -> None:
        """Take what `select` makes of a record. Whatever goes wrong ends this subscription and nothing else."""
        try:
            event = self._select(record)
            if event is not None:
                self._add(event)
        except SlowSubscriber as problem:
            self._backlog.clear()
            self.end(problem)
        except Exception as problem:
            self.end(problem)

    def _add(self, event: T) -> None:
        self.conflated += self._backlog.add(event, self._key(event)) is not None
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


class Hub(Generic[R]):
    """Subscriptions by topic. Publishing costs one `select` for each subscriber of the topic.

    `before` hears of each record before any subscriber does.
    """

    def __init__(self, before: Callable[[R], None] = lambda _: None) -> None:
        self._before = before
        self._topics: dict[str, dict[int, Subscription[Any]]] = {}

    def subscribe(
        self,
        topic: str,
        select: Callable[[R], T | None],
        *,
        capacity: int = 256,
        policy: Policy = Policy.DISCONNECT,
        key: Callable[[T], Hashable] | None = None,
    ) -> Subscription[T]:
        """Events from now on. `select` makes a record into an event, or skips it with None; it runs while publishing.

        `key` is for the policy LATEST; without it only the newest event of all waits.
        """
        backlog: Backlog[T] = Backlog(policy, capacity)
        subscription = Subscription(select, backlog, key or (lambda _: None), lambda one: self._forget(topic, one))
        self._topics.setdefault(topic, {})[id(subscription)] = subscription
        return subscription

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

    def _forget(self, topic: str, subscription: Subscription[Any]) -> None:
        subscriptions = self._topics.get(topic, {})
        subscriptions.pop(id(subscription), None)
        if not subscriptions:
            self._topics.pop(topic, None)
