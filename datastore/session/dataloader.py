"""A dataloader with batches that can be cancelled, queued or in flight, when no caller waits for them."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterable, Sequence
from functools import partial
from typing import Any, Generic, Self, TypeVar

from aiodataloader import DataLoader
from msgspec import Struct

KeyT = TypeVar("KeyT", bound=Hashable)
ReturnT = TypeVar("ReturnT")


class Failure:
    """The error of a read. Each waiter raises it with its original traceback, without the frames of other waiters."""

    __slots__ = ("_traceback", "error")

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self._traceback = error.__traceback__

    def exception(self) -> BaseException:
        return self.error.with_traceback(self._traceback)


class Read(Struct, Generic[KeyT, ReturnT], eq=False):
    """The read of one key: in flight while it has a `batch`, then with a `value`, which may be a `Failure`."""

    key: KeyT
    batch: "ReadBatch | None"
    #: A `ReturnT` or a `Failure`: callers check its class once.
    value: Any = None


class ReadBatch(Struct, eq=False):
    """Reads that are sent together, and a future for each waiter."""

    reads: list[Read[Any, Any]] = []
    waiters: list[asyncio.Future[None]] = []
    #: Stops the reads of a batch that is in flight without a task.
    cancel: Callable[[], None] | None = None


class CancellableDataLoader(DataLoader[KeyT, ReturnT]):
    """A dataloader that sends the reads of one turn of the event loop together, in its own tasks or without one.

    A batch outlives a cancelled caller, since others may wait for the same read; `abandon` cancels all batches. Reads
    carry no future: a batch completes as a whole, and each waiter has its own future, which it can cancel alone.
    """

    #: Set while the reads are held back, until `_wait_for_release` has returned.
    _released: asyncio.Event | None = None
    #: The class of the reads.
    _read_class: type[Read[Any, Any]] = Read

    def __init__(self, *, max_batch_size: int | None = None) -> None:
        # Without super().__init__(), which inspects the class each time: half the cost of a loader.
        self.loop = asyncio.get_event_loop()
        self.max_batch_size = max_batch_size
        self._reads: dict[KeyT, Read[KeyT, ReturnT]] = {}
        self._queued: list[ReadBatch] = []
        self._sent: set[ReadBatch] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def load(self, key: KeyT) -> "asyncio.Future[ReturnT]":
        """Enqueue a read at once. Return its result as a future."""
        return self.loop.create_task(self._result(self._read_for(key)))

    async def fetch(self, key: KeyT) -> ReturnT:
        """Return the result. Cancelling one caller does not cancel the read for others."""
        return await self._result(self._read_for(key))

    def clear(self, key: KeyT) -> Self:
        self._reads.pop(key, None)
        return self

    def clear_all(self) -> Self:
        self._reads.clear()
        return self

    def prime(self, key: KeyT, value: ReturnT) -> Self:
        if key not in self._reads:
            read_value = Failure(value) if isinstance(value, BaseException) else value
            self._reads[key] = self._read_class(key, None, read_value)
        return self

    def has(self, key: KeyT) -> bool:
        """Return whether the key was read or primed, or its read is queued or in flight."""
        return key in self._reads

    def _read_for(self, key: KeyT) -> Read[KeyT, ReturnT]:
        return self._reads.get(key) or self._enqueue(self._read_class(key, None))

    def _enqueue(self, read: Read[KeyT, ReturnT]) -> Read[KeyT, ReturnT]:
        """Add a read to the batch. The first one schedules the dispatch."""
        queued = self._queued
        if not queued:
            queued.append(ReadBatch())
            # Like aiodataloader: after all callbacks that are ready now, and those that they schedule.
            self.loop.call_soon(self.loop.call_soon, self._dispatch, queued)
        batch = queued[-1]
        if len(batch.reads) == self.max_batch_size:
            batch = ReadBatch()
            queued.append(batch)
        read.batch = batch
        self._reads[read.key] = read
        batch.reads.append(read)
        return read

    async def _result(self, read: Read[KeyT, ReturnT]) -> ReturnT:
        if read.batch is not None:
            await self._waiter(read.batch)
        value: ReturnT = read.value
        if value.__class__ is Failure:
            raise read.value.exception()
        return value

    def _waiter(self, batch: ReadBatch) -> "asyncio.Future[None]":
        """Return a future for one waiter, done when the batch has arrived."""
        waiter = self.loop.create_future()
        batch.waiters.append(waiter)
        return waiter

    def _dispatch(self, batches: list[ReadBatch]) -> None:
        """Send the queued `batches`, unless they were abandoned."""
        if self._queued is not batches:
            return
        if self._released is None and len(batches) == 1 and self._begin(batches[0]):
            self._queued = []
            if batches[0].cancel is not None:
                self._sent.add(batches[0])
        else:
            self._start_task(batches)

    def _begin(self, _batch: ReadBatch) -> bool:
        """Send a batch without a task, and set its `cancel` until `_complete` is called. Return whether it was sent."""
        return False

    def _start_task(self, batches: list[ReadBatch], batch: ReadBatch | None = None) -> None:
        """Send the queued `batches`, or the only `batch` of the list, in a task."""
        task = self.loop.create_task(self._send(batch))
        self._tasks.add(task)
        task.add_done_callback(partial(self._task_done, batches))

    def _task_done(self, batches: list[ReadBatch], task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():
            # A shutdown cancels tasks too, perhaps before they began.
            if self._queued is batches:
                self._queued = []
            self._abandon_batches(batches)

    async def _wait_for_release(self) -> None:
        """Wait until the reads are no longer held back."""

    async def _send(self, batch: ReadBatch | None = None) -> None:
        """Send a batch; without one, the queued batches after the hold: the first here, the others in own tasks."""
        if batch is None:
            if self._released is not None:
                await self._wait_for_release()
            batches, self._queued = self._queued, []
            if not batches:
                return
            self._sent.update(batches)
            for other in batches[1:]:
                self._start_task([other], other)
            del batches[1:]
            batch = batches[0]
        reads = batch.reads
        values: Sequence[Any]
        try:
            values = await self._load(reads)
            if len(values) != len(reads):
                raise ValueError(f"{len(reads)} keys were read, and {len(values)} values were returned.")
        except Exception as problem:
            values = [problem] * len(reads)
        except BaseException:
            self._sent.discard(batch)
            raise
        self._complete(batch, values)

    def _complete(self, batch: ReadBatch, values: Sequence[Any]) -> None:
        """Complete the reads of a batch, each with its value or exception, and wake its waiters."""
        for read, value in zip(batch.reads, values, strict=True):
            if isinstance(value, BaseException):
                self._fail(read, value)
            else:
                read.value = value
                read.batch = None
        batch.cancel = None
        self._sent.discard(batch)
        for waiter in batch.waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _load(self, reads: list[Read[KeyT, ReturnT]]) -> Coroutine[Any, Any, list[Any]]:
        """Return the value of each read, or its exception."""
        return self.batch_load_fn([read.key for read in reads])

    def _fail(self, read: Read[KeyT, ReturnT], problem: BaseException) -> None:
        """Complete a read with an error. The loader does not keep it: the next read of the key is sent."""
        if self._reads.get(read.key) is read:
            del self._reads[read.key]
        if read.batch is not None:
            read.value = Failure(problem)
            read.batch = None

    def abandon(self) -> None:
        """Cancel the batches that are queued or in flight. A later read of their keys is sent again."""
        if not (self._queued or self._sent):
            return
        batches = [*self._queued, *self._sent]
        self._queued = []
        for task in self._tasks:
            task.cancel()
        self._abandon_batches(batches)

    def _abandon_batches(self, batches: Iterable[ReadBatch]) -> None:
        """Cancel the waiters of batches that no task sends any more, and forget their reads."""
        for batch in batches:
            if batch.cancel is not None:
                batch.cancel()
            self._sent.discard(batch)
            for read in batch.reads:
                if read.batch is not None:
                    self._fail(read, asyncio.CancelledError())
            for waiter in batch.waiters:
                waiter.cancel()
