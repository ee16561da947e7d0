"""How uvicorn is to carry HTTP: its protocol, with an end to heads, bodies and answers that are too long or too slow.

uvicorn takes heads of any size at any pace, keeps the connection of a client that does not read its answer for ever,
and tells of malformed requests in plain text and in the log.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import httptools
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.utils import get_remote_addr

from datastore.errors import BadUserInput, DomainError, Throttled, Timeout, Unavailable
from edge.answers import encode, told_error
from edge.capacity.connections import Connections
from edge.http.heads import Unacceptable, check_framing, check_target, name_host, tells_of_a_body
from edge.http.security_headers import HEADERS
from edge.websocket.protocol import UVICORN_WS_OPTIONS

# A load balancer keeps its connections for 60 s: it must be the first to close them.
KEEP_ALIVE_SECONDS = 65
# Who has sent something this recently, and not all of it, is taken to go on.
SENDING_SECONDS = 0.1

_log = logging.getLogger(__name__)


class HttpProtocol(HttpToolsProtocol):
    """One connection. It may be kept by a client only as long as `Patience` says, whatever it does or leaves undone."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watched = Connections.of(self.app_state)
        self._patience = self._watched.patience
        self._address = (get_remote_addr(transport) or ("", 0))[0]
        self._counted = False
        self._deaf = False  # what still comes is thrown away
        self._reading_head = True
        self._head_bytes = 0
        self._head_begun = False
        self.url = b""
        self._running: RequestResponseCycle | None = None
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._heard = self.loop.time()
        self._gentle = _Gentle(self)
        try:
            self._watched.take(self._address)
        except (Throttled, Unavailable) as full:
            self.refuse(429 if isinstance(full, Throttled) else 503, full)
            return
        self._counted = True
        self._after("head", self._patience.head_seconds, self._head_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._leave()
        super().connection_lost(exc)

    def _leave(self) -> None:
        if self._counted:
            self._counted = False
            self._watched.leave(self._address)

    # What comes in

    def data_received(self, data: bytes) -> None:
        self._heard = self.loop.time()
        if self._deaf:
            return
        self._unset_keepalive_if_required()
        if self._reading_head:
            self._head_bytes += len(data)
            self._head_begun = True
        while data:
            data = self._feed(data)

    def _feed(self, data: bytes) -> bytes:
        """Returns what is to be fed again, as it came or otherwise."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            rest = data[upgrade.args[0] :]
        except httptools.HttpParserError as problem:
            self._refuse_malformed(problem)
            return b""
        else:
            self._watch_the_client()
            return b""
        return self._upgrade(rest)

    def _watch_the_client(self) -> None:
        """What was begun has to be finished in time: a head, or else a body."""
        if self._reading_head:
            if self._head_bytes > self._patience.head_bytes:
                unacceptable = self._head_too_large()
                self.refuse(unacceptable.status, unacceptable.error)
            elif self._head_begun and "head" not in self._timers:
                self._after("head", self._patience.head_seconds, self._head_is_late)
        elif self.cycle.more_body and not self.cycle.response_complete and "body" not in self._timers:
            self._after("body", self._patience.silent_seconds, self._body_is_late)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_begun = True

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        if len(self.url) > self._patience.head_bytes:
            raise self._head_too_large()

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        if len(self.headers) > self._patience.head_lines:
            message = f"A request may have at most {self._patience.head_lines} headers."
            raise Unacceptable(431, BadUserInput(message))

    def on_headers_complete(self) -> None:
        if len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > self._patience.head_bytes:
            raise self._head_too_large()
        check_target(self.url)
        check_framing(self.headers, self.parser.get_http_version())
        name_host(self.url, self.headers)
        if len(self.pipeline) >= self._patience.pipelined:
            message = f"At most {self._patience.pipelined} requests may wait for their turn on a connection."
            raise Unacceptable(400, BadUserInput(message))
        self._reading_head = self._head_begun = False
        self._head_bytes = 0
        self._cancel("head")
        if self.parser.should_upgrade():
            if self._should_upgrade() and any(tells_of_a_body(*header) for header in self.headers):
                raise Unacceptable(400, BadUserInput("The opening handshake of a WebSocket has no body."))
            # It has no body in the eyes of the parser, and ends here: see `_upgrade`.
            self.scope["method"] = self.parser.get_method().decode("ascii")
            return
        super().on_headers_complete()
        self.cycle.transport = self._gentle  # type: ignore[assignment]

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        super().on_message_complete()
        self._reading_head = True
        self._head_bytes = 0
        self._cancel("body")

    def _head_too_large(self) -> Unacceptable:
        most = self._patience.head_bytes
        if len(self.url) * 2 > most:
            return Unacceptable(414, BadUserInput(f"A URL and its headers may have at most {most:,} bytes: use POST."))
        return Unacceptable(431, BadUserInput(f"The headers of a request may have at most {most:,} bytes."))

    def _refuse_malformed(self, problem: Exception) -> None:
        cause = problem.__context__
        if isinstance(cause, Unacceptable):
            self.refuse(cause.status, cause.error)
            return
        if isinstance(problem, httptools.HttpParserCallbackError):
            _log.error("A request could not be read", exc_info=problem)
        self.refuse(400, BadUserInput("This is no well-formed HTTP/1.1 request."))

    def _upgrade(self, rest: bytes) -> bytes:
        """Become a WebSocket. Other wishes are passed over: Java's client has one (h2c) with every first request.

        Returns what has to be read without such a wish.
        """
        if not self._should_upgrade():
            self.parser = httptools.HttpRequestParser(self)
            return _head_without_upgrade(self.scope["method"], self.url, self.headers) + rest
        if self._is_busy():
            self.refuse(400, BadUserInput("A WebSocket has to be a connection's first request, or follow an answer."))
        else:
            for name in tuple(self._timers):
                self._cancel(name)
            self._leave()
            self.handle_websocket_upgrade()
        return b""

    def _head_is_late(self) -> None:
        if self.flow.read_paused:  # we are who does not read
            self._after("head", self._patience.head_seconds, self._head_is_late)
        elif not self._head_begun:
            self.transport.abort()
        else:
            seconds = self._patience.head_seconds
            self.refuse(408, Timeout(f"The request's headers did not arrive within {seconds:g} seconds."))

    def _body_is_late(self) -> None:
        if not self.cycle.more_body or self.cycle.response_complete:
            return
        left = self._patience.silent_seconds - (self.loop.time() - self._heard)
        if self.flow.read_paused:
            left = self._patience.silent_seconds
        if left > 0:
            self._after("body", left, self._body_is_late)
        else:
            self.refuse(408, Timeout(f"Nothing came of the body for {self._patience.silent_seconds:g} seconds."))

    # What is answered

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, _telling_of_the_end(cycle, app))

    def _is_busy(self) -> bool:
        return self._running is not None and not self._running.response_complete

    def refuse(self, status: int, error: DomainError) -> None:
        """Answer what has come up to here with an error, and take nothing more from this connection.

        Requests that came before are answered before the connection ends; then there is no place for the error.
        """
        self._deaf = True
        self._cancel("head")
        self._cancel("body")
        running = self._running
        if running is not None and not running.response_complete:
            if running is not self.cycle or not running.more_body:
                self._watched.on_refusal(status, error.code)
                self._end_after_those_before()
                return
            running.disconnected = True
            running.message_event.set()
            if running.response_started:
                self.end()
                return
        self._watched.on_refusal(status, error.code)
        body = encode({"errors": [told_error(error)]})
        lines = [
            STATUS_LINE[status],
            b"content-type: application/json; charset=utf-8\r\n",
            b"content-length: %d\r\n" % len(body),
            *(b"%b: %b\r\n" % header for header in HEADERS),
            b"connection: close\r\n",
        ]
        if "retryAfter" in error.extensions:
            lines.append(b"retry-after: %d\r\n" % error.extensions["retryAfter"])
        self.transport.write(b"".join([*lines, b"\r\n", body]))
        self.end()

    def _end_after_those_before(self) -> None:
        if self.pipeline and self.pipeline[0][0].more_body:
            self.pipeline.popleft()
        last = self.pipeline[0][0] if self.pipeline else self._running
        assert last is not None
        last.keep_alive = False

    def end(self) -> None:
        """End the connection so that the client can still read its answer, and does so soon.

        What it sends is read and thrown away for a moment: closed at once, the answer could be lost with it.
        """
        self._deaf = True
        self._unset_keepalive_if_required()
        if self.transport.is_closing() or "end" in self._timers:
            return
        self._after("end", self._patience.linger_seconds, self._end_now)
        self.flow.resume_reading()
        self._half_close()

    def _half_close(self) -> None:
        """Not while a body is on its way: its client may take our end for a broken connection, and see no answer."""
        on_its_way = self.cycle is not None and self.cycle.more_body
        if on_its_way and self.loop.time() - self._heard < SENDING_SECONDS:
            self._after("half close", SENDING_SECONDS, self._half_close)
        elif self.transport.can_write_eof():
            self.transport.write_eof()

    def _end_now(self) -> None:
        if self.transport.get_write_buffer_size():
            self._watch_the_reader()
        else:
            self.transport.abort()

    def eof_received(self) -> None:
        """The client sends nothing more: the connection is closed as soon as it has read what is there."""
        if self.transport.get_write_buffer_size():
            self._watch_the_reader()

    def on_response_complete(self) -> None:
        if self._running is not None and self._running.more_body:
            # Answered before all of it came: nobody wants the rest.
            self.end()
        if "end" in self._timers:
            self.server_state.total_requests += 1
        else:
            super().on_response_complete()

    def timeout_keep_alive_handler(self) -> None:
        self.end()

    def shutdown(self) -> None:
        if self._deaf and not self._is_busy():
            self.transport.abort()
        else:
            super().shutdown()

    # A client that does not read

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch_the_reader()

    def _watch_the_reader(self) -> None:
        if "write" not in self._timers:
            unread = self.transport.get_write_buffer_size()
            self._after("write", self._patience.silent_seconds, lambda: self._check_the_reader(unread))

    def _check_the_reader(self, unread: int) -> None:
        """What is less than a full buffer may wait to be read, unless the connection is to end."""
        left = self.transport.get_write_buffer_size()
        if not left or not (self.flow.write_paused or "end" in self._timers or self.transport.is_closing()):
            return
        if unread - left < self._patience.least_bytes:
            self.transport.abort()
        else:
            self._watch_the_reader()

    def _after(self, name: str, seconds: float, act: Callable[[], None]) -> None:
        def due() -> None:
            if name != "end":
                del self._timers[name]
            act()

        self._cancel(name)
        self._timers[name] = self.loop.call_later(seconds, due)

    def _cancel(self, name: str) -> None:
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.cancel()


def _head_without_upgrade(method: str, url: bytes, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    lines = [method.encode(), b" ", url, b" HTTP/1.1\r\n"]
    for name, value in headers:
        if name not in (b"upgrade", b"connection"):
            lines += [name, b": ", value, b"\r\n"]
    return b"".join([*lines, b"\r\n"])


def _telling_of_the_end(cycle: RequestResponseCycle, app: ASGIApp) -> Any:
    """The application, whose answers say when they are the connection's last: they did not wait for all of a body."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        async def begin(message: Message) -> None:
            if message["type"] == "http.response.start" and cycle.more_body:
                cycle.keep_alive = False
            await send(message)

        await app(scope, receive, begin)

    return answer


class _Gentle:
    """The transport as one answer sees it: it closes a connection only when the client can have read the answer."""

    def __init__(self, protocol: HttpProtocol) -> None:
        self._protocol = protocol
        self.write = protocol.transport.write

    def close(self) -> None:
        self._protocol.end()

    def is_closing(self) -> bool:
        return self._protocol.transport.is_closing()


# How uvicorn is to serve: with these protocols; which proxies are believed is the application's to know.
UVICORN_OPTIONS: Final[Mapping[str, Any]] = {
    "http": HttpProtocol,
    "timeout_keep_alive": KEEP_ALIVE_SECONDS,
    "proxy_headers": False,
    "server_header": False,
    **UVICORN_WS_OPTIONS,
}
