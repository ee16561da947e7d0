"""Decoders of pictures, few at once, so that many uploads do not take all memory."""

import asyncio
from asyncio import Future, Lock, Semaphore
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from weakref import WeakValueDictionary

from datastore.photos.decoder import Decoder
from datastore.photos.pictures import Picture, PictureType

# A file is held in memory as long as it is looked at, and while it is decoded its pixels are, in the decoder: those of
# 40 megapixels take 160 MB, and some 650 MB in all as WebP.
FILES_AT_ONCE, PICTURES_AT_ONCE = 8, 2


class DecoderPool:
    """Decoder processes, which are started when they are needed. One pool for each gateway process.

    Of one user (`whose`) one file is held and one picture decoded at a time, so that nobody takes all places.
    `make_decoder` makes what stands for one process and its successors.
    """

    def __init__(self, make_decoder: Callable[[], Decoder] = Decoder) -> None:
        self._files = Semaphore(FILES_AT_ONCE)
        self._pixels = Semaphore(PICTURES_AT_ONCE)
        # As long as somebody waits for them or has them.
        self._holding: WeakValueDictionary[str, Lock] = WeakValueDictionary()
        self._looking: WeakValueDictionary[str, Lock] = WeakValueDictionary()
        self._decoders = [make_decoder() for _ in range(PICTURES_AT_ONCE)]
        self._free = list(self._decoders)
        # Of its own: a decoder dies with the thread that started it, and nobody waits behind one for other threads.
        self._threads: ThreadPoolExecutor | None = None

    @asynccontextmanager
    async def room(self, whose: str) -> AsyncIterator[None]:
        """Wait for room to hold a file in memory."""
        async with self._holding.setdefault(whose, Lock()), self._files:
            yield

    async def examine(self, file: str, content: bytes, declared: PictureType, *, whose: str) -> Picture:
        """See `Decoder.examine`. The places of a caller that goes away are free when the decoder is done."""
        turn = self._looking.setdefault(whose, Lock())
        await turn.acquire()
        try:
            await self._pixels.acquire()
        except BaseException:
            turn.release()
            raise
        decoder = self._free.pop()
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._executor(), decoder.examine, file, content, declared)
        work.add_done_callback(partial(self._ended, turn, decoder))
        return await asyncio.shield(work)

    def _executor(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(PICTURES_AT_ONCE, thread_name_prefix="decoder")
        return self._threads

    def _ended(self, turn: Lock, decoder: Decoder, work: Future[Picture]) -> None:
        self._free.append(decoder)
        self._pixels.release()
        turn.release()
        if not work.cancelled():
            work.exception()  # it was raised to the caller; one that has gone away leaves nobody to hear of it

    async def aclose(self) -> None:
        """Kill the decoders. A call that waits for a decoder raises `Unavailable`."""
        await asyncio.gather(*[asyncio.to_thread(decoder.close) for decoder in self._decoders])
        threads, self._threads = self._threads, None
        if threads is not None:
            await asyncio.to_thread(threads.shutdown)
