"""The opening handshake of a WebSocket, by uvicorn's protocol, and the handover of the connection."""

import asyncio
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.datastructures import Headers
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol
from websockets.typing import StatusLike

from datastore.errors import BadUserInput, DomainError, Forbidden, Internal, Unavailable
from server.admission.connection_limits import Connections
from server.http.headers import JSON, SECURITY_HEADERS
from server.operations.outcome import encode, format_error
from server.request_identity import RequestIdentity, identified, new_id
from server.websocket.connection import CLOSE_REPLY_SECONDS, WebSocketConnection
from server.websocket.transport import CLOSE_SECONDS, TAKE_OVER

if TYPE_CHECKING:
    from server.websocket.socket import Socket

# Headers that contain lists. Clients send some 100 bytes of each; longer lists are refused without being parsed.
LIST_HEADERS = ("Connection", "Upgrade", "Sec-WebSocket-Protocol", "Sec-WebSocket-Extensions")
MAX_LIST_BYTES = 1024


class Handshakes(ServerProtocol):
    """The handshake of the `websockets` library, with refusals that have a JSON body and the security headers.

    `on_refusal` is called with the status and the error code of each refusal.
    """

    def __init__(self, on_refusal: Callable[[int, str], None], **options: Any) -> None:
        super().__init__(**options)
        self._on_refusal = on_refusal

    def accept(self, request: Request) -> Response:
        """Return the response to a handshake: a refusal if a list in its headers exceeds `MAX_LIST_BYTES`."""
        if any(sum(map(len, request.headers.get_all(name))) > MAX_LIST_BYTES for name in LIST_HEADERS):
            return self.reject(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "")
        return super().accept(request)

    def reject(self, status: StatusLike, text: str) -> Response:
        """Return a response that refuses the handshake. `text`, the library's message, is ignored."""
        status = HTTPStatus(status)
        error = _error(status)
        identity = RequestIdentity(new_id())
        with identified(identity):
            self._on_refusal(status.value, error.code)
        body = encode({"errors": [format_error(error)]})
        headers = Headers(
            [
                ("Connection", "close"),
                ("Content-Length", str(len(body))),
                ("Content-Type", f"{JSON}; charset=utf-8"),
                ("Sec-WebSocket-Version", "13"),  # RFC 6455, 4.2.2: required for clients of another version
                *((name.decode(), value.decode()) for name, value in (*identity.identity_headers, *SECURITY_HEADERS)),
            ]
        )
        return Response(status.value, status.phrase, headers, body)


def _error(status: HTTPStatus) -> DomainError:
    """Return the error in the body of a refusal with this status."""
    match status:
        case HTTPStatus.FORBIDDEN:
            return Forbidden("A WebSocket may not be opened here, or not from this page.")
        case HTTPStatus.INTERNAL_SERVER_ERROR:
            return Internal("Something went wrong on our side.")
        case HTTPStatus.SERVICE_UNAVAILABLE:
            return Unavailable("The server is shutting down; connect again.")
        case HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE | HTTPStatus.REQUEST_URI_TOO_LONG:
            return BadUserInput(
                "A WebSocket's URL, and each of its headers, may have at most 8,192 bytes; "
                f"each of {', '.join(LIST_HEADERS)} at most {MAX_LIST_BYTES:,}."
            )
        case HTTPStatus.METHOD_NOT_ALLOWED:
            return BadUserInput("A WebSocket is opened with GET.")
        case _:
            return BadUserInput("This is not an opening handshake of a WebSocket, version 13 (RFC 6455).")


class SocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol until the end of the handshake, when it offers the connection (`TAKE_OVER`).

    uvicorn alone keeps some 30 KB for an idle connection and needs three times the CPU to send a message. It never
    drops a peer that does not read, accepts any number of frames for one message, sends pongs to a peer that does not
    read them, and parses all received data in one turn of the event loop. A handshake that the library cannot parse
    gets no response, and its connection stays open.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._connection_limits = Connections.from_state(self.app_state)
        self.conn = Handshakes(self._connection_limits.on_refusal, max_size=self.config.ws_max_size, logger=self.logger)
        self._early = bytearray()  # received before the handshake was accepted

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._address = (self.client or ("", 0))[0]
        self._connection_limits.adopt(self._address)
        self._abort_timer = self.loop.call_later(CLOSE_SECONDS, self._abort_if_closing)

    def connection_lost(self, exc: Exception | None) -> None:
        self._abort_timer.cancel()
        self._connection_limits.release(self._address)
        super().connection_lost(exc)

    def _abort_if_closing(self) -> None:
        """Abort a connection that uvicorn has closed (after a refused handshake) if its client does not read."""
        if self.transport.is_closing():
            self.transport.abort()
        else:
            self._abort_timer = self.loop.call_later(CLOSE_SECONDS, self._abort_if_closing)

    def shutdown(self) -> None:
        """Refuse a handshake without a response with 503, and close. Called by uvicorn when it shuts down."""
        if not (self.close_sent or self.handshake_complete or self.initial_response):
            self.conn.send_response(self.conn.reject(HTTPStatus.SERVICE_UNAVAILABLE, ""))
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.close_sent = self.disconnected = True  # later messages of the application are ignored
        super().shutdown()
        self.loop.call_later(CLOSE_REPLY_SECONDS, self.transport.abort)

    def handle_connect(self, event: Request) -> None:
        super().handle_connect(event)
        if self.response.status_code == 101:
            self.scope["extensions"][TAKE_OVER] = {"attach": self._attach}

    def data_received(self, data: bytes) -> None:
        if self.handshake_complete:
            super().data_received(data)
        elif self.handshake_initiated:
            self._early += data
            if len(self._early) > self._connection_limits.fair_reader.bytes_per_turn:
                self.transport.pause_reading()
        else:
            self._parse_handshake(data)

    async def receive(self) -> Any:
        if self.handshake_complete and self._early:  # the application left the connection to uvicorn
            early = bytes(self._early)
            self._early.clear()
            self.transport.resume_reading()
            super().data_received(early)
        return await super().receive()

    def _parse_handshake(self, data: bytes) -> None:
        if self.conn.handshake_exc is None:
            super().data_received(data)
        if not self.handshake_initiated and self.conn.handshake_exc is not None and not self.transport.is_closing():
            self.handshake_complete = self.close_sent = True
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.transport.close()

    def _attach(self, socket: "Socket") -> None:
        """Hand the connection over to a `WebSocketConnection`; this protocol is freed when the application returns.

        Raises:
            ClientDisconnected: The client has closed the connection.
        """
        transport = self.transport
        if self.disconnected or transport.is_closing():
            raise ClientDisconnected
        self._abort_timer.cancel()
        self.transport = _DetachedTransport()
        self.connections.discard(self)
        connection = WebSocketConnection(
            socket,
            self._connection_limits,
            self._address,
            self.connections,
            max_size=self.config.ws_max_size,
            early=bytes(self._early),
        )
        transport.set_protocol(connection)
        connection.connection_made(transport)


class _DetachedTransport(asyncio.Transport):
    """A substitute for the transport that was handed over: uvicorn closes it when the application returns."""

    def is_closing(self) -> bool:
        return True

    def close(self) -> None:
        pass


# No compression: it doubles the memory of an idle socket and saves little on small messages. No pings by uvicorn: the
# pings of graphql-transport-ws also detect a peer whose application hangs.
UVICORN_WS_OPTIONS: Final[Mapping[str, Any]] = {
    "ws": SocketProtocol,
    "ws_max_size": 65_536,
    "ws_per_message_deflate": False,
    "ws_ping_interval": None,
    "ws_ping_timeout": None,
}
