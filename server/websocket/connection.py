"""A WebSocket connection after its handshake: it reads and writes frames without a task, in little memory."""

import asyncio
from typing import TYPE_CHECKING, Any

from server.admission.connection_limits import Connections, bound_send_buffer
from server.websocket.frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    TEXT_HEADS,
    Fault,
    Frame,
    close_frame,
    code_of,
    frame,
    head,
    read_frame,
)
from server.websocket.messages import GOING_AWAY
from server.websocket.transport import CLOSE_SECONDS

if TYPE_CHECKING:
    from server.websocket.socket import Socket

# The time for the peer's reply to a close frame after an error or at a shutdown.
CLOSE_REPLY_SECONDS = 2.0
# A message arrives in one frame, or in a few if a proxy splits it. The limit bounds empty frames.
MAX_FRAMES_PER_MESSAGE = 1024


class WebSocketConnection(asyncio.Protocol):
    """A `WebSocketTransport` over a connection that has completed its handshake.

    `peers` are the connections of the server, which it closes. Input is read in fair turns and at a limited rate. While
    messages are held, one more message and control frames are read; then reading stops.
    """

    __slots__ = (
        "_address",
        "_close_initiated",
        "_close_timer",
        "_closed_with",
        "_discards_input",
        "_granted",
        "_held",
        "_held_message",
        "_limits",
        "_max_size",
        "_message_bucket",
        "_parts",
        "_pause_timer",
        "_peers",
        "_reading",
        "_room",
        "_socket",
        "_turn_requested",
        "_unread",
        "transport",
        "writable",
    )

    def __init__(
        self,
        socket: "Socket",
        limits: Connections,
        address: str,
        peers: set[Any],
        *,
        max_size: int,
        early: bytes,
    ) -> None:
        self._socket = socket
        self._limits = limits
        self._address = address
        self._peers = peers
        self._max_size = self._room = max_size
        self._message_bucket = limits.message_bucket(asyncio.get_running_loop().time())
        self._unread = bytearray(early)
        self._granted = 0  # bytes of an incomplete frame that the fair reader has granted
        self._turn_requested = False  # of the fair reader
        self._pause_timer: asyncio.TimerHandle | None = None
        self._reading = True
        self._held = False
        self._held_message: tuple[str | None] | None = None  # the message that arrived while messages were held
        self._parts: list[bytes] | None = None  # the opcode of a fragmented message, then its fragments
        self._closed_with = 0  # the close code that was sent
        self._close_initiated = False  # whether the close frame was no reply
        self._close_timer: asyncio.TimerHandle | None = None
        self._discards_input = False  # after a protocol error
        self.writable = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        bound_send_buffer(transport)
        self._peers.add(self)
        self._socket.begin(self)
        self._schedule_read()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._close_timer, self._pause_timer):
            if timer is not None:
                timer.cancel()
        self._unread.clear()
        self._peers.discard(self)
        self._limits.release(self._address)
        if self._close_initiated:
            self._limits.on_closed(self._closed_with)
        self._socket.lost()

    # Output

    def pause_writing(self) -> None:
        self.writable = False
        if not self._closed_with:
            self._socket.filled()

    def resume_writing(self) -> None:
        self.writable = True
        if not self._closed_with:
            self._socket.drained()

    def send(self, start: bytes, body: bytes = b"", end: bytes = b"") -> None:
        size = len(start) + len(body) + len(end)
        first = TEXT_HEADS[size] if size < len(TEXT_HEADS) else head(TEXT, size)
        self.transport.write(b"".join((first, start, body, end)))

    def close(self, code: int, reason: str, seconds: float = CLOSE_SECONDS) -> None:
        """Begin the closing handshake. The connection ends with the reply of the peer, or after `seconds`."""
        if self._closed_with:
            return
        self._abort_after(seconds)
        if self.transport.is_closing():
            return
        self._closed_with, self._close_initiated = code, True
        self.transport.write(close_frame(code, reason))
        self.release()

    def _abort_after(self, seconds: float) -> None:
        """Abort after `seconds`: a closed transport would wait for the peer to read without a limit."""
        loop = asyncio.get_running_loop()
        due = loop.time() + seconds
        if self._close_timer is not None:
            if self._close_timer.when() <= due:
                return
            self._close_timer.cancel()
        self._close_timer = loop.call_at(due, self.transport.abort)

    def abort(self) -> None:
        self.transport.abort()

    def shutdown(self) -> None:
        """Begin to close the connection. Called by uvicorn when it shuts down.

        A connection that is closing already is aborted if its peer does not read.
        """
        if self._closed_with or self.transport.is_closing():
            self.transport.close()
            self._abort_after(CLOSE_REPLY_SECONDS if self.writable else 0.0)
            return
        self.close(*GOING_AWAY, CLOSE_REPLY_SECONDS)
        self._socket.closing()

    def _fail(self, fault: Fault) -> None:
        """Fail the connection (RFC 6455, 7.1.7). Later input is discarded until the peer closes."""
        self._discards_input = True
        if self._closed_with:
            return
        self.close(fault.code, fault.reason, CLOSE_REPLY_SECONDS)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._socket.closing()

    # Input

    def data_received(self, data: bytes) -> None:
        if not self._discards_input:
            self._unread += data
            self._schedule_read()

    def eof_received(self) -> None:
        """Handle the end of input: the transport closes after its buffer is written."""
        self._abort_after(CLOSE_SECONDS)
        self._socket.closing()

    def hold(self) -> None:
        self._held = True

    def release(self) -> None:
        self._held = False
        held_message, self._held_message = self._held_message, None
        if held_message is not None and not self._closed_with:
            self._socket.received(*held_message)
        self._schedule_read()

    def _schedule_read(self) -> None:
        """Request a turn if there is unread input. Pause the transport while more is buffered than one turn reads."""
        waits = self._pause_timer is not None or self._held_message is not None
        reads = not waits and len(self._unread) - self._granted <= self._limits.fair_reader.bytes_per_turn
        if reads is not self._reading and not self.transport.is_closing():
            self._reading = reads
            if reads:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()
        if len(self._unread) > self._granted and not (waits or self._turn_requested):
            self._turn_requested = True
            self._limits.fair_reader.enqueue(self._read)

    def _read(self, max_bytes: int) -> int:
        """Grant the next `max_bytes`, handle the complete frames, and return the number of bytes that were granted."""
        self._turn_requested = False
        if self.transport.is_closing():
            self._unread.clear()
            return 0
        before = self._granted
        self._granted = min(len(self._unread), before + max_bytes)
        granted = self._granted - before
        try:
            frames = self._frames()
        except Fault as fault:
            frames = 1
            self._fail(fault)
        loop = asyncio.get_running_loop()
        # Messages are counted after they were read. A debt delays the next read.
        debt = -self._message_bucket.charge(frames, loop.time())
        if debt > 0:
            self._pause_timer = loop.call_later(debt / self._message_bucket.per_second, self._end_pause)
        self._schedule_read()
        return granted

    def _end_pause(self) -> None:
        self._pause_timer = None
        self._schedule_read()

    def _frames(self) -> int:
        """Handle the complete frames in the granted bytes, and return their number."""
        at = frames = 0
        try:
            while self._held_message is None:
                received = read_frame(self._unread, at, self._granted, self._room)
                if received is None:
                    break
                at = received.end
                frames += 1
                if self._closed_with:
                    self._handle_after_close(received)
                else:
                    self._handle_frame(received)
            else:
                self._granted = at  # the rest needs another turn
        except Fault:
            at = self._granted = len(self._unread)
            raise
        finally:
            del self._unread[:at]
            self._granted -= at
        return frames

    def _handle_frame(self, received: Frame) -> None:
        opcode, final, data, _ = received
        if opcode in (TEXT, BINARY):
            if self._parts is not None:
                raise Fault(1002, "a new message inside a fragmented one")
            if final:
                self._message(opcode, data)
            else:
                self._parts = [bytes((opcode,)), data]
                self._room -= len(data)
        elif opcode == CONTINUATION:
            self._continue(final, data)
        elif opcode == PING:
            self._pong(data)
        elif opcode == CLOSE:
            self._reply(data)

    def _continue(self, final: bool, data: bytes) -> None:
        parts = self._parts
        if parts is None:
            raise Fault(1002, "a continuation frame without a message")
        if len(parts) > MAX_FRAMES_PER_MESSAGE:
            raise Fault(1009, f"a message in more than {MAX_FRAMES_PER_MESSAGE:,} frames")
        parts.append(data)
        self._room -= len(data)
        if final:
            self._parts, self._room = None, self._max_size
            self._message(parts[0][0], b"".join(parts[1:]))

    def _message(self, opcode: int, data: bytes) -> None:
        try:
            text = data.decode() if opcode == TEXT else None
        except UnicodeDecodeError:
            raise Fault(1007, "Invalid message: not UTF-8") from None
        if self._held:
            self._held_message = (text,)
        else:
            self._socket.received(text)

    def _pong(self, data: bytes) -> None:
        """Send a pong, unless the peer has not read the earlier ones: RFC 6455, 5.5.3 allows that."""
        if self.writable:
            self.transport.write(frame(PONG, data))

    def _reply(self, data: bytes) -> None:
        """Reply to the close frame of the peer, and end."""
        self._closed_with = code_of(data)
        self.transport.write(frame(CLOSE, data))
        self.transport.close()
        self._abort_after(CLOSE_SECONDS)
        self._socket.closing()

    def _handle_after_close(self, received: Frame) -> None:
        """Ignore all frames except the reply to our close frame."""
        if received.opcode == CLOSE:
            self.transport.close()
