"""A queue between a subscription and a consumer that requests one event after the other."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Hashable

from datastore.change_streams.subscriptions.resume_position import ResumePosition
from datastore.errors import SlowSubscriber
from datastore.queues import BoundedQueue, ByteBudget
from server.operations.outcome import Outcome, position_only
from server.subscriptions.subscriber import Listener, PullPosition, SubscriptionHandle


async def pulled(
    join: Callable[[Listener], SubscriptionHandle], pull_position: PullPosition, most_bytes: int = 0
) -> AsyncGenerator[Outcome, None]:
    """Yield the outcomes of the subscription that `join` starts. At most `most_bytes` of them are queued."""
    queue = PullQueue(most_bytes)
    queue.following = join(queue)
    pull_position.how = queue.settled_position
    try:
        while (outcome := await queue.next()) is not None:
            yield outcome
    finally:
        queue.following.stop()
        queue.clear()


class PullQueue:
    """A listener that queues outcomes until they are requested."""

    following: SubscriptionHandle

    def __init__(self, most_bytes: int) -> None:
        self.room = ByteBudget(most_bytes)
        self._waiting: BoundedQueue[Outcome] | None = None
        self._last: deque[Outcome | None] = deque()
        self._place: Outcome | None = None
        self._wake = asyncio.Event()
        self._drained = asyncio.Event()
        self._is_asked = False

    def deliver(self, outcome: Outcome, key: Hashable) -> None:
        following = self.following
        if self._waiting is None:
            self._waiting = BoundedQueue(following.keeping, self.room)
        try:
            dropped = self._waiting.add(outcome, key, size=len(outcome.body), dropped=outcome.dropped)
        except SlowSubscriber as problem:
            self._drained.set()
            for one in (*self._waiting.clear(), outcome):
                following.withdraw(one)
            following.stop(problem)
        else:
            for one in dropped:
                following.withdraw(one)
            self._wake.set()

    def send_position(self, event_id: str) -> None:
        self._place = position_only(event_id)
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
        """Return the position after all requested outcomes, while another is awaited."""
        if not self._is_asked or self._wake.is_set() or (self._waiting is not None and not self._waiting.is_drained):
            return None
        return self.following.settled_position()

    async def next(self) -> Outcome | None:
        while True:
            if self._place is not None:
                place, self._place = self._place, None
                return place
            if self._waiting:
                outcome, dropped = self._waiting.take()
                if not self._waiting:
                    self._drained.set()
                return outcome.with_dropped_under(dropped, self.following.keeping.policy.count_field)
            if self._last:
                return self._last.popleft()
            self._wake.clear()
            self._is_asked = True
            try:
                await self._wake.wait()
            finally:
                self._is_asked = False
