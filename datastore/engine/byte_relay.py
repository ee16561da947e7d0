"""A relay of bytes between admitted connections and an embedded engine that listens on a separate address.

It serves systems that cannot close that address to other processes (see `seccomp` for systems that can).
"""

import asyncio
import socket
from pathlib import Path

from datastore.primitives.tasks import cancel

CONNECT_SECONDS = 1.0
CHUNK_BYTES = 2**16

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class ByteRelay:
    """A relay between admitted clients and an engine that listens at this host and port, or Unix socket."""

    problem: OSError | None = None

    def __init__(self, address: tuple[str, int] | Path) -> None:
        self._address = address
        # The tasks that relay, each with the connections that it closes at its end.
        self._relays: dict[asyncio.Task[None], tuple[Connection, Connection]] = {}

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Do nothing: the relay needs no set-up before the first connection."""

    async def admit(self, client: socket.socket, head: bytes) -> None:
        """Connect to the engine, send it the `head`, and relay bytes in both directions. Raises `OSError`."""
        async with asyncio.timeout(CONNECT_SECONDS):
            engine = await self._connect()
        engine[1].write(head)
        try:
            ends = engine, await asyncio.open_connection(sock=client)
        except BaseException:
            engine[1].transport.abort()
            raise
        relay = asyncio.create_task(_relay(*ends))
        self._relays[relay] = ends
        relay.add_done_callback(self._relays.pop)

    async def _connect(self) -> Connection:
        if isinstance(self._address, tuple):
            return await asyncio.open_connection(*self._address)
        return await asyncio.open_unix_connection(self._address)

    def close(self) -> None:
        """Close all connections."""
        for ends in self._relays.values():
            for _, writer in ends:
                writer.transport.abort()


async def _relay(*ends: Connection) -> None:
    """Relay bytes between two connections until both peers have sent their last, or one connection is lost."""
    (reader, writer), (other_reader, other_writer) = ends
    directions = [
        asyncio.ensure_future(_copy(reader, other_writer)),
        asyncio.ensure_future(_copy(other_reader, writer)),
    ]
    try:
        await asyncio.gather(*directions)
    except OSError:
        pass  # one connection is lost
    finally:
        await cancel(*directions)
        writer.close()
        other_writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(CHUNK_BYTES):
        writer.write(chunk)
        await writer.drain()
    writer.write_eof()
