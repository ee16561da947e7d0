"""A loader whose batches can be given up: what is queued is not asked for when nobody waits for it any more."""

import asyncio
from collections.abc import Coroutine, Hashable, Iterable
from functools import partial
from typing import Any, Generic, Self, TypeVar

from aiodataloader import DataLoader

KeyT = TypeVar("KeyT", bound=Hashable)
ReturnT = TypeVar("ReturnT")


class Failure:
    """What went wrong with a read, for each who waits for it: with the traceback of what failed, and no reader's."""

    __slots__ = ("_traceback", "error")

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self._traceback = error.__traceback__

    def exception(self) -> BaseException:
        return self.error.with_traceback(self._traceback)


class Read(Generic[KeyT, ReturnT]):
    """What is read of one key: on its way while it has a `batch`, then a `value`, which may be a `Failure`."""

    __slots__ = ("batch", "key", "value")

    def __init__(self, key: KeyT, batch: "ReadBatch | None", value: ReturnT | Failure | None = None) -> None:
        self.key = key
        self.batch = batch
        # Any, so that it is taken out at a glance: a `Failure` here is one of an `Exception`.
        self.value: Any = value


class ReadBatch:
    """Reads that go out together, and a future for each who waits for any of them."""

    __slots__ = ("reads", "waiters")

    def __init__(self) -> None:
        self.reads: list[Read[Any, Any]] = []
        self.waiters: list[asyncio.Future[None]] = []


class CancellableDataLoader(DataLoader[KeyT, ReturnT]):
    """Sends what is asked for in one turn together, in tasks of its own.

    They outlive a reader who goes, since others may wait for the same; `give_up` ends them when none does.

    A read has no future: all of a batch are there at once, and whoever waits has one for themselves.
    """

    def __init__(self, *, max_batch_size: int | None = None) -> None:
        # As aiodataloader's own does it, which also looks into the class each time: half of what a loader cost.
        self.loop = asyncio.get_event_loop()
        self.max_batch_size = max_batch_size
        self._reads: dict[KeyT, Read[KeyT, ReturnT]] = {}
        self._queued: list[ReadBatch] = []
        self._sent: set[ReadBatch] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def load(self, key: KeyT) -> "asyncio.Future[ReturnT]":
        """What `wait` brings, asked for at once."""
        return self.loop.create_task(self._result(self._read_for(key)))

    async def fetch(self, key: KeyT) -> ReturnT:
        """What is found. One reader's cancellation is not the others': they wait for the same read."""
        return await self._result(self._read_for(key))

    def clear(self, key: KeyT) -> Self:
        self._reads.pop(key, None)
        return self

    def clear_all(self) -> Self:
        self._reads.clear()
        return self

    def prime(self, key: KeyT, value: ReturnT) -> Self:
        if key not in self._reads:
            self._reads[key] = Read(key, None, Failure(value) if isinstance(value, BaseException) else value)
        return self

    def has(self, key: KeyT) -> bool:
        """Whether it was read already, or is on its way."""
        return key in self._reads

    def _read_for(self, key: KeyT) -> Read[KeyT, ReturnT]:
        return self._reads.get(key) or self._enqueue(key)

    def _enqueue(self, key: KeyT) -> Read[KeyT, ReturnT]:
        """Queue a read; the first of those that go out together has them sent."""
        queued = self._queued
        if not queued:
            queued.append(ReadBatch())
            # As aiodataloader does it: behind all that is ready to run now.
            self.loop.call_soon(self._start_dispatch)
        elif len(queued[-1].reads) == self.max_batch_size:
            queued.append(ReadBatch())
        batch = queued[-1]
        read = self._reads[key] = Read(key, batch)
        batch.reads.append(read)
        return read

    async def _result(self, read: Read[KeyT, ReturnT]) -> ReturnT:
        if read.batch is not None:
            await self._waiter(read.batch)
        value: ReturnT | Failure = read.value
        if isinstance(value, Failure):
            raise value.exception()
        return value

    def _waiter(self, batch: ReadBatch) -> "asyncio.Future[None]":
        """What one reader waits for, until the batch is there: theirs alone, so that they may cancel it."""
        waiter = self.loop.create_future()
        batch.waiters.append(waiter)
        return waiter

    def _start_dispatch(self) -> None:
        self._start_task(self.dispatch(), self._queued)

    def _start_task(self, work: Coroutine[Any, Any, None], batches: list[ReadBatch]) -> None:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(partial(self._task_done, batches))

    def _task_done(self, batches: list[ReadBatch], task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            # Perhaps before it began, and not by `give_up`: a shutdown ends tasks, too.
            if self._queued is batches:
                self._queued = []
            self._abandon_batches(batches)

    async def dispatch(self) -> None:
        """Send what is queued: a first batch in this task, others at its side."""
        batches, self._queued = self._queued, []
        self._sent.update(batches)
        for batch in batches[1:]:
            self._start_task(self._send_batch(batch), [batch])
        del batches[1:]
        if batches:
            await self._send_batch(batches[0])

    async def _send_batch(self, batch: ReadBatch) -> None:
        reads = batch.reads
        try:
            values = await self.batch_load_fn([read.key for read in reads])
            for read, value in zip(reads, values, strict=True):
                if isinstance(value, BaseException):
                    self._fail(read, value)
                else:
                    read.value = value
                    read.batch = None
        except Exception as problem:
            for read in reads:
                self._fail(read, problem)
        finally:
            self._sent.discard(batch)
        for waiter in batch.waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _fail(self, read: Read[KeyT, ReturnT], problem: BaseException) -> None:
        """A failure is told to those who wait for it, and not remembered: asked for again, it is read again."""
        if self._reads.get(read.key) is read:
            del self._reads[read.key]
        if read.batch is not None:
            read.value = Failure(problem)
            read.batch = None

    def abandon(self) -> None:
        """End what is queued or on its way. Asked for again, it is read again."""
        left = [*self._queued, *self._sent]
        self._queued = []
        for task in self._tasks:
            task.cancel()
        self._abandon_batches(left)

    def _abandon_batches(self, batches: Iterable[ReadBatch]) -> None:
        """Nobody brings them any more: whoever waits for one is cut off, and nothing is remembered of it."""
        for batch in batches:
            self._sent.discard(batch)
            for read in batch.reads:
                if read.batch is not None:
                    self._fail(read, asyncio.CancelledError())
            for waiter in batch.waiters:
                waiter.cancel()
