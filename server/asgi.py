"""The adapter to other ASGI servers than uvicorn with the gateway's own protocols.

It offers to the application what these protocols offer (a `RequestCycle` in the scope, the extension `TAKE_OVER`), by
ASGI's messages. No other module knows whether the server is another one.

https://asgi.readthedocs.io/en/latest/specs/www.html
"""

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.http.cycle import CYCLE, ClientGone, failure_response
from server.http.headers import Header, RequestHeaders
from server.http.security_headers import SecurityHeaders
from server.request_identity import CURRENT, RequestIdentity, identity_in
from server.websocket.messages import GOING_AWAY
from server.websocket.transport import CLOSE_SECONDS, TAKE_OVER

if TYPE_CHECKING:
    from server.websocket.socket import Socket

# The transport is not writable while more waits for the server.
MAX_QUEUED_BYTES = 65_536


def is_from_other_server(scope: Scope) -> bool:
    """Return whether a request needs `serve`, because it does not come from the gateway's own protocols."""
    if scope["type"] == "http":
        return CYCLE not in scope
    return scope["type"] == "websocket" and TAKE_OVER not in _extensions_of(scope)


async def serve(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Call the application for a request of another server."""
    if scope["type"] == "http":
        await AsgiCycle({"root_path": "", "client": None, "scheme": "http", **scope}, receive, send).run(app)
        return
    attached: list[Socket] = []
    extensions = {**_extensions_of(scope), TAKE_OVER: {"attach": attached.append}}
    await app({"client": None, **scope, "extensions": extensions}, receive, send)
    for socket in attached:
        await AsgiTransport(receive, send).run(socket)


def _extensions_of(scope: Scope) -> dict[str, Any]:
    return scope.get("extensions") or {}


class AsgiCycle(RequestIdentity):
    """A request with the methods of `RequestCycle`, which it implements with ASGI's `receive` and `send`."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.security_headers: SecurityHeaders | None = None
        identity = identity_in(scope["headers"])
        super().__init__(identity.id, identity.traceparent)
        self._scope = scope
        self._receive = receive
        self._send = send
        self._added_headers: list[Header] = []
        self._has_begun = False
        self._work = asyncio.current_task()
        self._is_gone = False
        self._start: asyncio.Handle | None = None
        self._listener: asyncio.Task[None] | None = None

    async def run(self, app: ASGIApp) -> None:
        """Run the application. An unexpected error is answered, and raised again for the log of the server."""
        self._scope[CYCLE] = self
        CURRENT.set(self)
        try:
            await app(self._scope, self._receive, self.send)
        except Exception as error:
            if not self._has_begun:
                await self.respond_with(500, *failure_response(error))
            raise
        finally:
            self.is_over = True

    def add_headers(self, headers: list[Header]) -> None:
        """Add headers to the response."""
        self._added_headers += headers

    async def send(self, message: Message) -> None:
        """Send a message of ASGI, with the added headers and the security headers."""
        if message["type"] == "http.response.start":
            self._has_begun = True
            headers = [*message.get("headers", ()), *self._added_headers, *self.identity_headers]
            if self.security_headers is not None:
                headers += self.security_headers.missing(headers, self._scope["scheme"])
            message = {**message, "headers": headers}
        await self._send(message)

    def headers(self, pairs: list[Header]) -> RequestHeaders:
        """Return the headers of a scope by name."""
        return RequestHeaders(pairs)

    def take_content(self) -> None:
        """Return None: the content has to be received."""

    def watch(self) -> None:
        """Cancel the current task when the client disconnects, until `unwatch`.

        A task waits for the message. It starts when the request first suspends (`call_soon` runs only then), so that a
        request that never waits needs none.
        """
        self._start = asyncio.get_running_loop().call_soon(self._start_listening)

    def unwatch(self) -> None:
        if self._start is not None:
            self._start.cancel()
        if self._listener is not None:
            self._listener.cancel()

    def _start_listening(self) -> None:
        self._listener = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._is_gone = True
        if self._work is not None:
            self._work.cancel()

    def raise_if_gone(self) -> None:
        """Raise `ClientGone` if `watch` cancelled the task. A cancellation by another task stays as it is."""
        if self._is_gone and self._work is not None and self._work.uncancel() == 0:
            raise ClientGone from None

    def begin_stream(self) -> None:
        """Do nothing: the server buffers what it likes."""

    def abort(self) -> None:
        """Do nothing: the server closes the connection, since the response is incomplete."""

    async def respond(self, status: int, head: bytes, body: bytes) -> None:
        """Send a complete response. `head` are its header lines."""
        headers = [(name, value) for name, _, value in (line.partition(b": ") for line in head.splitlines())]
        await self.respond_with(status, headers, body)

    async def respond_with(self, status: int, headers: list[Header], body: bytes) -> None:
        """Send a complete response with these headers."""
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})


class AsgiTransport:
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

    async def run(self, socket: "Socket") -> None:
        """Run until the connection has ended."""
        socket.carrier = asyncio.current_task()
        writing = asyncio.create_task(self._write(socket))
        self._tasks = (writing, asyncio.create_task(self._read(socket)))
        socket.begin(self)
        try:
            await asyncio.wait((writing,))
        except asyncio.CancelledError:
            self.close(*GOING_AWAY)
            await asyncio.wait((writing,))
            raise
        finally:
            self.abort()
            socket.lost()

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

    async def _read(self, socket: "Socket") -> None:
        while not self._closed:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                self.abort()
                return
            await self._released.wait()
            socket.received(message.get("text"))

    async def _write(self, socket: "Socket") -> None:
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
                    socket.drained()
            self._has_messages.clear()
            await self._has_messages.wait()
