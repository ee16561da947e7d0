"""The identity of a request: the id that its client, its response and the log share, and its place in a trace.

A request keeps the id of its header `X-Request-Id` if that is valid. Otherwise it gets a new one.
https://www.w3.org/TR/trace-context/
"""

import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

REQUEST_ID, TRACEPARENT = b"x-request-id", b"traceparent"
MAX_REQUEST_ID_BYTES = 128
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,%d}" % MAX_REQUEST_ID_BYTES)
# Version 00. Neither the trace nor its span may be all zeros.
_TRACEPARENT = re.compile(rb"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


class RequestIdentity:
    """The identity of a request, or of a WebSocket for its operations. The header values are validated."""

    __slots__ = ("id", "is_over", "traceparent")

    def __init__(self, id: bytes, traceparent: bytes | None = None) -> None:
        self.id = id
        self.traceparent = traceparent
        #: Whether the request has ended. Tasks that it has started keep its context, but their lines are not its lines.
        self.is_over = False

    @property
    def trace_id(self) -> str | None:
        """The id of the trace in the traceparent."""
        return None if self.traceparent is None else self.traceparent[3:35].decode()

    @property
    def identity_headers(self) -> list[tuple[bytes, bytes]]:
        """The headers that return the identity to the client."""
        own = [(REQUEST_ID, self.id)]
        return own if self.traceparent is None else [*own, (TRACEPARENT, self.traceparent)]


#: The identity of the request for which the current task works.
CURRENT: ContextVar[RequestIdentity | None] = ContextVar("request_identity", default=None)


def new_id() -> bytes:
    """Return a random id, which may be the beginning of several ids."""
    return secrets.token_hex(8).encode()


def valid_request_id(value: bytes | None) -> bytes | None:
    """Return a value of X-Request-Id; None if it is invalid: too long, or with other than harmless characters."""
    return value if value is not None and _REQUEST_ID.fullmatch(value) else None


def valid_traceparent(value: bytes | None) -> bytes | None:
    """Return a value of traceparent; None if it is invalid."""
    return value if value is not None and _TRACEPARENT.fullmatch(value) else None


def identity_in(headers: Iterable[tuple[bytes, bytes]]) -> RequestIdentity:
    """Return the identity in the headers of a request, with a new id if they have none."""
    by_name = dict(headers)
    given = valid_request_id(by_name.get(REQUEST_ID))
    return RequestIdentity(given or new_id(), valid_traceparent(by_name.get(TRACEPARENT)))


@contextmanager
def identified(identity: RequestIdentity) -> Iterator[None]:
    """Work for a request during the context."""
    token = CURRENT.set(identity)
    try:
        yield
    finally:
        CURRENT.reset(token)


def running_identity() -> RequestIdentity | None:
    """Return the identity of the request for which the current task works, unless the request has ended."""
    identity = CURRENT.get()
    return None if identity is None or identity.is_over else identity
