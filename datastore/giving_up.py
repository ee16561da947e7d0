"""A loader whose batches can be given up: what is queued is not asked for when nobody waits for it any more."""

import asyncio
from collections.abc import Coroutine, Hashable
from functools import partial
from typing import Any, TypeVar

from aiodataloader import DataLoader, Loader

KeyT = TypeVar("KeyT", bound=Hashable)
ReturnT = TypeVar("ReturnT")
Waiter = asyncio.Future[None]


class Batches(DataLoader[KeyT, ReturnT]):
    """Sends what is asked for in one turn together, in tasks of its own.

    They outlive a reader who goes, since others may wait for the same; `give_up` ends them when none does.
    """

    def __init__(self, *, max_batch_size: int | None = None) -> None:
        # As aiodataloader's own does it, which also looks into the class each time: half of what a loader cost.
        self.loop = asyncio.get_event_loop()
        self.max_batch_size = max_batch_size
        self._cache = {}
        self._queue: list[Loader] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._on_their_way: dict[int, list[Loader]] = {}
        self._waiters: dict[asyncio.Future[ReturnT], list[Waiter]] = {}

    def get_cache_key(self, key: KeyT) -> KeyT:
        return key

    async def wait(self, key: KeyT) -> ReturnT:
        """What `load` brings. One reader's cancellation is not the others': they wait for the same read.

        As `asyncio.shield` does it, but with a future alone for each reader, and one turn of the loop less.
        """
        read = self._cache.get(key)
        if read is None:
            read = self._cache[key] = self.loop.create_future()
            self.do_resolve_reject(key, read)
        if not read.done():
            await self._over(read)
        return read.result()

    def _over(self, read: asyncio.Future[ReturnT]) -> Waiter:
        """What one reader waits for, until the read is done."""
        waiter: Waiter = self.loop.create_future()
        self._waiters.setdefault(read, []).append(waiter)
        return waiter

    def do_resolve_reject(self, key: KeyT, future: "asyncio.Future[ReturnT]") -> None:
        """Queue a read; the first of a batch has it sent."""
        self._queue.append(Loader(key=key, future=future))
        if len(self._queue) == 1:
            # As aiodataloader does it: behind all that is ready to run now.
            self.loop.call_soon(self._begin)

    def _begin(self) -> None:
        self._start(self.dispatch(), self._queue)

    def _start(self, work: Coroutine[Any, Any, None], reads: list[Loader]) -> None:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, reads))

    def _ended(self, reads: list[Loader], task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            # Perhaps before it began, and not by `give_up`: a shutdown ends tasks, too.
            self._on_their_way.pop(id(reads), None)
            if self._queue is reads:
                self._queue = []
            self._let_go(reads)

    async def dispatch(self) -> None:
        """Send what is queued: a first batch in this task, others at its side."""
        queue, self._queue = self._queue, []
        size = self.max_batch_size or len(queue) or 1
        batches = [queue[at : at + size] for at in range(0, len(queue), size)]
        for batch in batches:
            self._on_their_way[id(batch)] = batch
        for batch in batches[1:]:
            self._start(self._send(batch), batch)
        if batches:
            await self._send(batches[0])

    async def _send(self, batch: list[Loader]) -> None:
        """As aiodataloader's `dispatch_queue_batch`, without its doubts about what `batch_load_fn` is and answers."""
        try:
            values = await self.batch_load_fn([read.key for read in batch])
            for read, value in zip(batch, values, strict=True):
                if read.future.done():
                    continue
                if isinstance(value, Exception):
                    read.future.set_exception(value)
                else:
                    read.future.set_result(value)
        except Exception as problem:  # of a batch that fails nothing is remembered
            for read in batch:
                self.clear(read.key)
                if not read.future.done():
                    read.future.set_exception(problem)
        finally:
            self._on_their_way.pop(id(batch), None)
        for read in batch:
            self._wake(read.future)

    def _wake(self, read: asyncio.Future[ReturnT]) -> None:
        for waiter in self._waiters.pop(read, ()):
            if not waiter.done():
                waiter.set_result(None)
            elif not read.cancelled():
                read.exception()  # seen: whoever waited for it has gone

    def give_up(self) -> None:
        """End what is queued or on its way. Asked for again, it is read again."""
        left = [*self._queue, *(read for batch in self._on_their_way.values() for read in batch)]
        self._queue, self._on_their_way = [], {}
        for task in self._tasks:
            task.cancel()
        self._let_go(left)

    def _let_go(self, reads: list[Loader]) -> None:
        """Nobody brings them any more: whoever waits for one is cut off, and nothing is remembered of it."""
        for read in reads:
            if not read.future.done():
                read.future.cancel()
                self.clear(read.key)
                self._wake(read.future)
