"""A WebSocket connection after its handshake: frames in and out, without a task, in little memory."""

import asyncio
from typing import Any

from server.admission.connection_limits import Connections, bound_send_buffer
from server.admission.fairness import TokenBucket
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
from server.websocket.transport import CLOSE_SECONDS, TransportHandler

CLOSE_REPLY_SECONDS = 2.0  # for the peer's reply to a close frame when we are in a hurry
# A message comes in one frame, or in a few where a proxy parts it. Empty frames would add up without end.
MOST_FRAMES = 1024


class WebSocketConnection(asyncio.Protocol):
    """A `WebSocketTransport` over a connection that has completed its handshake.

    `peers` are the connections of the server, which it closes. Input is read in fair turns and at a limited rate. While
    messages are held, one more message and control frames are read; then reading stops.
    """

    __slots__ = (
        "_address",
        "_asked",
        "_carried",
        "_close_timer",
        "_close_wanted",
        "_closed_with",
        "_deaf",
        "_granted",
        "_held",
        "_kept",
        "_max_size",
        "_paced",
        "_parts",
        "_pausing",
        "_peers",
        "_reading",
        "_room",
        "_unread",
        "_watched",
        "transport",
        "writable",
    )

    def __init__(
        self,
        carried: TransportHandler,
        watched: Connections,
        address: str,
        peers: set[Any],
        *,
        max_size: int,
        early: bytes,
    ) -> None:
        self._carried = carried
        self._watched = watched
        self._address = address
        self._peers = peers
        self._max_size = self._room = max_size
        self._paced = TokenBucket(watched.message_rate, asyncio.get_running_loop().time)
        self._unread = bytearray(early)
        self._granted = 0  # bytes granted by the fair reader, after which an incomplete frame begins
        self._asked = False  # for a turn
        self._pausing: asyncio.TimerHandle | None = None
        self._reading = True
        self._held = False
        self._kept: tuple[str | None] | None = None  # the message that came while they were held
        self._parts: list[bytes] | None = None  # of a message, the first is its opcode
        self._closed_with = 0  # the code that was sent
        self._close_wanted = False  # whether it was no reply
        self._close_timer: asyncio.TimerHandle | None = None
        self._deaf = False  # what still comes is thrown away
        self.writable = True

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        bound_send_buffer(transport)
        self._peers.add(self)
        self._carried.begin(self)
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._close_timer, self._pausing):
            if timer is not None:
                timer.cancel()
        self._unread.clear()
        self._peers.discard(self)
        self._watched.release(self._address)
        if self._close_wanted:
            self._watched.on_closed(self._closed_with)
        self._carried.lost()

    # What goes out

    def pause_writing(self) -> None:
        self.writable = False
        if not self._closed_with:
            self._carried.filled()

    def resume_writing(self) -> None:
        self.writable = True
        if not self._closed_with:
            self._carried.drained()

    def send(self, start: bytes, body: bytes = b"", end: bytes = b"") -> None:
        size = len(start) + len(body) + len(end)
        first = TEXT_HEADS[size] if size < len(TEXT_HEADS) else head(TEXT, size)
        self.transport.write(b"".join((first, start, body, end)))

    def close(self, code: int, reason: str, seconds: float = CLOSE_SECONDS) -> None:
        self._send_close(code, reason, seconds)

    def _send_close(self, code: int, reason: str, seconds: float) -> None:
        """Begin the closing handshake. The connection ends with the reply of the peer, or after `seconds`."""
        if self._closed_with:
            return
        self._end_in(seconds)
        if self.transport.is_closing():
            return
        self._closed_with, self._close_wanted = code, True
        self.transport.write(close_frame(code, reason))
        self.release()

    def _end_in(self, seconds: float) -> None:
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
        """Called by uvicorn when it shuts down. A peer that does not read is not waited for."""
        if self._closed_with or self.transport.is_closing():
            self.transport.close()
            self._end_in(CLOSE_REPLY_SECONDS if self.writable else 0.0)
            return
        self._send_close(*GOING_AWAY, CLOSE_REPLY_SECONDS)
        self._carried.gone()

    def _fail(self, fault: Fault) -> None:
        """Fail the connection (RFC 6455, 7.1.7). Later input is discarded until the peer closes."""
        self._deaf = True
        if self._closed_with:
            return
        self._send_close(fault.code, fault.reason, CLOSE_REPLY_SECONDS)
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._carried.gone()

    # What comes in

    def data_received(self, data: bytes) -> None:
        if not self._deaf:
            self._unread += data
            self._go_on()

    def eof_received(self) -> None:
        """The peer sends nothing more: the transport closes after its buffer is written."""
        self._end_in(CLOSE_SECONDS)
        self._carried.gone()

    def hold(self) -> None:
        self._held = True

    def release(self) -> None:
        self._held = False
        kept, self._kept = self._kept, None
        if kept is not None and not self._closed_with:
            self._carried.received(*kept)
        self._go_on()

    def _go_on(self) -> None:
        """Request a turn if input is unread, and pause the transport if more is buffered than can be read soon."""
        waits = self._pausing is not None or self._kept is not None
        reads = not waits and len(self._unread) - self._granted <= self._watched.fair_reader.bytes_per_turn
        if reads is not self._reading and not self.transport.is_closing():
            self._reading = reads
            if reads:
                self.transport.resume_reading()
            else:
                self.transport.pause_reading()
        if len(self._unread) > self._granted and not (waits or self._asked):
            self._asked = True
            self._watched.fair_reader.enqueue(self._read)

    def _read(self, most: int) -> int:
        """Read the complete frames in the next `most` bytes, and return how many bytes were read."""
        self._asked = False
        if self.transport.is_closing():
            self._unread.clear()
            return 0
        before = self._granted
        self._granted = min(len(self._unread), before + most)
        taken = self._granted - before
        try:
            frames = self._frames()
        except Fault as fault:
            frames = 1
            self._fail(fault)
        wait = self._paced.take(frames)
        if wait:
            self._pausing = asyncio.get_running_loop().call_later(wait, self._end_pause)
        self._go_on()
        return taken

    def _end_pause(self) -> None:
        self._pausing = None
        self._go_on()

    def _frames(self) -> int:
        """Handle the frames that had their turn, and return how many they were."""
        at = frames = 0
        try:
            while self._kept is None:
                read = read_frame(self._unread, at, self._granted, self._room)
                if read is None:
                    break
                at = read.end
                frames += 1
                if self._closed_with:
                    self._after_goodbye(read)
                else:
                    self._take(read)
            else:
                self._granted = at  # the rest has to ask again
        except Fault:
            at = self._granted = len(self._unread)
            raise
        finally:
            del self._unread[:at]
            self._granted -= at
        return frames

    def _take(self, read: Frame) -> None:
        opcode, final, data, _ = read
        if opcode in (TEXT, BINARY):
            if self._parts is not None:
                raise Fault(1002, "a message inside another")
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
            raise Fault(1002, "a part of no message")
        if len(parts) > MOST_FRAMES:
            raise Fault(1009, f"a message in more than {MOST_FRAMES:,} frames")
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
            self._kept = (text,)
        else:
            self._carried.received(text)

    def _pong(self, data: bytes) -> None:
        """Send a pong, unless the peer has not read the earlier ones: RFC 6455, 5.5.3 allows that."""
        if self.writable:
            self.transport.write(frame(PONG, data))

    def _reply(self, data: bytes) -> None:
        """Reply to the close frame of the peer, and end."""
        self._closed_with = code_of(data)
        self.transport.write(frame(CLOSE, data))
        self.transport.close()
        self._end_in(CLOSE_SECONDS)
        self._carried.gone()

    def _after_goodbye(self, read: Frame) -> None:
        """Ignore all frames but the reply to our close frame."""
        if read.opcode == CLOSE:
            self.transport.close()
