"""One request and its response, as an ASGI application sees them.

Besides ASGI's `receive` and `send` an application uses the cycle, which is in the scope as `CYCLE`. It returns content
that has arrived (`take_content`), cancels the application on a disconnect (`watch`), and sends a complete response in
one write (`respond`). On other servers `server/asgi.py` provides an object with the same methods.
"""

import asyncio
import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp, Message, Scope
from uvicorn.config import Config
from uvicorn.protocols.utils import (
    get_client_addr,
    get_local_addr,
    get_path_with_query_string,
    get_remote_addr,
    is_ssl,
)

from server.admission.connection_limits import bound_send_buffer
from server.http.headers import SECURITY_HEADERS, Header, RequestHeaders, lines_of
from server.http.security_headers import SecurityHeaders
from server.operations.outcome import encode, mask_error
from server.request_identity import CURRENT, RequestIdentity

if TYPE_CHECKING:
    from server.http.protocol.connection import HttpProtocol
    from server.http.protocol.request_head import RequestHead

CYCLE = "gateway.cycle"
# The connection is not read while more content than this waits for the application.
MAX_UNREAD_CONTENT_BYTES = 65_536

_INVALID_NAME = re.compile(rb"[^!#$%&'*+.^_`|~0-9A-Za-z-]")
_INVALID_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


def connection_scope(config: Config, transport: asyncio.Transport) -> Scope:
    """Return the part of a scope that all requests of a connection share."""
    return {
        "type": "http",
        "asgi": {"version": config.asgi_version, "spec_version": "2.3"},
        "server": get_local_addr(transport),
        "client": get_remote_addr(transport),
        "scheme": "https" if is_ssl(transport) else "http",
        "root_path": config.root_path,
    }


def status_line(status: int) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    return b"HTTP/1.1 %d %b\r\n" % (status, phrase.encode())


STATUS_LINES = {status: status_line(status) for status in range(200, 600)}

# The header lines of every response, encoded again when uvicorn replaces the headers: once a second, for the date.
_default_headers: list[tuple[bytes, bytes]] = []
_default_lines = b""


class ClientGone(Exception):
    """The client has disconnected: no response can be sent."""


