"""HTTP/1.1 connections of the server: one state machine on httptools, which uvicorn runs by its option `http=`.

`connection` reads requests and orders responses on a `timed_transport`, which enforces deadlines and flow control.
`request_head` validates the head of a request; `rejections` has the errors of requests that reach no application. A
`server.http.cycle.RequestCycle` is one request with its response, as an ASGI application sees them.

Unlike uvicorn's protocol, it limits the input and the unread output of a client, in bytes, lines and seconds.
"""

from collections.abc import Mapping
from typing import Any, Final

from server.http.protocol.connection import HttpProtocol
from server.websocket.protocol import UVICORN_WS_OPTIONS

# Longer than the 60 s for which a load balancer keeps idle connections: the load balancer must close them first.
KEEP_ALIVE_SECONDS = 65
UVICORN_OPTIONS: Final[Mapping[str, Any]] = {
    "http": HttpProtocol,
    "timeout_keep_alive": KEEP_ALIVE_SECONDS,
    "proxy_headers": False,  # a middleware of the application evaluates them
    "server_header": False,
    **UVICORN_WS_OPTIONS,
}

__all__ = ["UVICORN_OPTIONS", "HttpProtocol"]
