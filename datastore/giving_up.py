"""A loader whose batches can be given up: what is queued is not asked for when nobody waits for it any more."""

import asyncio
from collections.abc import Hashable
from typing import Any, TypeVar

from aiodataloader import DataLoader, Loader, dispatch_queue_batch, get_chunks

KeyT = TypeVar("KeyT", bound=Hashable)
ReturnT = TypeVar("ReturnT")


class Batches(DataLoader[KeyT, ReturnT]):
    """Sends what is asked for in one turn together, in tasks of its own.

    They outlive a reader who goes, since others may wait for the same; `give_up` ends them when none does.
    """

    def __init__(self, *, max_batch_size: int | None = None) -> None:
        super().__init__(max_batch_size=max_batch_size)
        self._batches: dict[asyncio.Task[None], list[Loader]] = {}
        self._waiting: set[asyncio.Task[None]] = set()

    def do_resolve_reject(self, key: KeyT, future: "asyncio.Future[ReturnT]") -> None:
        """Queue a read; the first of a batch has it sent."""
        self._queue.append(Loader(key=key, future=future))
        if len(self._queue) == 1:
            # As aiodataloader does it: behind all that is ready to run now.
            self.loop.call_soon(self._begin)

    def _begin(self) -> None:
        task = asyncio.ensure_future(self.dispatch())
        self._waiting.add(task)
        task.add_done_callback(self._waiting.discard)

    async def dispatch(self) -> None:
        """Send what is queued."""
        queue: list[Loader] = self._queue
        self._queue = []
        for chunk in get_chunks(queue, self.max_batch_size or len(queue) or 1):
            task = asyncio.ensure_future(dispatch_queue_batch(self, chunk))
            self._batches[task] = chunk
            task.add_done_callback(lambda ended: self._batches.pop(ended, None))

    def give_up(self) -> None:
        """End what is queued or on its way. Asked for again, it is read again."""
        left: list[Any] = [*self._queue, *(read for batch in self._batches.values() for read in batch)]
        self._queue = []
        for task in (*self._waiting, *self._batches):
            task.cancel()
        for read in left:
            if not read.future.done():
                read.future.cancel()
                self.clear(read.key)
