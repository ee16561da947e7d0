"""GraphQL over WebSocket: the protocol graphql-transport-ws, to the letter.

https://github.com/enisdenjo/graphql-ws/blob/master/PROTOCOL.md
"""

import asyncio
import time
from collections.abc import Callable, Collection
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from edge.execution import Identify, Runner
from edge.messages import GOING_AWAY, Farewell
from edge.origins import Origins
from edge.socket import LIMITS, Service, Socket, SocketLimits

SUBPROTOCOL = "graphql-transport-ws"


class GraphQLWebSocket:
    """The ASGI application behind the GraphQL URL for WebSocket connections.

    `allowed_origins` are the pages on other hosts that may connect, as `https://host[:port]`.
    """

    def __init__(
        self,
        runner: Runner,
        identify: Identify,
        *,
        allowed_origins: Collection[str] = (),
        limits: SocketLimits = LIMITS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._service = Service(runner, identify, limits, clock)
        self._origins = Origins(allowed_origins)
        self._sockets: dict[Socket, asyncio.Task[Any] | None] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        headers = Headers(scope=scope)
        if not self._origins.may_connect(headers.get("origin"), headers.get("host", "")):
            await send({"type": "websocket.close", "code": 4403, "reason": "Origin not allowed"})
            return
        known = SUBPROTOCOL in scope["subprotocols"]
        await send({"type": "websocket.accept", "subprotocol": SUBPROTOCOL if known else None})
        socket = Socket(self._service, headers, scope["client"][0] if scope.get("client") else "", receive, send)
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
