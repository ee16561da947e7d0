"""A connection to Redis with a limited bandwidth."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Line:
    """A proxy to Redis that passes back a limited number of bytes per second."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.bytes_per_second = float("inf")
        self._serving: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._begin, "127.0.0.1", 0)
        async with server:
            yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"
            for task in self._serving:
                task.cancel()
            await asyncio.gather(*self._serving, return_exceptions=True)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.add(asyncio.create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, asks = await asyncio.open_connection("127.0.0.1", self.port)
        asking = asyncio.create_task(self._ask(reader, asks))
        try:
            while part := await answers.read(16_384):
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(len(part) / self.bytes_per_second)
        except OSError:
            pass  # the reader has disconnected
        finally:
            asking.cancel()
            for end in (writer, asks):
                end.close()
            await asyncio.gather(asking, writer.wait_closed(), asks.wait_closed(), return_exceptions=True)

    async def _ask(self, reader: asyncio.StreamReader, asks: asyncio.StreamWriter) -> None:
        while part := await reader.read(16_384):
            asks.write(part)
        asks.close()
