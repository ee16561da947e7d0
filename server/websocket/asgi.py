"""WebSockets on other ASGI servers: a transport over ASGI messages, with two tasks for each socket.

https://asgi.readthedocs.io/en/latest/specs/www.html#websocket
"""

import asyncio
from collections import deque

from starlette.types import Message, Receive, Send

from server.websocket.messages import GOING_AWAY
from server.websocket.transport import CLOSE_SECONDS, TransportHandler

# The transport is not writable while more waits for the server.
MAX_QUEUED_BYTES = 65_536


class ASGITransport:
    """A `WebSocketTransport` over ASGI messages. A server whose peer does not read accepts no more messages."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._queue: deque[Message] = deque()
        self._bytes = 0
        self._has_messages = asyncio.Event()
        self._released = asyncio.Event()
        self._released.set()
        self._closed = False
        self._tasks: tuple[asyncio.Task[None], ...] = ()

    async def run(self, handler: TransportHandler) -> None:
        """Run until the connection has ended."""
        writing = asyncio.create_task(self._write(handler))
        self._tasks = (writing, asyncio.create_task(self._read(handler)))
        handler.begin(self)
        try:
            await asyncio.wait((writing,))
        except asyncio.CancelledError:
            self.close(*GOING_AWAY)
            await asyncio.wait((writing,))
            raise
        finally:
            self.abort()
            handler.lost()

    @property
    def writable(self) -> bool:
        return self._bytes <= MAX_QUEUED_BYTES

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
        self._released.clear()

    def release(self) -> None:
        self._released.set()

    def _put(self, message: Message) -> None:
        self._queue.append(message)
        self._has_messages.set()

    async def _read(self, handler: TransportHandler) -> None:
        while not self._closed:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                self.abort()
                return
            await self._released.wait()
            handler.received(message.get("text"))

    async def _write(self, handler: TransportHandler) -> None:
        while True:
            while self._queue:
                message = self._queue.popleft()
                try:
                    await self._send(message)
                except (OSError, RuntimeError):  # the peer has disconnected; servers raise different errors
                    return
                if message["type"] == "websocket.close":
                    return
                was_writable = self.writable
                self._bytes -= len(message["text"])
                if self.writable and not was_writable:
                    handler.drained()
            self._has_messages.clear()
            await self._has_messages.wait()
