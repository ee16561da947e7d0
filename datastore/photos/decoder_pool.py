"""A bounded pool of decoder processes, so that concurrent uploads cannot exhaust the memory."""

import asyncio
from asyncio import Future, Lock, Semaphore
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from weakref import WeakValueDictionary

from datastore.photos.decoder import DecoderProcess
from datastore.photos.image_types import Picture, PictureType

# The gateway holds a file in memory while it examines it. The decoder holds its pixels: 160 MB for 40 megapixels, and
# about 650 MB in all for a WebP of that size.
FILE_CONCURRENCY, PICTURE_CONCURRENCY = 8, 2


class DecoderPool:
    """A pool of decoder processes, which start on demand. Each gateway process has one pool.

    For each user the pool holds one file and decodes one picture at a time, so that no user occupies all slots.
    `make_decoder` creates the proxy of a decoder process and of the processes that replace it.
    """

    def __init__(self, make_decoder: Callable[[], DecoderProcess] = DecoderProcess) -> None:
        self._file_slots = Semaphore(FILE_CONCURRENCY)
        self._picture_slots = Semaphore(PICTURE_CONCURRENCY)
        # The locks of users. An entry exists while a caller waits for the lock or holds it.
        self._file_locks: WeakValueDictionary[str, Lock] = WeakValueDictionary()
        self._picture_locks: WeakValueDictionary[str, Lock] = WeakValueDictionary()
        self._decoders = [make_decoder() for _ in range(PICTURE_CONCURRENCY)]
        self._free = list(self._decoders)
        # A separate executor: a decoder ends with the thread that started it, and no other work waits for decoders.
        self._threads: ThreadPoolExecutor | None = None

    @asynccontextmanager
    async def file_slot(self, user: str) -> AsyncIterator[None]:
        """Wait for a slot to hold a file in memory, and release it on exit."""
        async with self._file_locks.setdefault(user, Lock()), self._file_slots:
            yield

    async def examine(self, file: str, content: bytes, declared: PictureType, *, user: str) -> Picture:
        """Return the result of `DecoderProcess.examine`.

        A cancelled caller keeps its slots until the decoder has finished.
        """
        lock = self._picture_locks.setdefault(user, Lock())
        await lock.acquire()
        try:
            await self._picture_slots.acquire()
        except BaseException:
            lock.release()
            raise
        decoder = self._free.pop()
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._executor(), decoder.examine, file, content, declared)
        work.add_done_callback(partial(self._release, lock, decoder))
        return await asyncio.shield(work)

    def _executor(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(PICTURE_CONCURRENCY, thread_name_prefix="decoder")
        return self._threads

    def _release(self, lock: Lock, decoder: DecoderProcess, work: Future[Picture]) -> None:
        self._free.append(decoder)
        self._picture_slots.release()
        lock.release()
        if not work.cancelled():
            work.exception()  # mark as retrieved: the caller gets it from the await, and a cancelled caller needs none

    async def aclose(self) -> None:
        """Kill the decoders. A call that waits for a decoder raises `Unavailable`."""
        await asyncio.gather(*[asyncio.to_thread(decoder.close) for decoder in self._decoders])
        threads, self._threads = self._threads, None
        if threads is not None:
            await asyncio.to_thread(threads.shutdown)
