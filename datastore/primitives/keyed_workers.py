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

    `do` runs a piece of work of a key. It also receives the number of pieces that the queue dropped before it.
    `discard` is called with each piece that is not run. `busy` is the number of keys with work above which
    `wait_for_capacity` waits.
    """

    def __init__(
        self,
        limits: QueueLimits,
        busy: int,
        do: Callable[[Key, Work, int], Coroutine[Any, Any, None]],
        discard: Callable[[Work], None] = lambda _: None,
    ) -> None:
        self._limits = limits
        self._busy = busy
        self._do = do
        self._discard = discard
        #: The queue of each key that has work, in progress or queued.
        self.pending: dict[Key, BoundedQueue[Work]] = {}
        self._finished = asyncio.Event()  # set when a key has no more work

    def put(self, tasks: asyncio.TaskGroup, key: Key, work: Work, of: Hashable, dropped: int = 0) -> None:
        """Enqueue work, or replace queued work with the same `of`. `dropped` is the number of pieces dropped before.

        Raises: `SlowSubscriber` on overflow, after the queue of the key was cleared.
        """
        queue = self.pending.get(key)
        if queue is not None:
            try:
                self._discard_all(queue.add(work, of, dropped=dropped))
            except SlowSubscriber:
                self._discard_all([*queue.clear(), work])
                raise
            return
        queue = self.pending[key] = BoundedQueue(self._limits)
        queue.add(work, of, dropped=dropped)
        # A task that is cancelled before its first step runs nothing of `_run`.
        tasks.create_task(self._run(key, queue)).add_done_callback(lambda _: self._discard_all(queue.clear()))

    def _discard_all(self, pieces: list[Work]) -> None:
        for work in pieces:
            self._discard(work)

    async def wait_for_capacity(self) -> None:
        """Wait until at most `busy` keys have work."""
        while len(self.pending) > self._busy:
            self._finished.clear()
            await self._finished.wait()

    async def _run(self, key: Key, queue: BoundedQueue[Work]) -> None:
        while queue:
            await self._do(key, *queue.take())
        del self.pending[key]
        self._finished.set()
