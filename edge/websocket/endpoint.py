"""GraphQL over WebSocket: the protocol graphql-transport-ws, to the letter.

https://github.com/enisdenjo/graphql-ws/blob/master/PROTOCOL.md
"""

import asyncio
import time
from collections.abc import Callable, Collection
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from datastore.errors import DomainError, Throttled, Unavailable
from edge.answers import encode, told_error
from edge.capacity.addresses import address_in, payer
from edge.capacity.places import Places
from edge.execution import Runner
from edge.http.media_types import JSON
from edge.operations import Caller
from edge.origins import Origins
from edge.requests import Identify
from edge.websocket.messages import GOING_AWAY, Farewell
from edge.websocket.socket import LIMITS, Service, Socket, SocketLimits

SUBPROTOCOL = "graphql-transport-ws"


class GraphQLWebSocket:
    """The ASGI application behind the GraphQL URL for WebSocket connections.

    `allowed_origins` are the pages on other hosts that may connect, as `https://host[:port]`. `places` are how many
    connections there may be, and `on_refusal` is told the status and the code of those that are one too many.
    """

    def __init__(
        self,
        runner: Runner,
        identify: Identify,
        *,
        allowed_origins: Collection[str] = (),
        limits: SocketLimits = LIMITS,
        clock: Callable[[], float] = time.time,
        places: Places | None = None,
        on_refusal: Callable[[int, str], None] = lambda _status, _code: None,
    ) -> None:
        self._on_refusal = on_refusal
        self._places = places or Places("WebSockets", 0, 0)
        self._service = Service(runner, identify, limits, clock, self._places)
        self._origins = Origins(allowed_origins)
        self._sockets: dict[Socket, asyncio.Task[Any] | None] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        headers = Headers(scope=scope)
        if not self._origins.may_connect(headers.get("origin"), headers.get("host", "")):
            await send({"type": "websocket.close", "code": 4403, "reason": "Origin not allowed"})
            return
        address = address_in(scope)
        try:
            self._places.take(payer(Caller(None, address)))
        except (Throttled, Unavailable) as full:
            status = 429 if isinstance(full, Throttled) else 503
            self._on_refusal(status, full.code)
            await _refuse(send, status, full)
            return
        socket = Socket(self._service, headers, address, receive, send)
        try:
            await self._serve(socket, scope, send)
        finally:
            self._places.leave(socket.counted_for)

    async def _serve(self, socket: Socket, scope: Scope, send: Send) -> None:
        known = SUBPROTOCOL in scope["subprotocols"]
        await send({"type": "websocket.accept", "subprotocol": SUBPROTOCOL if known else None})
        if not known:
            socket.end(Farewell(4406, "Subprotocol not acceptable"))
        self._sockets[socket] = asyncio.current_task()
        try:
            await socket.run()
        finally:
            del self._sockets[socket]

    async def close(self) -> None:
        """Say goodbye to everybody, and wait until they have gone."""
        for socket in self._sockets:
            socket.end(GOING_AWAY)
        served = [task for task in self._sockets.values() if task is not None]
        if served:
            await asyncio.wait(served)


async def _refuse(send: Send, status: int, error: DomainError) -> None:
    """Answer the upgrade with an error, as ASGI's extension websocket.http.response lets one."""
    body = encode({"errors": [told_error(error)]})
    headers = [
        (b"content-type", f"{JSON}; charset=utf-8".encode()),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"retry-after", str(error.extensions["retryAfter"]).encode()),
    ]
    await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})
