"""The transport of an HTTP connection: deadlines, flow control, and a close that loses no response."""

import asyncio
from enum import Enum, auto
from functools import partial
from math import inf

from server.admission.connection_limits import HttpConnectionLimits
from server.http.cycle import RequestCycle

# A client that sent part of its content within this many seconds is still sending.
SENDING_SECONDS = 0.1


class ReadState(Enum):
    """The interpretation of a connection's input; see the table in `connection`."""

    HEAD = auto()
    CONTENT = auto()
    DISCARD = auto()
    CLOSING = auto()
    CLOSED = auto()


HEAD, CONTENT, DISCARD, CLOSING, CLOSED = ReadState


class TimedTransport(asyncio.Protocol):
    """The base class of a connection. It has one deadline at a time, and aborts if the client does not read.

    The subclass sets `transport` when the connection is made, and cancels the timers when it is lost.
    """

    transport: asyncio.Transport

    def __init__(self, loop: asyncio.AbstractEventLoop, http_limits: HttpConnectionLimits) -> None:
        self.loop = loop
        self.read_paused = self.write_paused = False
        self._http_limits = http_limits
        self._state = HEAD
        self._cycle: RequestCycle | None = None  # the newest
        self._last_received_at = loop.time()
        self._deadline = self._timer_due = inf
        self._timer: asyncio.TimerHandle | None = None
        self._reader_timer: asyncio.TimerHandle | None = None
        self._closing_until = 0.0
        self._writable = asyncio.Event()

    # Deadlines

    def _expect_within(self, seconds: float) -> None:
        """Set the deadline of the current state. One timer serves all of them, and is seldom replaced."""
        self._deadline = self.loop.time() + seconds
        if self._deadline < self._timer_due:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_due = self._deadline
            self._timer = self.loop.call_later(seconds, self._on_timer)

    def _on_timer(self) -> None:
        self._timer, self._timer_due = None, inf
        left = self._deadline - self.loop.time()
        if left <= 0:
            self._deadline = inf
            self._on_deadline()
        elif left < inf:
            self._expect_within(left)

    def _on_deadline(self) -> None:
        """Act on the deadline of the current state."""
        raise NotImplementedError

    def _cancel_timers(self) -> None:
        for timer in (self._timer, self._reader_timer):
            if timer is not None:
                timer.cancel()
        self._deadline = self._timer_due = inf

    # Flow control

    def pause_reading(self) -> None:
        if not self.read_paused and self._state in (HEAD, CONTENT):
            self.read_paused = True
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        if self.read_paused and not self.transport.is_closing():
            self.read_paused = False
            self.transport.resume_reading()

    def pause_writing(self) -> None:
        self.write_paused = True
        self._writable.clear()
        self._watch_reader()

    def resume_writing(self) -> None:
        self.write_paused = False
        self._writable.set()

    async def drain(self) -> None:
        """Wait until the client has read enough for more to be written."""
        while self.write_paused:
            await self._writable.wait()

    def _watch_reader(self) -> None:
        if self._reader_timer is None:
            unread = self.transport.get_write_buffer_size()
            seconds = self._http_limits.silent_seconds
            self._reader_timer = self.loop.call_later(seconds, partial(self._check_reader, unread))

    def _check_reader(self, unread: int) -> None:
        """Abort if the client has read too little.

        Before the close, a client may leave less than a full buffer unread.
        """
        self._reader_timer = None
        left = self.transport.get_write_buffer_size()
        if self._state is CLOSING and not left:
            self._linger()
        elif left and (self.write_paused or self._state is CLOSING or self.transport.is_closing()):
            self._watch_reader() if unread - left >= self._http_limits.least_bytes else self.transport.abort()

    # The end

    def close(self) -> None:
        """Close the connection after the client has read its response.

        A socket that is closed with unread input is reset by the operating system, and the response could be lost.
        """
        if self._state in (CLOSING, CLOSED) or self.transport.is_closing():
            return
        self._state = CLOSING
        self._closing_until = self.loop.time() + self._http_limits.linger_seconds
        self.resume_reading()
        self._linger()

    def _linger(self) -> None:
        """Half-close the connection, but not while content arrives: some clients then do not read the response."""
        now = self.loop.time()
        if now >= self._closing_until:
            self._watch_reader() if self.transport.get_write_buffer_size() else self.transport.abort()
        elif self._cycle is not None and self._cycle.more_content and now - self._last_received_at < SENDING_SECONDS:
            self._expect_within(min(SENDING_SECONDS, self._closing_until - now))
        else:
            self._expect_within(self._closing_until - now)
            if self.transport.can_write_eof():
                self.transport.write_eof()

    def eof_received(self) -> None:
        """Watch that the client reads the rest: asyncio closes the transport once its buffer is written."""
        if self.transport.get_write_buffer_size():
            self._watch_reader()
