"""What a request is answered, what it may take, and how it fails."""

from dataclasses import dataclass

from msgspec import Struct


class HttpResponse(Struct, gc=False):
    """`checksum` is the `x-amz-crc32` header as it was sent, and `date` the `date` header; None without one."""

    status: int
    checksum: bytes | None
    content: bytes
    date: bytes | None = None


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Times in seconds. `silence` is for how long a server may neither take nor send a byte while it is to answer.

    An answer has at most 16 MB of items, as they are stored; small values take several times that as JSON.
    """

    connections: int = 128
    connect_seconds: float = 1.0
    silence_seconds: float = 5.0
    idle_seconds: float = 60.0
    head_bytes: int = 2**16
    response_bytes: int = 2**27


class NotConnected(Exception):
    """No connection came about, so nothing was sent. `late` tells that it was given up."""

    def __init__(self, *, timed_out: bool = False) -> None:
        super().__init__("no connection")
        self.timed_out = timed_out


class ConnectionLost(Exception):
    """The connection was lost, or what came over it is no answer. The request may have been served.

    `stale` tells that it had been kept from an earlier answer, and that not a byte of this one came: most likely the
    server had just closed it.
    """

    def __init__(self, why: str, *, stale: bool = False) -> None:
        super().__init__(why)
        self.stale = stale


class ResponseTimeout(Exception):
    """Nothing was heard for too long. The request may have been served."""


class DeadlineExceeded(Exception):
    """The caller's deadline has passed. The request may have been served, unless it was never `sent`."""

    def __init__(self, *, sent: bool = True) -> None:
        super().__init__("too late")
        self.sent = sent
