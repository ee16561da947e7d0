"""One HTTP/1.1 connection, which sends one request at a time and receives its response (RFC 9112)."""

import asyncio
from typing import TYPE_CHECKING, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from datastore.dynamodb.http1.connector import HttpOrigin
from datastore.dynamodb.http1.types import DeadlineExceeded, HttpLimits, HttpResponse, ResponseLost, ResponseTimeout
from datastore.primitives.header_names import LOWER_CASE

if TYPE_CHECKING:
    from datastore.dynamodb.http1.pool import Pool

# The size of a write: a transport buffers as much before it pauses the writer.
CHUNK_BYTES = 2**16
FRAMING_HEADERS = (b"content-length", b"transfer-encoding")
CHECKSUM_HEADER = b"x-amz-crc32"
DATE_HEADER = b"date"

ResponseFuture = asyncio.Future[HttpResponse]


class _HeaderLayout:
    """The headers that a response has, by their spellings: where the checksum and the date are."""

    __slots__ = ("checksum", "date", "has_framing", "spellings")

    def __init__(self, spellings: tuple[bytes, ...] = ()) -> None:
        self.spellings = spellings
        names = {LOWER_CASE[spelling]: spelling for spelling in spellings}
        self.checksum = names.get(CHECKSUM_HEADER, CHECKSUM_HEADER)
        self.date = names.get(DATE_HEADER, DATE_HEADER)
        self.has_framing = not names.keys().isdisjoint(FRAMING_HEADERS)


_NO_HEADERS = _HeaderLayout()


