"""A queue between a subscription and a consumer that requests one event after the other."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Hashable

from datastore.change_streams.subscriptions.resume_position import ResumePosition
from datastore.errors import SlowSubscriber
from datastore.queues import BoundedQueue, ByteBudget
from server.operations.outcome import Outcome, position_only
from server.subscriptions.result_stream import RequestedResults
from server.subscriptions.subscriber import Listener, SubscriptionHandle


def pulled(
    join: Callable[[Listener], SubscriptionHandle], resumes_after: str | None, max_bytes: int = 0
) -> RequestedResults:
    """Return the results of the subscription that `join` starts. At most `max_bytes` of them are queued."""
    queue = PullQueue(max_bytes)
    return RequestedResults(_results(queue, join), queue.settled_position, resumes_after)


async def _results(queue: "PullQueue", join: Callable[[Listener], SubscriptionHandle]) -> AsyncGenerator[Outcome, None]:
    queue.following = join(queue)
    try:
        while (outcome := await queue.next()) is not None:
            yield outcome
    finally:
        queue.following.stop()
        queue.clear()


class PullQueue:
    """A listener that queues outcomes until they are requested."""

    #: The handle of the subscription. The subscription exists once this listener has been passed to it.
    following: SubscriptionHandle

    def __init__(self, max_bytes: int) -> None:
        self.byte_budget = ByteBudget(max_bytes)
        self._waiting: BoundedQueue[Outcome] | None = None
        # The outcome that ended the subscription, or None for an end without an error.
        self._last: deque[Outcome | None] = deque()
        self._position: Outcome | None = None
        self._wake = asyncio.Event()
        self._drained = asyncio.Event()
        self._is_requested = False

    def deliver(self, outcome: Outcome, key: Hashable) -> None:
        following = self.following
        if self._waiting is None:
            self._waiting = BoundedQueue(following.limits, self.byte_budget)
        try:
            dropped = self._waiting.add(outcome, key, size=len(outcome.body), dropped=outcome.dropped)
        except SlowSubscriber as problem:
            self._drained.set()
            for withdrawn in (*self._waiting.clear(), outcome):
                following.withdraw(withdrawn)
            following.stop(problem)
        else:
            for withdrawn in dropped:
                following.withdraw(withdrawn)
            self._wake.set()

    def send_position(self, event_id: str) -> None:
        self._position = position_only(event_id)
        self._wake.set()

    def finish(self, outcome: Outcome | None) -> None:
        self._last.append(outcome)
        self._wake.set()

    def clear(self) -> None:
        """Drop the queue: the consumer has left."""
        self._waiting = None
        self._drained.set()

    async def drained(self) -> None:
        while self._waiting:
            self._drained.clear()
            await self._drained.wait()

    def settled_position(self) -> ResumePosition | None:
        """Return the position after all requested outcomes, while the consumer awaits the next; None at other times."""
        is_drained = self._waiting is None or self._waiting.is_drained
        if not self._is_requested or self._wake.is_set() or not is_drained:
            return None
        return self.following.settled_position()

    async def next(self) -> Outcome | None:
        """Return the next outcome, or None at the end. Wait for it."""
        while True:
            if self._position is not None:
                position, self._position = self._position, None
                return position
            if self._waiting:
                outcome, dropped = self._waiting.take()
                if not self._waiting:
                    self._drained.set()
                return outcome.with_dropped_under(dropped, self.following.limits.policy.count_field)
            if self._last:
                return self._last.popleft()
            self._wake.clear()
            self._is_requested = True
            try:
                await self._wake.wait()
            finally:
                self._is_requested = False
