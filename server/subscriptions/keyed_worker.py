"""Work for several, side by side: what is for one of them is done in its order, and holds up none of the others."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any, Generic, TypeVar

from datastore.errors import SlowSubscriber
from datastore.queues import BoundedQueue, QueueLimits

Key = TypeVar("Key", bound=Hashable)
Work = TypeVar("Work")


class KeyedWorkers(Generic[Key, Work]):
    """A lane for each key that has something to do; `do` is what is done with a piece of work.

    What a lane has no time for waits in it as `keeping` says; `do` is told how much was left out for it. `busy` lanes
    are no reason to wait with more, however long theirs takes.
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

    def put(self, tasks: asyncio.TaskGroup, key: Key, work: Work, of: Hashable, left_out: int = 0) -> None:
        """Have it done after what waits in its lane, or instead of what waits there `of` the same.

        `left_out` is how much was left out for this before.

        Raises `SlowSubscriber` when too much does: then nothing of that is done any more.
        """
        lane = self._lanes.get(key)
        if lane is not None:
            try:
                lane.add(work, of, dropped=left_out)
            except SlowSubscriber:
                lane.clear()
                raise
            return
        lane = self._lanes[key] = BoundedQueue(self._keeping)
        lane.add(work, of, dropped=left_out)
        tasks.create_task(self._work_off(key, lane))

    async def room(self) -> None:
        """Until no more than so many are busy."""
        while len(self._lanes) > self._busy:
            self._left.clear()
            await self._left.wait()

    async def _work_off(self, key: Key, lane: BoundedQueue[Work]) -> None:
        while lane:
            await self._do(*lane.take())
        del self._lanes[key]
        self._left.set()
