"""A relay of bytes between admitted connections and an embedded engine that listens on a separate address.

It serves systems that cannot close that address to other processes (see `seccomp` for systems that can).
"""

import asyncio
import socket
from contextlib import suppress
from pathlib import Path
from typing import cast

CONNECT_SECONDS = 1.0


class ByteRelay:
    """A relay between admitted clients and an engine that listens at this host and port, or Unix socket."""

    problem: OSError | None = None

    def __init__(self, address: tuple[str, int] | Path) -> None:
        self._address = address
        self._open: set[asyncio.Transport] = set()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Do nothing: the relay needs no set-up before the first connection."""

    async def admit(self, client: socket.socket, head: bytes) -> None:
        """Connect to the engine, send it the `head`, and relay bytes in both directions. Raises `OSError`."""
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_SECONDS):
            to_engine, engine_end = await self._connect(loop)
        engine_end.transport.pause_reading()
        to_engine.write(head)
        try:
            _, client_end = await loop.create_connection(lambda: _End(self._open, engine_end), sock=client)
        except BaseException:
            to_engine.abort()
            raise
        engine_end.other = client_end
        if engine_end.transport.is_closing():  # the engine has closed its end in the meantime
            client_end.transport.close()
        engine_end.transport.resume_reading()

    async def _connect(self, loop: asyncio.AbstractEventLoop) -> tuple[asyncio.Transport, "_End"]:
        if isinstance(self._address, tuple):
            return await loop.create_connection(lambda: _End(self._open), *self._address)
        return await loop.create_unix_connection(lambda: _End(self._open), str(self._address))

    def close(self) -> None:
        """Close all connections."""
        for transport in tuple(self._open):
            transport.abort()


class _End(asyncio.Protocol):
    """One of the two connections. Received bytes are sent over the other one."""

    transport: asyncio.Transport

    def __init__(self, all_open: set[asyncio.Transport], other: "_End | None" = None) -> None:
        self.other = other
        self._all_open = all_open

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._all_open.add(self.transport)

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            self.other.transport.write(data)

    def eof_received(self) -> bool:
        if self.other is not None and self.other.transport.can_write_eof():
            with suppress(OSError):
                self.other.transport.write_eof()
        return True

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, problem: Exception | None) -> None:
        self._all_open.discard(self.transport)
        if self.other is not None:
            self.other.transport.close()