class RequestCycle(RequestIdentity):
    """A request and its response. The connection calls `feed`, `complete`, `disconnect` and `run`."""

    __slots__ = (
        *("_connection", "_method", "_is_watched", "_disconnected", "_expects_100"),
        *("_content", "_unread", "_chunked", "_remaining", "_added_headers"),
        *("keep_alive", "task", "is_gone", "more_content", "response_started", "response_complete", "scope", "head"),
        *("event", "security_headers"),
    )

    def __init__(
        self,
        connection: "HttpProtocol",
        scope: Scope,
        head: "RequestHead",
        content: bytes | None = None,
        *,
        keep_alive: bool,
    ) -> None:
        """`content` is the whole content if it has arrived. Otherwise `feed` and `complete` follow."""
        self.scope = scope
        #: The head that the connection has received. Middleware may have replaced the headers in the scope.
        self.head = head
        # The identity, without a call of the base class: each request would pay for it.
        connection.request_count += 1
        self.id = head.request_id or b"%b-%d" % (connection.id, connection.request_count)
        self.traceparent = head.traceparent
        self.is_over = False
        self.keep_alive = keep_alive
        self.more_content = content is None
        self.response_started = self.response_complete = False
        #: The headers that every response gets.
        self.security_headers: SecurityHeaders | None = None
        self._connection = connection
        self._method = head.method
        self._content: bytes | bytearray = content or b""
        self._unread = content is not None  # something changed since `receive` returned
        self._disconnected = False
        #: Set by `notify`, while `receive` waits or has waited.
        self.event: asyncio.Event | None = None
        self._is_watched = False
        #: Whether `watch` has cancelled the application.
        self.is_gone = False
        self._expects_100 = head.expects_100
        self._chunked = False
        self._remaining = 0  # bytes of the Content-Length that were not sent yet
        self._added_headers: list[Header] = []
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
        self.notify()

    def complete(self) -> None:
        """Mark the content as complete."""
        self.more_content = False
        self.notify()

    def disconnect(self) -> None:
        """Mark the request as disconnected: its client can receive no response any more."""
        if not self._disconnected:
            self._disconnected = True
            self.notify()
            self._cancel_if_watched()

    def notify(self) -> None:
        self._unread = True
        if self.event is not None:
            self.event.set()

    def headers(self, pairs: list[Header]) -> RequestHeaders:
        """Return the headers of a scope by name. They are parsed once for equal heads that follow each other."""
        head = self.head
        if pairs != head.headers:  # middleware has replaced some
            return RequestHeaders(pairs)
        if head.fields is None:
            head.fields = RequestHeaders(pairs)
        return head.fields

    def take_content(self) -> bytes | None:
        """Return the whole content at once, or None while some of it is missing."""
        if self.more_content or self._expects_100 or self._disconnected:
            return None
        content, self._content, self._unread = self._content, b"", False
        return bytes(content)

    def watch(self) -> None:
        """Cancel the application's task when the client disconnects, until `unwatch`."""
        self._is_watched = True
        if self._connection.read_paused:
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
                if self.event is None:
                    self.event = asyncio.Event()
                self.event.clear()
                await self.event.wait()
            self._unread = False
        if self._disconnected or self.response_complete:
            return {"type": "http.disconnect"}
        content, self._content = self._content, b""
        return {"type": "http.request", "body": bytes(content), "more_body": self.more_content}

    # The response

    async def run(self, app: ASGIApp) -> None:
        """Run the application. An application that fails, or sends no complete response, ends the connection."""
        connection, scope = self._connection, self.scope
        scope[CYCLE] = self
        CURRENT.set(self)
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
            self.is_over = True
            if self.task is not None:
                connection.tasks.discard(self.task)
                self.task = None
            # The cycle and its scope refer to each other: without this they would wait for the garbage collector.
            del self.scope, self._connection

    async def _fail(self, error: BaseException) -> None:
        headers, body = failure_response(error)
        if self.response_started:
            self._connection.close()
            return
        headers.append((b"connection", b"close"))
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

    def add_headers(self, headers: list[Header]) -> None:
        """Add headers to the response."""
        self._added_headers += headers

    async def respond(self, status: int, head: bytes, body: bytes) -> None:
        """Send a complete response. `head` are its header lines, which the caller has validated."""
        if self.response_started:
            raise RuntimeError("The ASGI application sent a second response.")
        connection = self._connection
        if connection.write_paused:
            await connection.drain()
        if self._disconnected:
            return
        lines = self._begin_response(status) + head
        if self.security_headers is not None:
            lines += self.security_headers.lines[self.scope["scheme"] == "https"]
        if self._added_headers:
            lines += lines_of(self._added_headers)
        end = b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n"
        connection.transport.write(lines + end if self._method == "HEAD" else lines + end + body)
        connection.on_response_complete(self)

    def _begin_response(self, status: int) -> bytes:
        """Mark the response as started. Return its first header lines."""
        global _default_headers, _default_lines
        self.response_started = True
        connection = self._connection
        if self.more_content or connection.shutting_down or connection.limits.draining:
            # The rest of the content stays unread: no request can follow it.
            self.keep_alive = False
            if self.more_content:
                connection.discard_input()
        if connection.access_log:
            scope: Any = self.scope
            request = get_client_addr(scope), self._method, get_path_with_query_string(scope), scope["http_version"]
            connection.access_logger.info('%s - "%s %s HTTP/%s" %d', *request, status)
        if connection.server_state.default_headers is not _default_headers:
            _default_headers = connection.server_state.default_headers
            _default_lines = lines_of(_default_headers)
        lines = b"%b%bx-request-id: %b\r\n" % (STATUS_LINES[status], _default_lines, self.id)
        return lines if self.traceparent is None else lines + b"traceparent: %b\r\n" % self.traceparent

    def _send_head(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        lines: list[bytes] = []
        length: int | None = None
        closes = False
        headers = [*headers, *self._added_headers]
        if self.security_headers is not None:
            headers += self.security_headers.missing(headers, self.scope["scheme"])
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
        beginning = self._begin_response(status)
        if not self.keep_alive and not closes:
            lines.append(b"connection: close\r\n")
        if length is None and self._method != "HEAD" and status not in (204, 304):
            self._chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        self._remaining = length or 0
        self._connection.transport.write(b"".join([beginning, *lines, b"\r\n"]))

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
            self._connection.on_response_complete(self)


def failure_response(error: BaseException) -> tuple[list[Header], bytes]:
    """Return the headers and the body of the response to an unexpected error, which is logged."""
    body = encode({"errors": [mask_error(error, "the ASGI application")]})
    content = (b"content-type", b"application/json; charset=utf-8"), (b"content-length", b"%d" % len(body))
    return [*content, *SECURITY_HEADERS], body
