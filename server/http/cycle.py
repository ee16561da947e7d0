"""One request and its response, as an ASGI application sees them.

Besides ASGI's `receive` and `send` an application may use the cycle, which `cycle_of` finds in the scope. It returns
content that has arrived (`take_content`), cancels the application on a disconnect (`watch`), and sends a complete
response in one write (`respond`). `AsgiCycle` has the same methods on other servers.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp, Message, Scope
from uvicorn.protocols.utils import get_client_addr, get_path_with_query_string
from uvicorn.server import ServerState

from server.admission.connection_limits import bound_send_buffer
from server.http.headers import SECURITY_HEADERS, lines_of
from server.operations.outcome import encode, mask_error

if TYPE_CHECKING:
    from server.http.protocol.connection import HttpProtocol

EXTENSION = "gateway.cycle"
# The connection is not read while more content than this waits for the application.
MAX_UNREAD_CONTENT_BYTES = 65_536

_FAILURE_HEADERS = [(b"content-type", b"application/json; charset=utf-8"), *SECURITY_HEADERS, (b"connection", b"close")]
_INVALID_NAME = re.compile(rb"[^!#$%&'*+.^_`|~0-9A-Za-z-]")
_INVALID_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


def status_line(status: int) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return b"HTTP/1.1 %d %b\r\n" % (status, phrase.encode())


STATUS_LINES = {status: status_line(status) for status in range(200, 600)}


class ClientGone(Exception):
    """The client has disconnected: no response can be sent."""


class RequestCycle:
    """A request and its response. The connection calls `feed`, `complete`, `disconnect` and `run`."""

    __slots__ = (
        *("_connection", "_method", "_event", "_is_watched", "_disconnected", "_expects_100"),
        *("_content", "_unread", "_chunked", "_remaining", "_extra_lines"),
        *("keep_alive", "task", "is_gone", "more_content", "response_started", "response_complete", "scope"),
    )

    def __init__(self, connection: "HttpProtocol", scope: Scope, *, keep_alive: bool, expects_100: bool) -> None:
        self.scope = scope
        self.keep_alive = keep_alive
        self.more_content = True
        self.response_started = self.response_complete = False
        self._connection = connection
        self._method = scope["method"]
        self._content: bytes | bytearray = b""
        self._unread = False  # something changed since `receive` returned
        self._disconnected = False
        self._event: asyncio.Event | None = None
        self._is_watched = False
        #: Whether `watch` has cancelled the application.
        self.is_gone = False
        self._expects_100 = expects_100
        self._chunked = False
        self._remaining = 0  # bytes of the Content-Length that were not sent yet
        self._extra_lines: list[Callable[[], bytes]] = []
        self.task: asyncio.Task[None] | None = None

    # The request

    def feed(self, content: bytes) -> None:
        """Append received content."""
        if not self._content:
            self._content = content
        else:
            if isinstance(self._content, bytes):
                self._content = bytearray(self._content)
            self._content += content
        if len(self._content) > MAX_UNREAD_CONTENT_BYTES:
            self._connection.pause_reading()
        self._notify()

    def complete(self) -> None:
        """Mark the content as complete."""
        self.more_content = False
        self._notify()

    def disconnect(self) -> None:
        """Mark the request as disconnected: its client can receive no response any more."""
        if not self._disconnected:
            self._disconnected = True
            self._notify()
            self._cancel_if_watched()

    def _notify(self) -> None:
        self._unread = True
        if self._event is not None:
            self._event.set()

    def take_content(self) -> bytes | None:
        """Return the whole content at once, or None while some of it is missing."""
        if self.more_content or self._expects_100 or self._disconnected:
            return None
        content, self._content, self._unread = self._content, b"", False
        return bytes(content)

    def watch(self) -> None:
        """Cancel the application's task when the client disconnects, until `unwatch`."""
        self._is_watched = True
        self._connection.resume_reading()
        if self._disconnected:
            self._connection.loop.call_soon(self._cancel_if_watched)

    def unwatch(self) -> None:
        self._is_watched = False

    def _cancel_if_watched(self) -> None:
        # A lost connection notifies its running and its newest request, which may be the same: cancel only once.
        if self._is_watched and not self.is_gone and self.task is not None:
            self.is_gone = True
            self.task.cancel()

    def raise_if_gone(self) -> None:
        """Raise `ClientGone` if `watch` cancelled the task. A cancellation by another task stays as it is."""
        if self.is_gone and self.task is not None and self.task.uncancel() == 0:
            raise ClientGone from None

    async def receive(self) -> Message:
        if not self._disconnected and not self.response_complete:
            if self._expects_100 and not self.response_started:
                self._expects_100 = False
                self._connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            self._connection.resume_reading()
            while not (self._unread or self._disconnected or self.response_complete):
                if self._event is None:
                    self._event = asyncio.Event()
                self._event.clear()
                await self._event.wait()
            self._unread = False
        if self._disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        content, self._content = self._content, b""
        return {"type": "http.request", "body": bytes(content), "more_body": self.more_content}

    # The response

    async def run(self, app: ASGIApp) -> None:
        """Run the application. An application that fails, or sends no complete response, ends the connection."""
        connection, scope = self._connection, self.scope
        scope["extensions"] = extensions = {EXTENSION: self}
        try:
            await app(scope, self.receive, self.send)
        except GeneratorExit:  # nothing can be awaited any more
            raise
        except BaseException as error:
            await self._fail(error)
        else:
            if not self.response_complete and not self._disconnected:
                await self._fail(RuntimeError("The ASGI application returned without completing its response."))
        finally:
            self._disconnected = True
            self._is_watched = False
            if self.task is not None:
                connection.tasks.discard(self.task)
                self.task = None
            # The cycle and its scope refer to each other: without this they would wait for the garbage collector.
            extensions.clear()
            del self._connection

    async def _fail(self, error: BaseException) -> None:
        described = mask_error(error, "the ASGI application")
        if self.response_started:
            self._connection.close()
            return
        body = encode({"errors": [described]})
        headers = [*_FAILURE_HEADERS, (b"content-length", b"%d" % len(body))]
        await self.send({"type": "http.response.start", "status": 500, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})

    async def send(self, message: Message) -> None:
        if self.response_complete:
            raise RuntimeError("The ASGI application sent a message after its response was complete.")
        await self._connection.drain()
        if self._disconnected:
            return
        kind = message["type"]
        if kind == "http.response.start" and not self.response_started:
            self._send_head(message["status"], message.get("headers", ()))
        elif kind == "http.response.body" and self.response_started:
            self._send_body(message.get("body", b""), more=message.get("more_body", False))
        else:
            raise RuntimeError(f"The ASGI application sent the message {kind!r} in a wrong order.")

    def begin_stream(self) -> None:
        """Prepare for a response that continues until the client, or the process, ends it."""
        bound_send_buffer(self._connection.transport)

    def abort(self) -> None:
        """Close the connection at once: the client does not read its response."""
        self._connection.transport.abort()
        self.disconnect()

    def add_header_lines(self, lines: Callable[[], bytes]) -> None:
        """Add the header lines that `lines` returns to a response that `respond` sends."""
        self._extra_lines.append(lines)

    async def respond(self, status: int, head: bytes, body: bytes) -> None:
        """Send a complete response. `head` are its header lines, which the caller has validated."""
        if self.response_started:
            raise RuntimeError("The ASGI application sent a second response.")
        connection = self._connection
        if connection.write_paused:
            await connection.drain()
        if self._disconnected:
            return
        self._begin_response(status)
        parts = [STATUS_LINES[status], _default_lines(connection.server_state), head]
        for lines in self._extra_lines:
            parts.append(lines())
        parts += (b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n", b"" if self._method == "HEAD" else body)
        connection.transport.write(b"".join(parts))
        self._end_response()

    def _begin_response(self, status: int) -> None:
        self.response_started = True
        connection = self._connection
        if self.more_content or connection.is_draining:
            # The rest of the content stays unread: no request can follow it.
            self.keep_alive = False
            if self.more_content:
                connection.discard_input()
        if connection.access_log:
            scope: Any = self.scope
            request = get_client_addr(scope), self._method, get_path_with_query_string(scope), scope["http_version"]
            connection.access_logger.info('%s - "%s %s HTTP/%s" %d', *request, status)

    def _send_head(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        lines = [STATUS_LINES[status], _default_lines(self._connection.server_state)]
        length: int | None = None
        closes = False
        for raw_name, value in headers:
            name = raw_name.lower()
            if not name or _INVALID_NAME.search(name) or _INVALID_VALUE.search(value):
                raise RuntimeError(f"The ASGI application sent an invalid header {raw_name!r}.")
            if name == b"content-length":
                length = int(value)
            elif name == b"transfer-encoding":
                continue  # the framing is the server's
            elif name == b"connection" and b"close" in value.lower():
                closes, self.keep_alive = True, False
            lines.append(b"%b: %b\r\n" % (name, value))
        self._begin_response(status)
        if not self.keep_alive and not closes:
            lines.append(b"connection: close\r\n")
        if length is None and self._method != "HEAD" and status not in (204, 304):
            self._chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        self._remaining = length or 0
        self._connection.transport.write(b"".join([*lines, b"\r\n"]))

    def _send_body(self, body: bytes, *, more: bool) -> None:
        write = self._connection.transport.write
        if self._method == "HEAD":
            self._remaining = 0
        elif self._chunked:
            chunk = b"%x\r\n%b\r\n" % (len(body), body) if body else b""
            write(chunk if more else chunk + b"0\r\n\r\n")
        else:
            self._remaining -= len(body)
            if self._remaining < 0:
                raise RuntimeError("The content of the response is longer than its Content-Length.")
            write(body)
        if not more:
            if self._remaining:
                raise RuntimeError("The content of the response is shorter than its Content-Length.")
            self._end_response()

    def _end_response(self) -> None:
        self.response_complete = True
        if self._event is not None:
            self._notify()
        self._connection.on_response_complete(self)


_encoded_defaults: tuple[list[tuple[bytes, bytes]], bytes] = ([], b"")


def _default_lines(state: ServerState) -> bytes:
    """The header lines of every response, encoded again when uvicorn replaces them: once a second, for the date."""
    global _encoded_defaults
    if state.default_headers is not _encoded_defaults[0]:
        _encoded_defaults = state.default_headers, lines_of(state.default_headers)
    return _encoded_defaults[1]


def cycle_of(scope: Mapping[str, Any]) -> RequestCycle | None:
    """Return the cycle of a scope; None on a server whose protocol is not `HttpProtocol`."""
    try:
        cycle: RequestCycle = scope["extensions"][EXTENSION]
    except (KeyError, TypeError):  # no extensions, or not this one
        return None
    return cycle
