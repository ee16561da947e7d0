"""Fan-out of records to subscribers through bounded queues. A publisher never waits and never fails.

A subscriber that does not keep up loses events or is disconnected, by its overflow policy. It receives the number of
dropped events.
"""

import asyncio
from collections.abc import Callable, Hashable
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from datastore.errors import SlowSubscriber
from datastore.queues import BoundedQueue, QueueLimits

T = TypeVar("T")
R = TypeVar("R")


class TopicSubscription(Generic[T]):
    """The events of one subscriber. Iterate it in one task, inside `async with` (or call `aclose`)."""

    #: The number of queued events that the last returned event replaced, or that were dropped before it.
    dropped: int

    def __init__(
        self,
        select: Callable[[Any], T | None],
        backlog: BoundedQueue[T],
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
        self.dropped = 0

    def __len__(self) -> int:
        """Return the number of queued events."""
        return len(self._backlog)

    def __bool__(self) -> bool:
        return True

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        while not self._backlog:
            if self._problem is not None:
                raise self._problem.with_traceback(None)  # subscribers share it: keep no frames of others
            if self._ended:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
        event, self.dropped = self._backlog.take()
        return event

    def offer(self, record: Any) -> None:
        """Enqueue the event that `select` returns for a record. An error ends this subscription alone."""
        self.take_from(self._select, record)

    def take_from(self, select: Callable[[Any], T | None], record: Any) -> None:
        """Enqueue the event that the given `select` returns for a record, as `offer` does."""
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
        """Accept no more events. After the queued events the iteration ends, or raises `problem`."""
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
    """A second topic of a subscription. The subscription ends when that topic ends."""

    def __init__(
        self, subscription: TopicSubscription[T], select: Callable[[Any], T | None], forget: Callable[[Any], None]
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


class Broadcaster(Generic[R]):
    """A broadcaster with subscriptions by topic. Publishing a record calls `select` once for each subscriber.

    `before` is called with each record before the subscribers receive it.
    """

    def __init__(self, before: Callable[[R], None] = lambda _: None) -> None:
        self._before = before
        self._topics: dict[str, dict[int, TopicSubscription[Any] | Joined[Any]]] = {}

    def subscribe(
        self,
        topic: str,
        select: Callable[[R], T | None],
        *,
        limits: QueueLimits = QueueLimits(),  # noqa: B008 - a tuple
        key: Callable[[T], Hashable] | None = None,
    ) -> TopicSubscription[T]:
        """Return a subscription to records from now on. `select` returns the event of a record, or None to skip it.

        `key` returns the key of an event for the policy LATEST: the newest event of each key is queued. Without `key`
        only the newest of all events is.
        """
        backlog: BoundedQueue[T] = BoundedQueue(limits)
        subscription = TopicSubscription(select, backlog, key or (lambda _: None), partial(self._forget, topic))
        self._topics.setdefault(topic, {})[id(subscription)] = subscription
        return subscription

    def join(self, topic: str, subscription: TopicSubscription[T], select: Callable[[R], T | None]) -> Joined[T]:
        """Add the events of another topic to a subscription, in the order of arrival, until the context is left."""
        joined = Joined(subscription, select, partial(self._forget, topic))
        self._topics.setdefault(topic, {})[id(joined)] = joined
        return joined

    def publish(self, topic: str, record: R) -> None:
        self._before(record)
        for subscription in tuple(self._topics.get(topic, {}).values()):
            subscription.offer(record)

    def end(self, topic: str, problem: Exception | None = None) -> None:
        """End all subscriptions of a topic. Each receives its queued events first."""
        for subscription in tuple(self._topics.get(topic, {}).values()):
            subscription.end(problem)

    def count(self, topic: str) -> int:
        return len(self._topics.get(topic, {}))

    def _forget(self, topic: str, subscription: TopicSubscription[Any] | Joined[Any]) -> None:
        subscriptions = self._topics.get(topic, {})
        subscriptions.pop(id(subscription), None)
        if not subscriptions:
            self._topics.pop(topic, None)
