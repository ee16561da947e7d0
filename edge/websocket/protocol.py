"""How uvicorn is to carry our sockets: its protocol with its faults mended, and its options."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from edge.capacity.connections import Connections
from edge.capacity.reading import Paced
from edge.websocket.handshakes import Handshakes
from edge.websocket.messages import GOING_AWAY

GOODBYE_SECONDS = 2.0
# A message comes in one frame, or in a few where a proxy parts it. Empty frames would add up without end.
MOST_FRAMES = 1024


class SocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol, which by itself keeps the connection of a peer that does not read for ever.

    It closes a transport only after the write buffer has been flushed, so such a connection outlives its task, holds
    its buffer, and holds up the shutdown. It also logs a traceback for each text that is not UTF-8, and closes on a
    message that is too large while it still comes in: the reset that follows may overtake the code that says why. And
    it keeps frames without a bound on their number, and pongs for a peer that reads none. Handshakes that websockets
    cannot read are left without an answer and open. All that came it reads in one turn of the event loop, 256 KB of
    frames without a payload if need be.
    """

    _reaper: asyncio.TimerHandle | None = None

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._watched = Connections.of(self.app_state)
        self.conn = Handshakes(self._watched.on_refusal, max_size=self.config.ws_max_size, logger=self.logger)
        self._unread = bytearray()
        self._has_asked = False  # for a turn
        self._paced = Paced(self._watched.pace, self.loop.time)
        self._pausing: asyncio.TimerHandle | None = None
        self._frames = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._address = (self.client or ("", 0))[0]
        self._watched.add(self._address)

    def data_received(self, data: bytes) -> None:
        if self.handshake_initiated:
            self._unread += data
            self._go_on()
        else:
            self._shake_hands(data)

    def _shake_hands(self, data: bytes) -> None:
        if self.conn.handshake_exc is None:
            super().data_received(data)
        if not self.handshake_initiated and self.conn.handshake_exc is not None and not self.transport.is_closing():
            self.handshake_complete = self.close_sent = True
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.transport.close()

    def _go_on(self) -> None:
        """Ask for a turn where there is something to read, and let no more come than can be read soon.

        Nothing is read while the application has a message before it, or the peer was too fast.
        """
        if self.transport.is_closing():
            return
        if self._pausing is not None or len(self._unread) > self._watched.turns.most:
            self.transport.pause_reading()
        elif not self.read_paused:
            self.transport.resume_reading()
        if self._unread and not (self._has_asked or self._pausing or self.read_paused):
            self._has_asked = True
            self._watched.turns.ask(self._read)

    def _read(self, most: int) -> int:
        self._has_asked = False
        if self.disconnected or self.transport.is_closing():
            self._unread.clear()
            return 0
        data = bytes(self._unread[:most])
        del self._unread[:most]
        self._frames = 0
        super().data_received(data)
        wait = self._paced.wait(self._frames)
        if wait:
            self._pausing = self.loop.call_later(wait, self._end_pause)
        self._go_on()
        return len(data)

    def _end_pause(self) -> None:
        self._pausing = None
        self._go_on()

    def handle_events(self) -> None:
        self._frames += len(self.conn.events)
        super().handle_events()

    async def receive(self) -> Any:
        message = await super().receive()
        self._go_on()
        return message

    async def send(self, message: Any) -> None:
        await super().send(message)
        if self.close_sent:  # reading goes on until the peer replies
            self._go_on()

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        super().on_task_complete(task)
        if not self.disconnected:
            # A socket that ends with its buffer full was given up on: nobody will read the rest.
            patience = self.close_timeout + 1.0 if self.writable.is_set() else 0.0
            self._reaper = self.loop.call_later(patience, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._reaper is not None:
            self._reaper.cancel()
        if self._pausing is not None:
            self._pausing.cancel()
        self._unread.clear()
        self._watched.leave(self._address)
        if self.conn.close_sent is not None and not self.conn.close_rcvd_then_sent:  # it is no reply
            self._watched.on_closed(self.conn.close_sent.code)
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Close with 1001 and wait a moment for the peer's reply; uvicorn's own cuts the connection at once."""
        if not self.handshake_complete or self.close_sent or self.transport.is_closing():
            super().shutdown()
            return
        self.queue.put_nowait({"type": "websocket.disconnect", "code": GOING_AWAY.code, "reason": GOING_AWAY.reason})
        self.conn.send_close(GOING_AWAY.code, GOING_AWAY.reason)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.close_timer = self.loop.call_later(GOODBYE_SECONDS, self.transport.abort)

    def handle_parser_exception(self) -> None:
        if self.close_sent:
            return
        assert self.conn.close_sent is not None
        code, reason = self.conn.close_sent.code, self.conn.close_sent.reason
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        if self.transport.can_write_eof():
            self.transport.write_eof()
        # What still comes is read and thrown away until the peer has heard.
        self.read_paused = False
        self._go_on()
        self.close_timer = self.loop.call_later(GOODBYE_SECONDS, self.transport.abort)

    def handle_cont(self, event: Frame) -> None:
        if self.close_sent:
            return
        if len(self.frames) >= MOST_FRAMES:
            self.conn.fail(1009, f"a message in more than {MOST_FRAMES:,} frames")
            self.handle_parser_exception()
            return
        super().handle_cont(event)

    def handle_ping(self) -> None:
        """RFC 6455, 5.5.3: who has not read the earlier pongs need not get one for each ping."""
        pongs = b"".join(self.conn.data_to_send())
        if self.writable.is_set():
            self.transport.write(pongs)

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text" and not _is_utf8(b"".join(self.frames)):
            self.conn.send_close(1007, "Invalid message: not UTF-8")
            self.handle_parser_exception()
            return
        super().send_receive_event_to_app()


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


# How uvicorn is to serve the sockets: without compression (twice the memory for each idle one, and little gained on
# small messages), without its own pings (ours also tell a peer whose application hangs), and with small messages.
UVICORN_WS_OPTIONS: Final[Mapping[str, Any]] = {
    "ws": SocketProtocol,
    "ws_max_size": 65_536,
    "ws_per_message_deflate": False,
    "ws_ping_interval": None,
    "ws_ping_timeout": None,
}
