"""How uvicorn is to carry our sockets: it shakes hands, and hands the connection over."""

import asyncio
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.http11 import Request

from server.admission.connection_limits import Connections
from server.websocket.connection import GOODBYE_SECONDS, WebSocketConnection
from server.websocket.rejected_handshakes import Handshakes
from server.websocket.transport import CLOSE_SECONDS, TAKE_OVER, TransportHandler


class SocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol up to the end of the handshake. Then it offers the connection (`TAKE_OVER`).

    By itself it keeps some 30 KB for an idle connection and takes three times the time to send a message, keeps the
    connection of a peer that does not read for ever, frames without a bound on their number, and pongs for a peer
    that reads none; and it reads all that came in one turn of the event loop. Handshakes that websockets cannot read
    it leaves without an answer and open.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._watched = Connections.of(self.app_state)
        self.conn = Handshakes(self._watched.on_refusal, max_size=self.config.ws_max_size, logger=self.logger)
        self._early = bytearray()  # what came before the handshake was accepted

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._address = (self.client or ("", 0))[0]
        self._watched.add(self._address)
        self._reaping = self.loop.call_later(CLOSE_SECONDS, self._reap)

    def connection_lost(self, exc: Exception | None) -> None:
        self._reaping.cancel()
        self._watched.leave(self._address)
        super().connection_lost(exc)

    def _reap(self) -> None:
        """Whom uvicorn has closed, a handshake that was refused say, need not be waited for until it has read that."""
        if self.transport.is_closing():
            self.transport.abort()
        else:
            self._reaping = self.loop.call_later(CLOSE_SECONDS, self._reap)

    def shutdown(self) -> None:
        """Called by uvicorn, which ends. A handshake that has not been answered is refused with 503."""
        if not (self.close_sent or self.handshake_complete or self.initial_response):
            self.conn.send_response(self.conn.reject(HTTPStatus.SERVICE_UNAVAILABLE, ""))
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = self.disconnected = True  # what the application still sends is dropped
        super().shutdown()
        self.loop.call_later(GOODBYE_SECONDS, self.transport.abort)

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101:
            self.scope["extensions"][TAKE_OVER] = {"carry": self._carry}

    def data_received(self, data: bytes) -> None:
        if self.handshake_complete:
            super().data_received(data)
        elif self.handshake_initiated:
            self._early += data
            if len(self._early) > self._watched.turns.most:
                self.transport.pause_reading()
        else:
            self._shake_hands(data)

    async def receive(self) -> Any:
        if self.handshake_complete and self._early:  # by an application that leaves the connection to uvicorn
            early = bytes(self._early)
            self._early.clear()
            self.transport.resume_reading()
            super().data_received(early)
        return await super().receive()

    def _shake_hands(self, data: bytes) -> None:
        if self.conn.handshake_exc is None:
            super().data_received(data)
        if not self.handshake_initiated and self.conn.handshake_exc is not None and not self.transport.is_closing():
            self.handshake_complete = self.close_sent = True
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.transport.close()

    def _carry(self, carried: TransportHandler) -> None:
        """Let the connection be another's. What is kept for this one goes when the application has returned."""
        transport = self.transport
        if self.disconnected or transport.is_closing():
            raise ClientDisconnected
        self._reaping.cancel()
        self.transport = _Gone()
        self.connections.discard(self)
        connection = WebSocketConnection(
            carried,
            self._watched,
            self._address,
            self.connections,
            max_size=self.config.ws_max_size,
            early=bytes(self._early),
        )
        transport.set_protocol(connection)
        connection.connection_made(transport)


class _Gone(asyncio.Transport):
    """What uvicorn closes when the application has returned."""

    def is_closing(self) -> bool:
        return True

    def close(self) -> None:
        pass


# How uvicorn is to serve the sockets: without compression (twice the memory for each idle one, and little gained on
# small messages), without its own pings (ours also tell a peer whose application hangs), and with small messages.
UVICORN_WS_OPTIONS: Final[Mapping[str, Any]] = {
    "ws": SocketProtocol,
    "ws_max_size": 65_536,
    "ws_per_message_deflate": False,
    "ws_ping_interval": None,
    "ws_ping_timeout": None,
}