class HttpConnection(asyncio.Protocol):
    """A connection that notifies its pool when it is free after a response, and when it is lost.

    Only the caller of a request receives its response. A caller that stops waiting closes the connection.
    """

    def __init__(self, origin: HttpOrigin, limits: HttpLimits, pool: "Pool") -> None:
        self.origin = origin
        self.idle_since = 0.0
        self.closing = False
        #: Whether a part of a body is not sent yet: the caller awaits `send_body`.
        self.writing = False
        self._limits = limits
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._headers: dict[bytes, bytes] = {}
        #: The parser's callback for a header. No Python code runs for each of them.
        self.on_header = self._headers.__setitem__
        self._layout = _NO_HEADERS
        self._parser = HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._drained: asyncio.Future[None] | None = None
        self._paused = False
        self._was_used = False
        # The state of the request in flight:
        self._waiter: ResponseFuture | None = None
        self._deadline = 0.0
        self._active_at = 0.0
        self._reset_response()

    def _reset_response(self) -> None:
        self._received = 0
        self._head_complete = self._has_framing = self._complete = self._must_close = False
        self._status = 0
        self._checksum: bytes | None = None
        self._date: bytes | None = None
        self._content: list[bytes] = []
        self._headers.clear()

    # --- Methods of the pool ------------------------------------------------------------------------------------------

    def send(self, head: bytes, body: bytes, deadline: float) -> ResponseFuture:
        """Send a request. Return a future of its response.

        `deadline` is in the event loop's time. The future raises `ResponseLost`, `ResponseTimeout` or
        `DeadlineExceeded`. A body of more than `CHUNK_BYTES` is not sent, but `writing` set.
        """
        loop = self._loop
        waiter = self._waiter = loop.create_future()
        self._deadline = deadline
        self._active_at = now = loop.time()
        # One timer serves many requests: when it fires, it checks the deadline of the request in flight.
        if self._timer is None or self._timer_at > deadline:
            self._set_timer(min(deadline, now + self._limits.silence_seconds))
        assert self._transport is not None
        if len(body) <= CHUNK_BYTES:
            self._transport.write(head + body)
        else:
            self.writing = True
            self._transport.write(head)
        return waiter

    async def send_body(self, body: bytes, waiter: ResponseFuture) -> None:
        """Send a large body as fast as the server reads it. Stop if the response arrives before the end of the body."""
        pieces = memoryview(body)
        for start in range(0, len(body), CHUNK_BYTES):
            if waiter.done():
                return
            assert self._transport is not None
            self._transport.write(pieces[start : start + CHUNK_BYTES])
            if self._paused:
                self._drained = self._loop.create_future()
                await self._drained
                self._active_at = self._loop.time()
        if not waiter.done():
            self.writing = False

    def abandon(self, waiter: ResponseFuture) -> None:
        """Close the connection of a caller that stopped waiting: no other may receive the rest of the response."""
        if not waiter.cancel() and not waiter.cancelled():
            waiter.exception()
        if self._waiter is waiter:
            self.close()

    def close(self) -> None:
        """Close the connection at once. Unsent bytes are not needed any more."""
        if not self.closing and self._transport is not None:
            self._transport.abort()
        self.closing = True

    # --- Callbacks of the transport -----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # that of uvloop is not a subclass

    def data_received(self, data: bytes) -> None:
        if self._waiter is None or self.closing:
            self.close()  # no request was sent
            return
        self._received += len(data)
        if self._received > self._limits.response_bytes:
            self._fail_request(ResponseLost("the response is too large"))
            return
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as problem:
            if not self._complete:
                self._fail_request(ResponseLost(f"the response is malformed: {problem}"))
                return
            self._must_close = True
        if self._complete:
            self._complete_request()
        elif not self._head_complete and self._received > self._limits.head_bytes:
            self._fail_request(ResponseLost("the head of the response is too large"))
        else:
            self._active_at = self._loop.time()

    def eof_received(self) -> bool:
        """Complete a response that the end of the connection delimits, or fail the request. Close the connection."""
        if self._waiter is not None and self._head_complete and not self._has_framing:
            self._must_close = True
            self._complete_request()
        else:
            self._fail_request(self._connection_lost_error())
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.closing = True
        self._fail_request(self._connection_lost_error())
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        del self._parser  # breaks the reference cycle with this connection
        self._pool.discard(self)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._wake_writer()

    # --- Callbacks of the parser --------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._complete:
            self._must_close = True  # a second response to one request

    def on_headers_complete(self) -> None:
        if self._head_complete:
            return  # the head of a second response
        self._head_complete = True
        headers = self._headers
        # A server spells its headers in the same way in each response.
        if self._layout.spellings != (spellings := tuple(headers)):
            self._layout = _HeaderLayout(spellings)
        layout = self._layout
        self._checksum, self._date = headers.get(layout.checksum), headers.get(layout.date)
        self._has_framing = layout.has_framing

    def on_body(self, content: bytes) -> None:
        if not self._complete:
            self._content.append(content)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if self._complete:
            return
        if status < 200:
            self._head_complete = self._has_framing = False  # an interim response, such as 100 Continue
            self._checksum = self._date = None
            self._headers.clear()
        else:
            self._complete = True
            self._status = status
            self._must_close |= not self._parser.should_keep_alive()

    # --- The end of a request -----------------------------------------------------------------------------------------

    def _complete_request(self) -> None:
        waiter, self._waiter = self._waiter, None
        assert waiter is not None
        reusable = not (self._must_close or self.writing or self.closing)
        if not waiter.done():
            status = self._status or self._parser.get_status_code()
            waiter.set_result(HttpResponse(status, self._checksum, b"".join(self._content), self._date))
        if self._drained is not None:
            self._wake_writer()
        if reusable:
            self._reset_response()
            self._was_used = True
            self._pool.release(self)
        else:
            self.close()

    def _fail_request(self, problem: Exception) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_exception(problem)
        self._wake_writer()
        self.close()

    def _connection_lost_error(self) -> ResponseLost:
        return ResponseLost("the connection was lost", stale=self._was_used and self._received == 0)

    def _wake_writer(self) -> None:
        if self._drained is not None:
            if not self._drained.done():
                self._drained.set_result(None)
            self._drained = None

    # --- Time ---------------------------------------------------------------------------------------------------------

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._check_timeouts)

    def _check_timeouts(self) -> None:
        """Fail the request in flight if it is late, else set the timer again. Without one, the next request sets it."""
        self._timer = None
        if self._waiter is None:
            return
        now = self._loop.time()
        silent = self._active_at + self._limits.silence_seconds
        if now >= self._deadline:
            self._fail_request(DeadlineExceeded())
        elif now >= silent:
            self._fail_request(ResponseTimeout())
        else:
            self._set_timer(min(self._deadline, silent))
