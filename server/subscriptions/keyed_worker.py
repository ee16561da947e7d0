"""Keyed workers: the work of one key runs in order and delays no other key."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from datastore.errors import SlowSubscriber
from datastore.queues import BoundedQueue, QueueLimits

Key = TypeVar("Key", bound=Hashable)
Work = TypeVar("Work")


class KeyedWorkers(Generic[Key, Work]):
    """A worker with a bounded queue for each key that has work.

    `do` runs a piece of work. It also receives the number of pieces that the queue dropped before it. `busy` is the
    number of keys with work above which `wait_for_capacity` waits.
    """

    def __init__(self, limits: QueueLimits, busy: int, do: Callable[[Work, int], Coroutine[Any, Any, None]]) -> None:
        self._limits = limits
        self._busy = busy
        self._do = do
        self._queues: dict[Key, BoundedQueue[Work]] = {}
        self._finished = asyncio.Event()  # set when a key has no more work

    def __len__(self) -> int:
        return len(self._queues)

    def __contains__(self, key: Key) -> bool:
        return key in self._queues

    def put(self, tasks: asyncio.TaskGroup, key: Key, work: Work, of: Hashable, dropped: int = 0) -> None:
        """Enqueue work, or replace queued work with the same `of`. `dropped` is the number of pieces dropped before.

        Raises: `SlowSubscriber` on overflow, after the queue of the key was cleared.
        """
        queue = self._queues.get(key)
        if queue is not None:
            try:
                queue.add(work, of, dropped=dropped)
            except SlowSubscriber:
                queue.clear()
                raise
            return
        queue = self._queues[key] = BoundedQueue(self._limits)
        queue.add(work, of, dropped=dropped)
        tasks.create_task(self._run(key, queue))

    async def wait_for_capacity(self) -> None:
        """Wait until at most `busy` keys have work."""
        while len(self._queues) > self._busy:
            self._finished.clear()
            await self._finished.wait()

    async def _run(self, key: Key, queue: BoundedQueue[Work]) -> None:
        while queue:
            await self._do(*queue.take())
        del self._queues[key]
        self._finished.set()
