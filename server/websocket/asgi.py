"""Sockets on other ASGI servers, as ASGI messages, with two tasks for each.

https://asgi.readthedocs.io/en/latest/specs/www.html#websocket
"""

import asyncio
from collections import deque

from starlette.types import Message, Receive, Send

from server.websocket.messages import GOING_AWAY
from server.websocket.transport import CLOSE_SECONDS, TransportHandler

# What may wait for the server to take it.
MOST_WAITING_BYTES = 65_536


class Messages:
    """A `WebSocketTransport` over ASGI messages. A server whose peer does not read takes no more messages."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._waiting: deque[Message] = deque()
        self._bytes = 0
        self._come = asyncio.Event()
        self._reads = asyncio.Event()
        self._reads.set()
        self._closed = False
        self._tasks: tuple[asyncio.Task[None], ...] = ()

    async def carry(self, carried: TransportHandler) -> None:
        """Run until the connection has ended."""
        writing = asyncio.create_task(self._write(carried))
        self._tasks = (writing, asyncio.create_task(self._read(carried)))
        carried.begin(self)
        try:
            await asyncio.wait((writing,))
        except asyncio.CancelledError:
            self.close(*GOING_AWAY)
            await asyncio.wait((writing,))
            raise
        finally:
            self.abort()
            carried.lost()

    @property
    def writable(self) -> bool:
        return self._bytes <= MOST_WAITING_BYTES

    def send(self, start: bytes, body: bytes = b"", end: bytes = b"") -> None:
        text = b"".join((start, body, end)).decode()
        self._bytes += len(text)
        self._put({"type": "websocket.send", "text": text})

    def close(self, code: int, reason: str, seconds: float = CLOSE_SECONDS) -> None:
        if not self._closed:
            self._closed = True
            self._put({"type": "websocket.close", "code": code, "reason": reason})
            asyncio.get_running_loop().call_later(seconds, self.abort)

    def abort(self) -> None:
        self._closed = True
        for task in self._tasks:
            task.cancel()

    def hold(self) -> None:
        self._reads.clear()

    def release(self) -> None:
        self._reads.set()

    def _put(self, message: Message) -> None:
        self._waiting.append(message)
        self._come.set()

    async def _read(self, carried: TransportHandler) -> None:
        while not self._closed:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                self.abort()
                return
            await self._reads.wait()
            carried.received(message.get("text"))

    async def _write(self, carried: TransportHandler) -> None:
        while True:
            while self._waiting:
                message = self._waiting.popleft()
                try:
                    await self._send(message)
                except (OSError, RuntimeError):  # the peer has gone, which servers say in several ways
                    return
                if message["type"] == "websocket.close":
                    return
                was_writable = self.writable
                self._bytes -= len(message["text"])
                if self.writable and not was_writable:
                    carried.drained()
            self._come.clear()
            await self._come.wait()
