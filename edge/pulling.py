"""The events of a group for one who asks for each of them."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Hashable

from datastore.errors import SlowSubscriber
from datastore.hub import Backlog
from edge.answers import Outcome, place_only
from edge.members import Member
from edge.subscribers import Listener
from resolvers.subscribing import WAITING_EVENTS


async def pulled(join: Callable[[Listener], Member]) -> AsyncGenerator[Outcome, None]:
    """The events of a group that is joined by this, each when it is asked for."""
    queue = Queue()
    queue.member = join(queue)
    try:
        while (outcome := await queue.next()) is not None:
            yield outcome
    finally:
        queue.member.stop()


class Queue:
    """A listener that keeps what it is told until it is asked for."""

    member: Member

    def __init__(self) -> None:
        self._waiting: Backlog[Outcome] | None = None
        self._last: deque[Outcome | None] = deque()
        self._place: Outcome | None = None
        self._wake = asyncio.Event()

    def deliver(self, outcome: Outcome, key: Hashable) -> None:
        if self._waiting is None:
            self._waiting = Backlog(self.member.policy, WAITING_EVENTS)
        try:
            replaced = self._waiting.add(outcome, key)
        except SlowSubscriber as problem:
            self.member.withdraw(outcome)
            while self._waiting:
                self.member.withdraw(self._waiting.take())
            self.member.stop(problem)
        else:
            if replaced is not None:
                self.member.withdraw(replaced)
            self._wake.set()

    def stands(self, event_id: str) -> None:
        self._place = place_only(event_id)
        self._wake.set()

    def finish(self, outcome: Outcome | None) -> None:
        self._last.append(outcome)
        self._wake.set()

    async def drained(self) -> None:
        """A group does not wait."""

    async def next(self) -> Outcome | None:
        while True:
            if self._place is not None:
                place, self._place = self._place, None
                return place
            if self._waiting:
                return self._waiting.take()
            if self._last:
                return self._last.popleft()
            self._wake.clear()
            await self._wake.wait()
