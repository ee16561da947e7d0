"""One HTTP/1.1 connection: a state machine that reads requests and orders their responses.

======== ========================== ============================= =============================== ======================
State    Input is                   Next state                    Limits (`http_limits`)          Deadline
======== ========================== ============================= =============================== ======================
HEAD     a request's head, or       CONTENT: head complete        `head_bytes`, `head_lines`,     `head_seconds`;
         nothing, between two       CLOSED: handed over to the    `pipelined` requests            between two requests
         requests                   WebSocket protocol                                            the keep-alive time
                                    DISCARD, CLOSING: rejected
CONTENT  content and trailers of    HEAD: request complete        64 KB unread content, then the  `silent_seconds`
         the newest request         DISCARD: no request follows,  socket is not read;             without a byte
                                    or its response has begun     `trailer_bytes` between two
                                    DISCARD, CLOSING: rejected    pieces, `head_lines`
DISCARD  discarded: no request      CLOSING: all responses sent   `discard_bytes`                 the application's own
         follows
CLOSING  discarded: all responses   CLOSED: by the client, or at  none is kept                    `linger_seconds`
         are sent                   the deadline
======== ========================== ============================= =============================== ======================

Requests are answered in their order: one cycle runs, the others wait, and meanwhile the socket is not read. In every
state a client that leaves more than the transport's buffer unread must read `least_bytes` in `silent_seconds`.

No later input changes the meaning of a head: trailers are counted and discarded. Every iteration of the loop in
`_parse` consumes input. A request that is rejected in HEAD or CONTENT is answered once, and ends the connection.

A whole request that repeats the head of the one before it is not parsed again: see `request_head.whole_request`.
"""

import asyncio
import contextvars
import logging
from collections import deque
from functools import partial
from math import inf
from typing import Any

import httptools
from starlette.types import ASGIApp, Scope
from uvicorn.config import Config
from uvicorn.server import ServerState

from datastore.errors import BadUserInput, DomainError, Timeout
from datastore.primitives.header_names import LOWER_CASE
from server.admission.client_address import address_in
from server.admission.connection_limits import Connections
from server.http.cycle import STATUS_LINES, RequestCycle, connection_scope
from server.http.headers import Header, lines_of
from server.http.protocol.admitted_connection import AdmittedConnection
from server.http.protocol.rejections import (
    METHODS,
    RequestRejected,
    check_size,
    error_response,
    refuse_method,
    rejection_of,
)
from server.http.protocol.request_head import (
    END_OF_HEAD,
    RequestHead,
    WholeRequest,
    check_head,
    encode_head,
    has_content,
    is_websocket_handshake,
    size_of,
    whole_request,
)
from server.http.protocol.timed_transport import CLOSED, CLOSING, CONTENT, DISCARD, HEAD

# At a shutdown, a client that has sent data within this time may be sending the next request.
QUIET_SECONDS = 1.0


