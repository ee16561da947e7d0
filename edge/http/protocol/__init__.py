"""HTTP/1.1 connections of the server: one state machine on httptools, which uvicorn runs by its option `http=`.

`connection` reads requests, orders responses and enforces deadlines; `request_head` validates the head of a request.
One request and its response, as an ASGI application sees them, are a `edge.http.cycle.RequestCycle`.

uvicorn's own protocol sets no limit to the size of a head and its duration, to trailers, to pipelined requests and to
clients that do not read. This one bounds each of them in bytes, in lines and in seconds, in every state.
"""

from collections.abc import Mapping
from typing import Any, Final

from edge.http.protocol.connection import HttpProtocol
from edge.websocket.protocol import UVICORN_WS_OPTIONS

# A load balancer keeps its connections for 60 s: it must be the first to close them.
KEEP_ALIVE_SECONDS = 65
# Options for uvicorn. The application itself evaluates the headers of proxies.
UVICORN_OPTIONS: Final[Mapping[str, Any]] = {
    "http": HttpProtocol,
    "timeout_keep_alive": KEEP_ALIVE_SECONDS,
    "proxy_headers": False,
    "server_header": False,
    **UVICORN_WS_OPTIONS,
}

__all__ = ["UVICORN_OPTIONS", "HttpProtocol"]
