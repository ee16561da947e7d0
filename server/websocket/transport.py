"""What a socket and the connection that carries it are to each other."""

from typing import Protocol

# The extension of ASGI by which a server of ours offers an application to carry its sockets: `carry` takes a
# `TransportHandler` once the handshake was accepted, and the application returns.
TAKE_OVER = "gateway.websocket.take_over"
# For the peer's reply to a close frame.
CLOSE_SECONDS = 10.0


class WebSocketTransport(Protocol):
    """A connection that has been accepted."""

    @property
    def writable(self) -> bool:
        """False while the peer has not read enough of what it was sent;

        `TransportHandler.drained` tells when it has.
        """

    def send(self, start: bytes, body: bytes = b"", end: bytes = b"") -> None:
        """Send one text, which comes in up to three parts. It is kept, however long, also where nothing is writable."""

    def close(self, code: int, reason: str, seconds: float = CLOSE_SECONDS) -> None:
        """Say goodbye, and end after so many seconds. Nothing may be sent afterwards."""

    def abort(self) -> None:
        """End it without a word: the peer does not read."""

    def hold(self) -> None:
        """Hand over no more messages, until `release`."""

    def release(self) -> None:
        """Go on with the messages."""


class TransportHandler(Protocol):
    """What is told of all that happens to a connection. Nothing here raises or waits."""

    def begin(self, carrier: WebSocketTransport) -> None:
        """It was accepted."""

    def received(self, text: str | None) -> None:
        """A message came; None for a binary one."""

    def filled(self) -> None:
        """It is not writable any more. Not every carrier tells: `writable` counts."""

    def drained(self) -> None:
        """It is writable again."""

    def gone(self) -> None:
        """It will be over without a word from here. Told any number of times, or not at all."""

    def lost(self) -> None:
        """It is no more: from now on it takes up nothing."""
