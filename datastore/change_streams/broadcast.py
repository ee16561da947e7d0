"""Fan-out of records to subscribers through bounded queues. A publisher never waits and never fails.

A subscriber that does not keep up loses events or is disconnected, by its overflow policy. It receives the number of
dropped events.
"""

import asyncio
from collections.abc import Callable, Hashable
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from datastore.errors import SlowSubscriber
from datastore.queues import BoundedQueue, OverflowPolicy, QueueLimits

T = TypeVar("T")
R = TypeVar("R")


class BroadcastSubscription(Generic[T]):
    """The events of one subscriber. Iterate it in one task, inside `async with` (or call `aclose`)."""

    #: The queued events.
    backlog: BoundedQueue[T]
    #: The broadcasters that it was added to.
    broadcasters: "list[Broadcaster[Any]]"
    #: The number of queued events that the last returned event replaced, or that were dropped before it.
    dropped: int

    def __init__(self, limits: QueueLimits, key: Callable[[T], Hashable] | None) -> None:
        self.backlog = BoundedQueue(limits)
        self.dropped = 0
        self._key = key if limits.policy is OverflowPolicy.LATEST else None
        self.broadcasters = []
        self._arrival: asyncio.Future[None] | None = None
        self._ended = False
        self._problem: Exception | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        if not self.backlog:
            await self.arrival()
        event, self.dropped = self.backlog.take()
        return event

    async def arrival(self) -> None:
        """Wait until an event is queued. At the end, raise `StopAsyncIteration` or the error of the subscription."""
        while not self.backlog:
            if self._problem is not None:
                raise self._problem.with_traceback(None)  # subscribers share it: keep no frames of others
            if self._ended:
                raise StopAsyncIteration
            self._arrival = asyncio.get_running_loop().create_future()
            try:
                await self._arrival
            finally:
                self._arrival = None

    @property
    def is_awaited(self) -> bool:
        """Whether the subscriber has taken all events, and awaits the next one."""
        return self._arrival is not None and not self.backlog

    def offer(self, select: Callable[[Any], T | None], record: Any) -> None:
        """Enqueue the event that `select` returns for a record. An error ends this subscription alone."""
        try:
            event = select(record)
            if event is None:
                return
            self.backlog.add(event, None if self._key is None else self._key(event))
        except SlowSubscriber as problem:
            self.backlog.clear()
            self.end(problem)
        except Exception as problem:
            self.end(problem)
        else:
            if self._arrival is not None and not self._arrival.done():
                self._arrival.set_result(None)

    def end(self, problem: Exception | None = None) -> None:
        """Accept no more events. After the queued events the iteration ends, or raises `problem`."""
        if not self._ended:
            self._ended, self._problem = True, problem
            for broadcaster in self.broadcasters:
                broadcaster.remove(self)
            if self._arrival is not None and not self._arrival.done():
                self._arrival.set_result(None)

    async def aclose(self) -> None:
        self.end()
        self.backlog.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class Broadcaster(Generic[R]):
    """A broadcaster of records. Publishing a record calls `select` once for each subscriber.

    `on_publish` is called with each record before the subscribers receive it.
    """

    def __init__(self, on_publish: Callable[[R], None] = lambda _: None) -> None:
        self._on_publish = on_publish
        # The subscribers, each with its `select`.
        self._subscribers: dict[BroadcastSubscription[Any], Callable[[R], Any]] = {}

    def subscribe(
        self,
        select: Callable[[R], T | None],
        *,
        limits: QueueLimits = QueueLimits(),  # noqa: B008 - a tuple
        key: Callable[[T], Hashable] | None = None,
    ) -> BroadcastSubscription[T]:
        """Return a subscription to records from now on. `select` returns the event of a record, or None to skip it.

        `key` returns the key of an event for the policy LATEST: the newest event of each key is queued. Without `key`
        only the newest of all events is.
        """
        subscription = BroadcastSubscription(limits, key)
        self.add(subscription, select)
        return subscription

    def add(self, subscription: BroadcastSubscription[T], select: Callable[[R], T | None]) -> None:
        """Add events of this broadcaster to a subscription, in the order of arrival, until either ends."""
        self._subscribers[subscription] = select
        subscription.broadcasters.append(self)

    def remove(self, subscription: BroadcastSubscription[Any]) -> None:
        """Add no more events to a subscription."""
        self._subscribers.pop(subscription, None)

    def publish(self, record: R) -> None:
        self._on_publish(record)
        for subscription, select in tuple(self._subscribers.items()):
            subscription.offer(select, record)

    def end(self, problem: Exception | None = None) -> None:
        """End all subscriptions. Each receives its queued events first."""
        for subscription in tuple(self._subscribers):
            subscription.end(problem)

    @property
    def subscriber_count(self) -> int:
        return len(self._subscribers)
