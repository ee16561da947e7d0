"""A connection without a socket: the server's transport, and the client at its other end."""

import asyncio
import gc
import sys
from collections import deque
from collections.abc import Callable
from typing import Any

from tests.support.fuzzing.clockwork import Clockwork

# What the operating systems keep for a client that does not read, before the server's own buffer fills.
SYSTEM_BYTES = 65_536
HIGH_WATER, LOW_WATER = 65_536, 16_384
# What one call of `data_received` hands over at the most, as in asyncio.
READ_BYTES = 262_144


class WorkLimit:
    """Function calls that a protocol makes for the bytes it is given: the same on every machine.

    `calls` are allowed for each call of `data_received`, and `calls_per_byte` on top. A call beyond that raises
    `TooMuch` inside of the protocol, and is noted in `excess`, whatever the protocol makes of the exception.

    The garbage collector rests meanwhile: it may run at any allocation, and the callbacks of what others left would
    count as calls of the protocol.
    """

    calls = 1_500
    calls_per_byte = 6

    def __init__(self) -> None:
        self.excess: str | None = None
        self.most = 0.0
        self._left = 0

    def begin(self, size: int) -> None:
        gc.disable()
        self._left = self.calls + self.calls_per_byte * size
        sys.setprofile(self._count)

    def end(self, size: int) -> None:
        sys.setprofile(None)
        gc.enable()
        allowed = self.calls + self.calls_per_byte * size
        self.most = max(self.most, (allowed - self._left) / allowed)

    def _count(self, frame: Any, event: str, _: Any) -> None:
        self._left -= 1
        if self._left < 0:
            self.excess = f"more function calls than its bytes allow, at last in {frame.f_code.co_qualname}"
            raise TooMuch(self.excess)


class TooMuch(BaseException):
    """A protocol does more than what it was sent allows."""


class Wire(asyncio.Transport):
    """Behaves as asyncio's transport of a TCP socket does. `said` is what the client has read.

    The client sends with `send`, `finish` (half-close), `reset` and `leave`, and stops reading with `stop_reading`.
    """

    def __init__(self, loop: Clockwork, address: str = "192.0.2.1", work: WorkLimit | None = None) -> None:
        super().__init__({"peername": (address, 50_000), "sockname": ("192.0.2.250", 80), "socket": None})
        self.loop = loop
        self.work = work
        self.said = bytearray()
        self.taken = 0  # bytes handed to the protocol
        self.lost = False  # the loss was reported to the protocol
        self.ended_by_server = False  # the client sees the end of the stream
        self._protocol: Any = None
        self._reading = True
        self._closing = self._aborted = self._eof = False
        self._paused_writing = False
        self._unread = bytearray()
        self._client_reads = True
        self._client_gone = False
        self._coming: deque[bytes] = deque()
        self._client_finished = self._eof_told = False
        self._delivering = False

    def connect(self, protocol: Any) -> None:
        """Begin. The loop must be running."""
        self._protocol = protocol
        protocol.connection_made(self)

    def connect_soon(self, make: Callable[[], Any]) -> None:
        """Begin, with the protocol that `make` returns, when the loop runs."""
        self.loop.call_soon(lambda: self.connect(make()))

    # The server's end

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> Any:
        return self._protocol

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._deliver_soon()

    def get_write_buffer_size(self) -> int:
        return max(0, len(self._unread) - SYSTEM_BYTES)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return LOW_WATER, HIGH_WATER

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def can_write_eof(self) -> bool:
        return True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._eof:
            raise RuntimeError("Cannot call write() after write_eof()")
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"data: expecting a bytes-like instance, got {type(data).__name__}")
        if self.lost or self._aborted or not data:
            return
        if self._client_gone:
            self._fail()
            return
        if self._client_reads:
            self.said += data
            return
        self._unread += data
        if self.get_write_buffer_size() > HIGH_WATER and not self._paused_writing:
            self._paused_writing = True
            self._protocol.pause_writing()

    def writelines(self, lines: Any) -> None:
        self.write(b"".join(lines))

    def write_eof(self) -> None:
        if not self._closing and not self._eof:
            self._eof = True
            self._end_if_flushed()

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            if not self.get_write_buffer_size():
                self.loop.call_soon(self._lose, None)

    def abort(self) -> None:
        self._fail(None)

    def _fail(self, error: Exception | None = None) -> None:
        if not self._aborted and not self.lost:
            self._closing = self._aborted = True
            self._unread.clear()
            self.loop.call_soon(self._lose, error)

    def _lose(self, error: Exception | None) -> None:
        if not self.lost:
            self.lost = self.ended_by_server = True
            self._protocol.connection_lost(error)

    def _end_if_flushed(self) -> None:
        if self._eof and not self.get_write_buffer_size():
            self.ended_by_server = True

    # The client's end

    @property
    def is_over(self) -> bool:
        """Whether the server takes nothing more: it has closed the connection, or its own half of it."""
        return self._closing or self._eof or self.lost

    @property
    def waiting(self) -> int:
        """Bytes that the client has sent, and that the server has not read."""
        return sum(map(len, self._coming))

    @property
    def is_paused(self) -> bool:
        """Whether the server reads no more for now."""
        return not self._reading

    def send(self, data: bytes) -> None:
        if not self._client_gone and not self._client_finished:
            for start in range(0, len(data), READ_BYTES):
                self._coming.append(data[start : start + READ_BYTES])
            self._deliver_soon()

    def finish(self) -> None:
        """Send no more. The client goes on reading."""
        self._client_finished = True
        self._deliver_soon()

    def reset(self) -> None:
        """Break the connection: the server notices at once."""
        self._client_gone = True
        self._fail(ConnectionResetError())

    def leave(self) -> None:
        """Close both directions: the server sees an end, and notices by writing that nobody reads."""
        self.finish()
        self._client_gone = True
        self._client_reads = True

    def stop_reading(self) -> None:
        self._client_reads = False

    def read_on(self) -> None:
        self._client_reads = True
        if self._aborted or self._client_gone:
            return
        self.said += self._unread
        self._unread.clear()
        self._end_if_flushed()
        if self._paused_writing:
            self._paused_writing = False
            self._protocol.resume_writing()
        if self._closing and not self.lost:
            self.loop.call_soon(self._lose, None)

    def _deliver_soon(self) -> None:
        if not self._delivering:
            self._delivering = True
            self.loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        """Hand over one piece, as a turn of the event loop does."""
        self._delivering = False
        if not self._reading or self._closing:
            return
        if self._coming:
            self._hand_over(self._coming.popleft())
            self._deliver_soon()
        elif self._client_finished and not self._eof_told:
            self._eof_told = True
            if not self._protocol.eof_received():
                self.close()

    def _hand_over(self, data: bytes) -> None:
        size = len(data)
        self.taken += size
        if self.work is None:
            self._protocol.data_received(data)
        else:
            self.work.begin(size)
            try:
                self._protocol.data_received(data)
            except TooMuch:
                self._fail()
            finally:
                self.work.end(size)
