"""A server without GraphQL that sends one prepared text per event to all sockets, to measure the cost of the sockets.

With `--variant asgi` it is an ASGI application on uvicorn; with `raw` it writes the frame to asyncio's transports.
"""

import asyncio
import base64
import hashlib
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import orjson
import uvicorn

from benchmarks.measuring import run
from benchmarks.peers.following import PeerOptions, events

ACK = '{"type":"connection_ack"}'
WEBSOCKET = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455, section 1.3


def text_of(event: object) -> bytes:
    field = "earthquakeDetected" if "eventId" in event else "matchUpdates"  # type: ignore[operator]
    return orjson.dumps({"id": "1", "type": "next", "payload": {"data": {field: _selected(event)}}})


def _selected(event: Any) -> Any:
    return {name: value for name, value in event.items() if name != "matchId"}


class Sockets:
    """The ASGI application."""

    def __init__(self, options: PeerOptions) -> None:
        self._options = options
        self._sends: set[Callable[[Any], Any]] = set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
            return
        await receive()
        await send({"type": "websocket.accept", "subprotocol": "graphql-transport-ws"})
        await receive()
        await send({"type": "websocket.send", "text": ACK})
        self._sends.add(send)
        while (await receive())["type"] != "websocket.disconnect":
            pass
        self._sends.discard(send)

    async def _lifespan(self, receive: Any, send: Any) -> None:
        await receive()
        task = asyncio.create_task(self._publish())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        task.cancel()
        await send({"type": "lifespan.shutdown.complete"})

    async def _publish(self) -> None:
        async for event in events(self._options):
            message = {"type": "websocket.send", "text": text_of(event).decode()}
            for send in tuple(self._sends):
                with suppress(OSError):  # the client disconnected
                    await send(message)


class RawSocket(asyncio.Protocol):
    """Completes the handshake, and answers the first message with an ack."""

    transports: "set[asyncio.Transport]" = set()  # noqa: RUF012 - shared by all sockets

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        self._is_open = False

    def connection_lost(self, exc: Exception | None) -> None:
        self.transports.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        if not self._is_open:
            self._is_open = True
            key = data.partition(b"Sec-WebSocket-Key: ")[2].partition(b"\r\n")[0]
            accept = base64.b64encode(hashlib.sha1(key + WEBSOCKET).digest())
            self._transport.write(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Protocol: graphql-transport-ws\r\nSec-WebSocket-Accept: " + accept + b"\r\n\r\n"
            )
        elif self._transport not in self.transports:
            self.transports.add(self._transport)
            self._transport.write(framed(ACK.encode()))


def framed(body: bytes) -> bytes:
    """Return a server's frame with a body of less than 64 KB."""
    size = len(body)
    return (b"\x81" + bytes([size]) if size < 126 else b"\x81\x7e" + size.to_bytes(2, "big")) + body


async def _serve_raw(options: PeerOptions) -> None:
    await asyncio.get_running_loop().create_server(RawSocket, "127.0.0.1", options.port, backlog=2048)
    async for event in events(options):
        frame = framed(text_of(event))
        for transport in RawSocket.transports:
            transport.write(frame)


def main() -> None:
    options = PeerOptions.parsed()
    if options.variant == "raw":
        run(_serve_raw(options))
    else:
        uvicorn.run(
            Sockets(options), host="127.0.0.1", port=options.port, log_level="error", timeout_graceful_shutdown=1
        )


if __name__ == "__main__":
    main()
