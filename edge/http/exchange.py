"""One request and its answer on a connection, as an ASGI application has them.

It does what uvicorn's `RequestResponseCycle` does, with less to do for each request, and two things more, for
applications that look for it in the scope (`exchange_of`): it tells when the client has gone without being asked, and
takes an answer that is there in one piece (`answer`), past all that stands between the application and the server.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from starlette.types import ASGIApp, Message, Scope
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import HEADER_RE, HEADER_VALUE_RE, STATUS_LINE
from uvicorn.protocols.utils import get_client_addr, get_path_with_query_string
from uvicorn.server import ServerState

from edge.answers import encode, masked
from edge.capacity.connections import bound_send_buffer
from edge.http.headers import SECURITY_HEADERS

EXTENSION = "gateway.exchange"
_BROKEN = [(b"content-type", b"application/json; charset=utf-8"), *SECURITY_HEADERS, (b"connection", b"close")]


class Connection(Protocol):
    """What an exchange needs of the connection it is on."""

    transport: asyncio.Transport
    flow: FlowControl
    loop: asyncio.AbstractEventLoop
    server_state: ServerState
    tasks: set[asyncio.Task[None]]
    logger: logging.Logger
    access_logger: logging.Logger
    access_log: bool

    @property
    def leaving(self) -> bool:
        """Whether each answer is to be the last."""

    def end(self) -> None:
        """End the connection once the client can have read what it was sent."""

    def on_response_complete(self) -> None:
        """The answer has been sent."""


class Exchange:
    """One of them. It is its protocol's to tell what comes in (`more`, `complete`) and that the client has gone."""

    __slots__ = (
        "_added",
        "_awaits_100",
        "_chunked",
        "_connection",
        "_event",
        "_left",
        "_method",
        "_news",
        "_on_gone",
        "body",
        "disconnected",
        "keep_alive",
        "more_body",
        "response_complete",
        "response_started",
        "scope",
        "task",
    )

    def __init__(self, connection: Connection, scope: Scope, *, keep_alive: bool, awaits_100: bool) -> None:
        self.scope = scope
        self.keep_alive = keep_alive
        self.body: bytes | bytearray = b""
        self.more_body = True
        self.disconnected = self.response_started = self.response_complete = False
        self._connection = connection
        self._method = scope["method"]
        self._awaits_100 = awaits_100
        self._chunked = False
        self._left = 0  # of the body, as its Content-Length said
        self._news = False  # that were not received yet
        self._event: asyncio.Event | None = None
        self._on_gone: Callable[[], None] | None = None
        self._added: list[Callable[[], bytes]] = []
        self.task: asyncio.Task[None] | None = None

    # What comes in

    def more(self, body: bytes) -> None:
        """Some of the body has come."""
        if self.disconnected:
            return
        if not self.body:
            self.body = body
        else:
            if isinstance(self.body, bytes):
                self.body = bytearray(self.body)
            self.body += body
        if len(self.body) > HIGH_WATER_LIMIT:
            self._connection.flow.pause_reading()
        self._tell()

    def complete(self) -> None:
        """All of the body has come."""
        self.more_body = False
        self._tell()

    def gone(self) -> None:
        """The client has: nobody waits for the answer."""
        self.disconnected = True
        self._tell()
        if self._on_gone is not None:
            self._on_gone()

    def _tell(self) -> None:
        self._news = True
        if self._event is not None:
            self._event.set()

    def taken(self) -> bytes | None:
        """The whole body, as `receive` would tell it; None while there is more to come."""
        if self.more_body or self._awaits_100 or self.disconnected:
            return None
        body, self.body, self._news = self.body, b"", False
        return bytes(body)

    def when_gone(self, act: Callable[[], None] | None) -> None:
        """Have this done when the client goes before it is answered; None takes it back."""
        self._on_gone = act
        if act is not None:
            if self._connection.flow.read_paused:
                self._connection.flow.resume_reading()
            if self.disconnected:
                self._connection.loop.call_soon(self._go)

    def _go(self) -> None:
        if self._on_gone is not None:
            self._on_gone()

    async def receive(self) -> Message:
        if not self.disconnected and not self.response_complete:
            connection = self._connection
            if self._awaits_100 and not connection.transport.is_closing():
                connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                self._awaits_100 = False
            connection.flow.resume_reading()
            while not (self._news or self.disconnected or self.response_complete):
                if self._event is None:
                    self._event = asyncio.Event()
                self._event.clear()
                await self._event.wait()
            self._news = False
        if self.disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        body, self.body = self.body, b""
        return {"type": "http.request", "body": bytes(body), "more_body": self.more_body}

    # What is answered

    async def run_asgi(self, app: ASGIApp) -> None:
        """Have the application answer. What it leaves undone, or breaks, ends the connection."""
        scope = self.scope
        scope["extensions"] = extensions = {EXTENSION: self}
        try:
            await app(scope, self.receive, self.send)
        except BaseException as error:
            await self._break_off(error)
        else:
            if not self.response_complete and not self.disconnected:
                left = "completing" if self.response_started else "starting"
                await self._break_off(RuntimeError(f"ASGI callable returned without {left} response."))
        finally:
            self.disconnected = True
            self._on_gone = None
            if self.task is not None:
                self._connection.tasks.discard(self.task)
                self.task = None
            # They hold each other: without this they would stay until cycles are looked for.
            extensions.clear()
            del self._connection

    async def _break_off(self, error: BaseException) -> None:
        told = masked(error, "the ASGI application")
        if self.response_started:
            self._connection.end()
            return
        body = encode({"errors": [told]})
        headers = [*_BROKEN, (b"content-length", b"%d" % len(body))]
        await self.send({"type": "http.response.start", "status": 500, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})

    async def send(self, message: Message) -> None:
        if self.response_complete:
            raise RuntimeError(f"Unexpected ASGI message '{message['type']}' sent, after response already completed.")
        if self.disconnected:
            return
        flow = self._connection.flow
        if flow.write_paused:
            await flow.drain()
            if self.disconnected:
                return
        kind = message["type"]
        if self.response_started:
            if kind != "http.response.body":
                raise RuntimeError(f"Expected ASGI message 'http.response.body', but got '{kind}'.")
            self._send_body(message.get("body", b""), more=message.get("more_body", False))
        elif kind == "http.response.start":
            self._send_head(message["status"], message.get("headers", ()))
        else:
            raise RuntimeError(f"Expected ASGI message 'http.response.start', but got '{kind}'.")

    def begin_stream(self) -> None:
        """The answer goes on until the client leaves, or the process."""
        bound_send_buffer(self._connection.transport)

    def abort(self) -> None:
        """The client does not read: end the connection, whatever of the answer is left."""
        self._connection.transport.abort()
        self.gone()

    def add(self, lines: Callable[[], bytes]) -> None:
        """Have these lines added to the head of an answer in one piece: `send` is not asked for it."""
        self._added.append(lines)

    async def answer(self, status: int, head: bytes, body: bytes) -> None:
        """Send an answer in one piece. `head` are its headers as they go over the wire, a line each with its end.

        They say the body's length, and who sends them vouches for what they hold.
        """
        if self.response_started:
            raise RuntimeError("An answer was sent after another had begun.")
        if self.disconnected:
            return
        connection = self._connection
        if connection.flow.write_paused:
            await connection.flow.drain()
            if self.disconnected:
                return
        self._begin(status)
        parts = [STATUS_LINE[status], _default.lines(connection.server_state), head]
        for lines in self._added:
            parts.append(lines())
        parts += (b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n", b"" if self._method == "HEAD" else body)
        connection.transport.write(b"".join(parts))
        self._end()

    def _begin(self, status: int) -> None:
        self.response_started = True
        self._awaits_100 = False
        if self.more_body or self._connection.leaving:
            # It did not wait for all of the body, or the process leaves: nothing can follow on this connection.
            self.keep_alive = False
        if self._connection.access_log:
            self._log(status)

    def _log(self, status: int) -> None:
        scope: Any = self.scope
        asked = get_client_addr(scope), self._method, get_path_with_query_string(scope), scope["http_version"]
        self._connection.access_logger.info('%s - "%s %s HTTP/%s" %d', *asked, status)

    def _send_head(self, status: int, headers: Any) -> None:
        self._begin(status)
        content = [STATUS_LINE[status]]
        length: int | None = None
        closes = False
        for name, value in [*self._connection.server_state.default_headers, *headers]:
            if HEADER_RE.search(name):
                raise RuntimeError("Invalid HTTP header name.")
            if HEADER_VALUE_RE.search(value):
                raise RuntimeError("Invalid HTTP header value.")
            lower = name.lower()
            if lower == b"content-length" and length is None and not self._chunked:
                length = int(value)
            elif lower == b"transfer-encoding" and value.lower() == b"chunked":
                self._chunked = True
            elif lower == b"connection" and b"close" in [token.strip() for token in value.lower().split(b",")]:
                closes, self.keep_alive = True, False
            content += [lower, b": ", value, b"\r\n"]
        if not self.keep_alive and not closes:
            content.append(b"connection: close\r\n")
        if length is None and not self._chunked and self._method != "HEAD" and status not in (204, 304):
            self._chunked = True
            content.append(b"transfer-encoding: chunked\r\n")
        self._left = 0 if self._chunked else length or 0
        content.append(b"\r\n")
        self._connection.transport.write(b"".join(content))

    def _send_body(self, body: bytes, *, more: bool) -> None:
        write = self._connection.transport.write
        if self._method == "HEAD":
            self._left = 0
        elif self._chunked:
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            write(chunk if more else chunk + b"0\r\n\r\n")
        else:
            if len(body) > self._left:
                raise RuntimeError("Response content longer than Content-Length")
            self._left -= len(body)
            write(body)
        if not more:
            if self._left:
                raise RuntimeError("Response content shorter than Content-Length")
            self._end()

    def _end(self) -> None:
        self.response_complete = True
        if self._event is not None:  # whoever waits for more of the body
            self._tell()
        if not self.keep_alive:
            self._connection.end()
        self._connection.on_response_complete()


class _Default:
    """The headers that the server has with every answer, written out again when they change (the date does)."""

    def __init__(self) -> None:
        self._headers: list[tuple[bytes, bytes]] = []
        self._lines = b""

    def lines(self, state: ServerState) -> bytes:
        if state.default_headers is not self._headers:
            self._headers = state.default_headers
            self._lines = lines_of(self._headers)
        return self._lines


_default = _Default()


def exchange_of(scope: Mapping[str, Any]) -> Exchange | None:
    """The exchange behind a request; None on a server that is not carried by our protocol."""
    try:
        exchange: Exchange = scope["extensions"][EXTENSION]
    except (KeyError, TypeError):  # there are no extensions, or it is not among them
        return None
    return exchange


def lines_of(headers: Any) -> bytes:
    """Headers, pairs of bytes, as they go over the wire."""
    return b"".join([b"%b: %b\r\n" % header for header in headers])
