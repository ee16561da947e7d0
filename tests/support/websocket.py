"""Clients of WebSockets."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.support.toy_sockets import ServedSockets, upgrade


def masked_frame(text: str) -> bytes:
    data = text.encode()
    assert len(data) < 126
    return bytes([0x81, 0x80 | len(data), 0, 0, 0, 0]) + data


@asynccontextmanager
async def deaf_subscriber(server: ServedSockets, query: str) -> AsyncIterator[Callable[[Any], Awaitable[None]]]:
    """Subscribe and then never read a byte."""
    with socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(peer, ("127.0.0.1", server.port))

        async def send(message: Any) -> None:
            """Send a frame as it is, or a value in a frame; b"" closes the sending side."""
            if message == b"":
                peer.shutdown(socket.SHUT_WR)
                return
            frame = message if isinstance(message, bytes) else masked_frame(json.dumps(message))
            await loop.sock_sendall(peer, frame)

        await loop.sock_sendall(peer, upgrade("x"))
        assert (await loop.sock_recv(peer, 4096)).startswith(b"HTTP/1.1 101 ")
        await send({"type": "connection_init"})
        await send({"type": "subscribe", "id": "1", "payload": {"query": query}})
        yield send
