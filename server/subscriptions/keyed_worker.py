"""Serial work per key: the work of one key runs in order, and delays no other key."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from datastore.errors import SlowSubscriber
from datastore.queues import BoundedQueue, QueueLimits

Key = TypeVar("Key", bound=Hashable)
Work = TypeVar("Work")


class KeyedWorkers(Generic[Key, Work]):
    """A worker with a bounded queue for each key that has work; `do` runs a piece of work.

    `do` also receives the number of pieces dropped before. `room` waits while more than `busy` keys have work.
    """

    def __init__(self, keeping: QueueLimits, busy: int, do: Callable[[Work, int], Coroutine[Any, Any, None]]) -> None:
        self._keeping = keeping
        self._busy = busy
        self._do = do
        self._lanes: dict[Key, BoundedQueue[Work]] = {}
        self._left = asyncio.Event()

    def __len__(self) -> int:
        return len(self._lanes)

    def __contains__(self, key: Key) -> bool:
        return key in self._lanes

    def put(self, tasks: asyncio.TaskGroup, key: Key, work: Work, of: Hashable, dropped: int = 0) -> None:
        """Enqueue work, or replace queued work with the same `of`. `dropped` counts the pieces dropped before.

        Raises `SlowSubscriber` on overflow, after dropping the queue of the key.
        """
        lane = self._lanes.get(key)
        if lane is not None:
            try:
                lane.add(work, of, dropped=dropped)
            except SlowSubscriber:
                lane.clear()
                raise
            return
        lane = self._lanes[key] = BoundedQueue(self._keeping)
        lane.add(work, of, dropped=dropped)
        tasks.create_task(self._work_off(key, lane))

    async def room(self) -> None:
        """Wait until at most `busy` keys have work."""
        while len(self._lanes) > self._busy:
            self._left.clear()
            await self._left.wait()

    async def _work_off(self, key: Key, lane: BoundedQueue[Work]) -> None:
        while lane:
            await self._do(*lane.take())
        del self._lanes[key]
        self._left.set()
