"""How uvicorn is to carry HTTP: its protocol, with an end to heads, bodies and answers that are too long or too slow.

uvicorn takes heads of any size at any pace, keeps the connection of a client that does not read its answer for ever,
and tells of malformed requests in plain text and in the log.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from typing import Any, Final

import httptools
from starlette.types import ASGIApp
from uvicorn.protocols.http.flow_control import service_unavailable
from uvicorn.protocols.http.httptools_impl import STATUS_LINE
from uvicorn.protocols.utils import get_remote_addr

from datastore.errors import BadUserInput, DomainError, Throttled, Timeout, Unavailable
from edge.answers import encode, told_error
from edge.capacity.connections import Connections
from edge.http.exchange import Exchange, lines_of
from edge.http.headers import SECURITY_HEADERS
from edge.http.heads import (
    Target,
    Unacceptable,
    check_framing,
    check_version,
    name_host,
    target_of,
    tells_of_a_body,
    without_upgrade,
)
from edge.http.lingering import Lingering
from edge.websocket.protocol import UVICORN_WS_OPTIONS

# A load balancer keeps its connections for 60 s: it must be the first to close them.
KEEP_ALIVE_SECONDS = 65
# Who asked this recently may be asking again at this moment: closed now, that request would be lost.
QUIET_SECONDS = 1.0

_log = logging.getLogger(__name__)


class HttpProtocol(Lingering):
    """One connection. It may be kept by a client only as long as `Patience` says, whatever it does or leaves undone.

    What happens with every request does without what it can: headers are gone through once, and the connection's
    idleness is a moment that one timer looks at now and then, not a timer of each answer.
    """

    pipeline: deque[tuple[Exchange, Any]]  # type: ignore[assignment]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watched = Connections.of(self.app_state)
        self.linger(self._watched.patience)
        self._address = (get_remote_addr(transport) or ("", 0))[0]
        self._root = self.root_path.encode("ascii")
        self._counted = False
        self._last = False  # uvicorn takes no more connections
        self._reading_head = True
        self._head_bytes = 0
        self._head_begun = False
        self._may_be_too_large = False
        self.url = b""
        self.headers = []
        self._running: Exchange | None = None
        try:
            self._watched.take(self._address)
        except (Throttled, Unavailable) as full:
            self.refuse(429 if isinstance(full, Throttled) else 503, full)
            return
        self._counted = True
        self._after("head", self._patience.head_seconds, self._head_is_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_all()
        self._leave()
        self.connections.discard(self)
        for exchange in (self._running, self.cycle):
            if exchange is not None and not exchange.response_complete:
                exchange.gone()
        self.flow.resume_writing()
        if exc is None:
            self.transport.close()
        self.parser = None  # type: ignore[assignment]

    def _leave(self) -> None:
        if self._counted:
            self._counted = False
            self._watched.leave(self._address)

    # What comes in

    def data_received(self, data: bytes) -> None:
        self._heard = self.loop.time()
        if self._deaf:
            return
        self._idle_since = None
        size = len(data)
        if self._reading_head:
            self._head_bytes += size
            self._head_begun = True
        # A head that ends here has at most what came with it, and what came before of a first one.
        most = self._patience.head_bytes
        self._may_be_too_large = self._head_bytes > most or size > most
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
            elif self._head_begun and len(self.headers) > self._patience.head_lines:
                unacceptable = self._too_many_headers()
                self.refuse(unacceptable.status, unacceptable.error)
            elif self._head_begun and "head" not in self._timers:
                self._after("head", self._patience.head_seconds, self._head_is_late)
        elif self.cycle.more_body and not self.cycle.response_complete and "body" not in self._timers:
            self._after("body", self._patience.silent_seconds, self._body_is_late)

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self._head_begun = True

    def on_url(self, url: bytes) -> None:
        self.url += url
        if len(self.url) > self._patience.head_bytes:
            raise self._head_too_large()

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        version = self.parser.get_http_version()
        target = self._checked_head(version)
        if len(self.pipeline) >= self._patience.pipelined:
            message = f"At most {self._patience.pipelined} requests may wait for their turn on a connection."
            raise Unacceptable(400, BadUserInput(message))
        self._reading_head = self._head_begun = False
        self._head_bytes = 0
        if "head" in self._timers:
            self._cancel("head")
        method = self.parser.get_method().decode("ascii")
        if self.parser.should_upgrade():
            if self._should_upgrade() and any(tells_of_a_body(*header) for header in self.headers):
                raise Unacceptable(400, BadUserInput("The opening handshake of a WebSocket has no body."))
            # It has no body in the eyes of the parser, and ends here: see `_upgrade`.
            self.scope = {"method": method, "headers": self.headers}  # type: ignore[typeddict-item]
            return
        self._begin(method, version, target)

    def _checked_head(self, version: str) -> Target:
        """What the head is about. Raises `Unacceptable`."""
        if self._may_be_too_large:
            size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
            if size > self._patience.head_bytes:
                raise self._head_too_large()
        if len(self.headers) > self._patience.head_lines:
            raise self._too_many_headers()
        check_version(version)
        target = target_of(self.url)
        told = dict(self.headers)
        if len(told) < len(self.headers) or b"host" not in told or b"transfer-encoding" in told:
            check_framing(self.headers, version)
        self.expect_100_continue = b"expect" in told and self._expects_100()
        if self.url[:1] != b"/":
            name_host(self.url, self.headers)
        return target

    def _expects_100(self) -> bool:
        return any(name == b"expect" and value.lower() == b"100-continue" for name, value in self.headers)

    def _begin(self, method: str, version: str, target: Target) -> None:
        """Have the request answered, or wait for its turn behind those that came before it."""
        self.scope = {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,  # type: ignore[typeddict-item]
            "root_path": self.root_path,
            "headers": self.headers,
            "state": self.app_state.copy(),
            "method": method,
            "path": self.root_path + target.path,
            "raw_path": self._root + target.raw_path,
            "query_string": target.query,
        }
        before = self.cycle
        self.cycle = Exchange(
            self,
            self.scope,  # type: ignore[arg-type]
            keep_alive=version != "1.0" and self.parser.should_keep_alive(),
            awaits_100=self.expect_100_continue,
        )
        app: Any = self.app
        if self.limit_concurrency is not None and self._is_over_uvicorns_limit():
            app = service_unavailable
        if before is None or before.response_complete:
            self._start_asgi_task(self.cycle, app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, app))

    def _is_over_uvicorns_limit(self) -> bool:
        most = self.limit_concurrency
        return most is not None and (len(self.connections) >= most or len(self.tasks) >= most)

    def on_body(self, body: bytes) -> None:
        if not self.cycle.response_complete:
            self.cycle.more(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        if not self.cycle.response_complete:
            self.cycle.complete()
        self._reading_head = True
        self._head_bytes = 0
        if "body" in self._timers:
            self._cancel("body")

    def _head_too_large(self) -> Unacceptable:
        most = self._patience.head_bytes
        if len(self.url) * 2 > most:
            return Unacceptable(414, BadUserInput(f"A URL and its headers may have at most {most:,} bytes: use POST."))
        return Unacceptable(431, BadUserInput(f"The headers of a request may have at most {most:,} bytes."))

    def _too_many_headers(self) -> Unacceptable:
        return Unacceptable(431, BadUserInput(f"A request may have at most {self._patience.head_lines} headers."))

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
            return without_upgrade(self.scope["method"], self.url, self.headers) + rest
        if self._is_busy() or self.flow.write_paused:
            self.refuse(400, BadUserInput("A WebSocket has to be a connection's first request, or follow an answer."))
        else:
            self._cancel_all()
            self._leave()
            self.handle_websocket_upgrade()
            if rest and not self.transport.is_closing():  # what came in the same packet
                self.transport.get_protocol().data_received(rest)  # type: ignore[attr-defined]
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

    def _start_asgi_task(self, cycle: Exchange, app: ASGIApp) -> None:  # type: ignore[override]
        self._running = cycle
        if self.config.reset_contextvars:
            super()._start_asgi_task(cycle, app)  # type: ignore[arg-type]
            return
        # It is the exchange's to discard it in the end: a callback for that would be one more turn of the loop.
        cycle.task = self.loop.create_task(cycle.run_asgi(app))
        self.tasks.add(cycle.task)

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
            running.gone()
            if running.response_started:
                self.end()
                return
        self._watched.on_refusal(status, error.code)
        body = encode({"errors": [told_error(error)]})
        lines = [
            STATUS_LINE[status],
            b"content-type: application/json; charset=utf-8\r\n",
            b"content-length: %d\r\n" % len(body),
            lines_of(SECURITY_HEADERS),
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

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self._running is not None and self._running.more_body:
            # Answered before all of it came: nobody wants the rest.
            self.end()
        if "end" in self._timers or self.transport.is_closing():
            return
        if self.flow.read_paused:
            self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
            return
        self._idle()

    @property
    def leaving(self) -> bool:
        return self._last or self._watched.leaving

    def shutdown(self) -> None:
        """Called by uvicorn, which takes no more connections. Whoever asks once more is answered, and told to go."""
        if self._deaf and not self._is_busy():
            self.transport.abort()
            return
        self._last = True
        self._close_when_quiet()

    def _close_when_quiet(self) -> None:
        if self._deaf or self.transport.is_closing():
            return
        asks = self._is_busy() or self._head_begun or bool(self.pipeline)
        left = QUIET_SECONDS if asks else self._heard + QUIET_SECONDS - self.loop.time()
        if left > 0:
            self._after("quiet", left, self._close_when_quiet)
        else:
            self.transport.close()


# How uvicorn is to serve: with these protocols; which proxies are believed is the application's to know.
UVICORN_OPTIONS: Final[Mapping[str, Any]] = {
    "http": HttpProtocol,
    "timeout_keep_alive": KEEP_ALIVE_SECONDS,
    "proxy_headers": False,
    "server_header": False,
    **UVICORN_WS_OPTIONS,
}
