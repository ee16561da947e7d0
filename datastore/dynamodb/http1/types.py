"""The response of a request, the limits of the HTTP client, and its errors."""

from dataclasses import dataclass

from msgspec import Struct


# Without gc: a response refers to no container, so that it cannot be part of a reference cycle.
class HttpResponse(Struct, gc=False):
    """A response of DynamoDB, with the headers that the client uses."""

    status: int
    #: The `x-amz-crc32` header, None if it is missing.
    checksum: bytes | None
    content: bytes
    #: The `date` header, None if it is missing.
    date: bytes | None = None


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """The limits of a pool's connections, and of each response in time and bytes."""

    connections: int = 128
    connect_seconds: float = 1.0
    #: The time that a server may neither read nor send a byte while a request is in flight.
    silence_seconds: float = 5.0
    #: The time that an idle connection is kept.
    idle_seconds: float = 60.0
    head_bytes: int = 2**16
    #: 128 MB, because DynamoDB returns up to 16 MB of items by their stored size, and small values take several times
    #: as much in JSON.
    response_bytes: int = 2**27


class NotConnected(Exception):
    """No connection was opened, so nothing was sent. With `timed_out` the attempt took too long."""

    def __init__(self, *, timed_out: bool = False) -> None:
        super().__init__("no connection")
        self.timed_out = timed_out


class ResponseLost(Exception):
    """No usable response arrived: the connection was lost, or the response is malformed or too large.

    The server may have processed the request.

    `stale` means that the connection had been used before, and that no byte of the response arrived: most likely the
    server had just closed the idle connection.
    """

    def __init__(self, why: str, *, stale: bool = False) -> None:
        super().__init__(why)
        self.stale = stale


class ResponseTimeout(Exception):
    """The server was silent for too long. It may have processed the request."""


class DeadlineExceeded(Exception):
    """The caller's deadline has passed. If the request was `sent`, the server may have processed it."""

    def __init__(self, *, sent: bool = True) -> None:
        super().__init__("the deadline has passed")
        self.sent = sent
