"""The results of a subscription for a consumer that requests one after the other: a listener with a queue."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Hashable
from typing import Self

from datastore.change_streams.subscriptions.delivery import ResumePosition
from datastore.errors import SlowSubscriber
from datastore.queues import BoundedQueue, ByteBudget
from server.operations.outcome import Outcome, position_only
from server.subscriptions.subscriber import ENDED, Listener, SubscriptionHandle


class ResultStream:
    """The results of a subscription, to be iterated in one task and closed. The first request begins the subscription.

    It is the `Listener` that `follow` receives, and queues at most `max_bytes` of results. The position may be read
    from other tasks.
    """

    #: The resume id of the last event that the client received before; None until the subscription has begun.
    resumes_after: str | None

    def __init__(
        self,
        follow: Callable[[Listener], Awaitable[SubscriptionHandle]],
        resumes_after: str | None = None,
        max_bytes: int = 0,
    ) -> None:
        self.byte_budget = ByteBudget(max_bytes)
        self.resumes_after = None
        self._follow = follow
        self._resume_id = resumes_after
        self._handle: SubscriptionHandle | None = None
        self._queue: BoundedQueue[Outcome] | None = None
        # The outcome that ended the subscription, or None for an end without an error.
        self._last: deque[Outcome | None] = deque()
        self._position: Outcome | None = None
        self._wake = asyncio.Event()
        self._requested = asyncio.Event()
        self._is_over = False

    # The consumer

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Outcome:
        if self._is_over:
            raise StopAsyncIteration
        if self._handle is None:
            self._handle = await self._follow(self)
            self.resumes_after = None if self._handle is ENDED else self._resume_id
        outcome = await self._next()
        if outcome is None:
            await self.aclose()
            raise StopAsyncIteration
        return outcome

    async def aclose(self) -> None:
        """Stop the subscription, and drop the queue: the consumer has left."""
        self._is_over = True
        if self._handle is not None:
            self._handle.stop()
        self._queue = None
        self._requested.set()

    def settled_position(self) -> ResumePosition | None:
        """Return the position after all requested results. It is None unless the consumer awaits the next one."""
        is_drained = self._queue is None or self._queue.is_drained
        if self._handle is None or not self._requested.is_set() or self._wake.is_set() or not is_drained:
            return None
        return self._handle.settled_position()

    async def _next(self) -> Outcome | None:
        """Return the next outcome, or None at the end. Wait for it."""
        while True:
            if self._position is not None:
                position, self._position = self._position, None
                return position
            if self._queue:
                outcome, dropped = self._queue.take()
                return outcome.with_dropped_under(dropped, self._policy_field)
            if self._last:
                return self._last.popleft()
            self._wake.clear()
            self._requested.set()
            try:
                await self._wake.wait()
            finally:
                self._requested.clear()

    # Listener

    def deliver(self, outcome: Outcome, key: Hashable) -> None:
        handle = self._handle or ENDED
        if self._queue is None:
            self._queue = BoundedQueue(handle.limits, self.byte_budget)
        try:
            dropped = self._queue.add(outcome, key, size=len(outcome.body), dropped=outcome.dropped)
        except SlowSubscriber as problem:
            self._requested.set()
            for withdrawn in (*self._queue.clear(), outcome):
                handle.withdraw(withdrawn)
            handle.stop(problem)
        else:
            for withdrawn in dropped:
                handle.withdraw(withdrawn)
            self._wake.set()

    def send_position(self, event_id: str) -> None:
        self._position = position_only(event_id)
        self._wake.set()

    def finish(self, outcome: Outcome | None) -> None:
        self._last.append(outcome)
        self._wake.set()

    async def drained(self) -> None:
        """Wait until the consumer has taken all results, and requests the next one."""
        while not self._is_over and not self._last and (self._queue or not self._requested.is_set()):
            if self._queue:
                self._requested.clear()
            await self._requested.wait()

    @property
    def _policy_field(self) -> str:
        return (self._handle or ENDED).limits.policy.count_field