class HttpProtocol(AdmittedConnection):
    """One connection of a server that uvicorn runs: `uvicorn.Config(..., http=HttpProtocol)`."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        if not config.loaded:
            config.load()
        super().__init__(_loop or asyncio.get_event_loop(), Connections.from_state(app_state))
        self.server_state = server_state
        self.tasks = server_state.tasks
        self._connections: set[Any] = server_state.connections
        self.access_logger = logging.getLogger("uvicorn.access")
        self.access_log = self.access_logger.hasHandlers()
        self._config = config
        # A resumed coroutine passes through all coroutines around it, which costs more than calling a function.
        self._app: ASGIApp = getattr(config.loaded_app, "request_coroutine", config.loaded_app)
        self._app_state = app_state
        self._root_path = config.root_path.encode("ascii")
        self._parser = self._new_parser()
        # The head that is being read
        self._url = b""
        self._headers: list[Header] = []  # in CONTENT: the trailers
        self._head_begun = False
        self._head_timed = True
        self._head_bytes = self._discarded_bytes = 0
        self._may_be_too_large = False
        self._upgrade = b""  # an encoded head with Upgrade: for the WebSocket protocol, or without that header
        self._is_handshake = False
        self._full_head: list[Header] | None = None
        self._framing_bytes = 0  # of chunks and trailers since the last content
        self._known: WholeRequest | None = None  # the latest request, if it arrived whole
        # Requests
        self._running: RequestCycle | None = None
        self._waiting: deque[tuple[RequestCycle, ASGIApp]] = deque()
        self.shutting_down = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self._connections.add(self)
        self._scope = connection_scope(self._config, transport)
        self._address = address_in(self._scope)
        try:
            self._admit()
        except RequestRejected as rejected:
            self._reject(rejected.status, rejected.error)

    def connection_lost(self, exc: Exception | None) -> None:
        self._release()
        for cycle in (self._running, self._cycle):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnect()
        self._waiting.clear()
        self.resume_writing()
        if exc is None:
            self.transport.close()

    def _release(self) -> None:
        """End the timers of the connection, and release its quota."""
        self._state = CLOSED
        self._cancel_timers()
        self._connections.discard(self)
        self._release_quota()

    def data_received(self, data: bytes) -> None:
        self._last_received_at = self.loop.time()
        begins, text, content = self._state is HEAD and not self._head_begun, b"", b""
        if begins:
            text, _, content = data.partition(END_OF_HEAD)
            known, is_free = self._known, self._running is None or self._running.response_complete
            if known is not None and text == known.text and len(content) == known.content_length and is_free:
                self._begin(known.head, content)
                return
        size, http_limits = len(data), self._http_limits
        if self._state is HEAD:
            self._head_begun = True
            self._head_bytes += size
        elif self._state is CONTENT:
            self._framing_bytes += size
        else:
            self._discarded_bytes += size
            if self._state is DISCARD and self._discarded_bytes > http_limits.discard_bytes:
                self.transport.abort()
            return
        # The exact size of a head is only computed if the data received for it could exceed the limit.
        self._may_be_too_large = self._head_bytes > http_limits.head_bytes or size > http_limits.head_bytes
        try:
            self._parse(data)
            if begins and self._state is HEAD and not self._head_begun and self._cycle is not None:
                self._known = whole_request(self._cycle.head, text, content)
            elif self._state is HEAD and self._head_begun:
                check_size("headers", self._head_bytes, http_limits.head_bytes, self._url)
                if not self._head_timed:
                    self._head_timed = True
                    self._expect_within(http_limits.head_seconds)
            elif self._state is CONTENT:
                check_size("trailers", self._framing_bytes, http_limits.trailer_bytes)
                self._expect_within(http_limits.silent_seconds)
        except RequestRejected as rejected:
            self._reject(rejected.status, rejected.error)

    def _parse(self, data: bytes) -> None:
        """Feed the parser. Each iteration consumes input up to a head with Upgrade, which is accepted or ignored."""
        while data:
            rest = self._feed(data)
            if rest is None:
                return
            if self._is_handshake:
                self._hand_over(rest)
                return
            self._parser = self._new_parser()
            head, self._upgrade = self._upgrade, b""
            self._feed(head)
            if self._state not in (HEAD, CONTENT):
                return
            data = rest

    def _feed(self, data: bytes) -> bytes | None:
        """Return the data after a head with Upgrade; None if all was consumed. Raises `RequestRejected`."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            return data[upgrade.args[0] :]
        except httptools.HttpParserError as problem:
            if self._state in (HEAD, CONTENT):  # otherwise the data follows the last request
                raise rejection_of(problem, data, begins_here=self._head_bytes == len(data)) from None
        return None

    def discard_input(self) -> None:
        """Read no further request from this connection."""
        if self._state in (HEAD, CONTENT):
            self._state = DISCARD
            self._deadline = inf

    # Callbacks of the parser

    def _new_parser(self) -> Any:
        parser = httptools.HttpRequestParser(self)
        # Otherwise a trailer `Connection: close` would end the parsing. `on_message_begin` checks for the last request.
        parser.set_dangerous_leniencies(lenient_keep_alive=True)
        return parser

    def on_message_begin(self) -> None:
        if self._state is not HEAD:
            raise EOFError
        self._url, self._headers, self._head_begun = b"", [], True

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        headers = self._headers
        headers.append((LOWER_CASE[name], value.rstrip(b" \t")))
        if len(headers) > self._http_limits.head_lines:
            fields = "headers" if self._state is HEAD else "trailers"
            message = f"A request may have at most {self._http_limits.head_lines} {fields}."
            raise RequestRejected(431, BadUserInput(message))

    def on_headers_complete(self) -> None:
        parser, headers, http_limits = self._parser, self._headers, self._http_limits
        method, version = parser.get_method().decode("ascii"), parser.get_http_version()
        if self._may_be_too_large:
            check_size("headers", len(self._url) + size_of(headers), http_limits.head_bytes, self._url)
        if self._full_head is not None:
            headers, self._full_head = self._full_head, None
        head = check_head(method, version, self._url, headers)
        self._check_excess(head)
        if len(self._waiting) >= http_limits.pipelined:
            message = f"At most {http_limits.pipelined} requests may be pipelined on a connection."
            raise RequestRejected(400, BadUserInput(message))
        if parser.should_upgrade():
            # For the parser this request has no content and ends here; `_parse` continues with it.
            self._prepare_upgrade(method, version, headers)
            return
        self._headers = []
        self._state = CONTENT
        self._head_begun = self._head_timed = False
        self._head_bytes = self._framing_bytes = 0
        self._begin(head, keep_alive=not self._probing and version != "1.0" and parser.should_keep_alive())

    def _begin(self, head: RequestHead, content: bytes | None = None, *, keep_alive: bool = True) -> None:
        """Run the application for a request, after those before it. A complete request has its whole `content`."""
        scope: Scope = {
            **self._scope,
            "http_version": head.version,
            "method": head.method,
            "path": self._config.root_path + head.target.path,
            "raw_path": self._root_path + head.target.raw_path,
            "query_string": head.target.query,
            "headers": [*head.headers],
            "state": {**self._app_state},
        }
        self._cycle = cycle = RequestCycle(self, scope, head, content, keep_alive=keep_alive)
        self._deadline = inf
        app = self._app if head.method in METHODS else partial(refuse_method, self.limits)
        if self._running is None or self._running.response_complete:
            self._start(cycle, app)
        else:
            self.pause_reading()
            self._waiting.append((cycle, app))

    def _prepare_upgrade(self, method: str, version: str, headers: list[Header]) -> None:
        self._is_handshake = self._config.ws_protocol_class is not None and is_websocket_handshake(version, headers)
        if self._is_handshake and has_content(headers):
            raise RequestRejected(400, BadUserInput("The opening handshake of a WebSocket has no body."))
        self._upgrade = encode_head(method, self._url, version, headers, upgrade=self._is_handshake)
        self._full_head = headers

    def on_body(self, content: bytes) -> None:
        self._framing_bytes = 0
        assert self._cycle is not None
        self._cycle.feed(content)

    def on_message_complete(self) -> None:
        if self._parser.should_upgrade():
            return
        if self._headers:
            check_size("trailers", size_of(self._headers), self._http_limits.trailer_bytes)
        assert self._cycle is not None
        self._cycle.complete()
        self._deadline = inf
        self._head_bytes = 0
        self._state = HEAD if self._cycle.keep_alive else DISCARD

    def _hand_over(self, rest: bytes) -> None:
        """Hand the connection over to the WebSocket protocol. `rest` is the data after the head of the handshake."""
        if self._is_busy() or self.write_paused:
            message = "A WebSocket handshake must be the first request of a connection, or follow a complete response."
            raise RequestRejected(400, BadUserInput(message))
        self._release()
        factory: Any = self._config.ws_protocol_class
        protocol = factory(config=self._config, server_state=self.server_state, app_state=self._app_state)
        protocol.connection_made(self.transport)
        protocol.data_received(self._upgrade)
        self.transport.set_protocol(protocol)
        if rest and not self.transport.is_closing():
            current: Any = self.transport.get_protocol()
            current.data_received(rest)

    # Responses

    def _start(self, cycle: RequestCycle, app: ASGIApp) -> None:
        self._running = cycle
        # The cycle discards its task itself: a callback of the task would cost another iteration of the loop.
        context = contextvars.Context() if self._config.reset_contextvars else None
        task = self.loop.create_task(cycle.run(app), context=context)
        cycle.task = task
        self.tasks.add(task)

    def _is_busy(self) -> bool:
        return self._running is not None and not self._running.response_complete

    def on_response_complete(self, cycle: RequestCycle) -> None:
        """Start the next cycle, or wait for a request, or end the connection. Called by the running cycle."""
        self.server_state.total_requests += 1
        cycle.response_complete = True
        if cycle.event is not None:
            cycle.notify()
        if not cycle.keep_alive:
            self._waiting.clear()
            self.close()
        elif not self.transport.is_closing():
            if self.read_paused:
                self.resume_reading()
            if self._waiting:
                self._start(*self._waiting.popleft())
            elif self._state is HEAD and not self._head_begun:
                self._expect_within(QUIET_SECONDS if self.shutting_down else self._config.timeout_keep_alive)

    def _reject(self, status: int, error: DomainError) -> None:
        """Answer the request that is being read with an error, and read no further.

        If earlier requests are unanswered, answer them, and end the connection without the error.
        """
        unfinished = self._cycle if self._state is CONTENT else None
        self.discard_input()
        identity = self._report_refusal(status, error)
        if self._waiting and self._waiting[-1][0] is unfinished:
            self._waiting.pop()
        elif unfinished is not None and self._running is unfinished:
            unfinished.disconnect()
            self._running = self._cycle = None
        if self._is_busy():
            assert self._running is not None
            last = self._waiting[-1][0] if self._waiting else self._running
            last.keep_alive = False
            return
        lines, body = error_response(status, error, lines_of(identity.identity_headers))
        self.transport.write(b"".join([STATUS_LINES[status], lines, b"connection: close\r\n\r\n", body]))
        self.close()

    def shutdown(self) -> None:
        """Close an idle connection after `QUIET_SECONDS` without input. Called by uvicorn at the shutdown."""
        self.shutting_down = True
        if self._state in (DISCARD, CLOSING) and not self._is_busy():
            self.transport.abort()
        elif self._state is HEAD and not self._head_begun and not self._is_busy():
            self._expect_within(max(0.0, self._last_received_at + QUIET_SECONDS - self.loop.time()))

    # Deadlines

    def _on_deadline(self) -> None:
        head_seconds, silent_seconds = self._http_limits.head_seconds, self._http_limits.silent_seconds
        if self._state is CLOSING:
            self._linger()
        elif self._excess is not None and self._state is HEAD:
            self._reject(self._excess.status, self._excess.error)
        elif self._state is CONTENT and self.read_paused:
            self._expect_within(silent_seconds)  # the application does not read
        elif self._state is CONTENT:
            self._reject(408, Timeout(f"No part of the body arrived for {silent_seconds:g} seconds."))
        elif self._head_begun and self.read_paused:
            self._expect_within(head_seconds)
        elif self._head_begun:
            self._reject(408, Timeout(f"The request's headers did not arrive within {head_seconds:g} seconds."))
        elif self._cycle is None:
            self.transport.abort()
        elif self.shutting_down:
            self.transport.close()
        else:
            self.close()
