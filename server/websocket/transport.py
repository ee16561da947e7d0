"""The contract of the connections that carry a socket, and the limits of a socket."""

from dataclasses import dataclass
from typing import Protocol

# The ASGI extension through which our server offers its connection to the application. After the application has
# accepted the handshake, it passes a `Socket` to `attach` and returns.
TAKE_OVER = "gateway.websocket.take_over"
# The time for the peer's reply to a close frame.
CLOSE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class SocketLimits:
    """The limits of one socket. Times are in seconds."""

    init_timeout: float = 5.0
    ping_every: float = 12.0
    unanswered_pings: int = 2
    send_timeout: float = 10.0
    max_operations: int = 100
    #: Bytes that may be queued for a peer that does not read.
    waiting_bytes: int = 262_144


LIMITS = SocketLimits()


class WebSocketTransport(Protocol):
    """A connection whose handshake was accepted."""

    @property
    def writable(self) -> bool:
        """False while the write buffer is full. `Socket.drained` is called when it is writable again."""

    def send(self, start: bytes, body: bytes = b"", end: bytes = b"") -> None:
        """Send one text message, given in up to three parts. While the transport is not writable it is buffered."""

    def close(self, code: int, reason: str, seconds: float = CLOSE_SECONDS) -> None:
        """Begin the closing handshake, and abort the connection after `seconds`. Nothing can be sent afterwards."""

    def abort(self) -> None:
        """Close the connection at once, without a close frame."""

    def hold(self) -> None:
        """Deliver no more messages until `release`."""

    def release(self) -> None:
        """Resume delivering messages."""
