"""GraphQL over WebSocket: the protocol graphql-transport-ws, to the letter.

https://github.com/enisdenjo/graphql-ws/blob/master/PROTOCOL.md
"""

import asyncio
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Any

from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from datastore.errors import DomainError, Throttled, Unavailable
from server.admission.callers import Caller, payer
from server.admission.client_address import address_in
from server.admission.quotas import KeyedQuota
from server.http.media_types import JSON
from server.operations.outcome import encode, format_error
from server.operations.runner import Runner
from server.security.jwt import Identify
from server.security.origins import Origins
from server.shutdown import STEP_SECONDS, Delays, one_after_another
from server.websocket.asgi import Messages
from server.websocket.authentication import AUTHORIZATION
from server.websocket.messages import GOING_AWAY, CloseCode
from server.websocket.socket import Service, Socket
from server.websocket.transport import LIMITS, TAKE_OVER, SocketLimits

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
        places: KeyedQuota | None = None,
        on_refusal: Callable[[int, str], None] = lambda _status, _code: None,
    ) -> None:
        self._on_refusal = on_refusal
        self._places = places or KeyedQuota("WebSockets", 0, 0)
        self._service = Service(runner, identify, limits, clock, self._places)
        self._sockets = self._service.sockets
        self._origins = Origins(allowed_origins)
        self._carrying: set[asyncio.Task[Any]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        headers = Headers(scope=scope)
        if not self._origins.may_connect(headers.get("origin"), headers.get("host", "")):
            await send({"type": "websocket.close", "code": 4403, "reason": "Origin not allowed"})
            return
        address = address_in(scope)
        try:
            self._places.acquire(payer(Caller(None, address)))
        except (Throttled, Unavailable) as full:
            status = 429 if isinstance(full, Throttled) else 503
            self._on_refusal(status, full.code)
            await _refuse(send, status, full)
            return
        socket = Socket(self._service, address, ", ".join(headers.getlist(AUTHORIZATION)) or None)
        try:
            await self._accept(socket, scope, receive, send)
        except BaseException:
            socket.lost()
            raise

    async def _accept(self, socket: Socket, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the socket be carried by the server's connection itself, where it is our server's."""
        known = SUBPROTOCOL in scope["subprotocols"]
        await send({"type": "websocket.accept", "subprotocol": SUBPROTOCOL if known else None})
        if not known:
            asyncio.get_running_loop().call_soon(socket.end, CloseCode(4406, "Subprotocol not acceptable"))
        offered = scope.get("extensions", {}).get(TAKE_OVER)
        if offered is not None:
            offered["attach"](socket)
            return
        task = asyncio.current_task()
        assert task is not None
        self._carrying.add(task)
        try:
            await Messages(receive, send).carry(socket)
        finally:
            self._carrying.discard(task)

    def __len__(self) -> int:
        return len(self._sockets)

    async def drain(self, delays: Delays, seconds: float) -> None:
        """Have everybody come again after a while, once they have what they asked for; in so many seconds."""
        deadline = asyncio.get_running_loop().time() + seconds

        def take_leave(socket: Socket) -> None:
            socket.take_leave(delays.next_ms())

        await one_after_another(self._sockets, take_leave)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                while self._open:  # noqa: ASYNC110 - each ends in its own way, seldom here
                    await asyncio.sleep(STEP_SECONDS)
        for socket in self._open:
            socket.leave_now(delays.next_ms())

    @property
    def _open(self) -> list[Socket]:
        """Those that have not said goodbye."""
        return [socket for socket in self._sockets if not socket.is_over]

    async def close(self) -> None:
        """Say goodbye to everybody, and wait until they have gone."""
        for socket in tuple(self._sockets):
            socket.end(GOING_AWAY)
        ending = self._carrying.union(*(socket.tasks for socket in self._sockets))
        if ending:
            await asyncio.wait(ending, timeout=self._service.limits.send_timeout)


async def _refuse(send: Send, status: int, error: DomainError) -> None:
    """Answer the upgrade with an error, as ASGI's extension websocket.http.response lets one."""
    body = encode({"errors": [format_error(error)]})
    headers = [
        (b"content-type", f"{JSON}; charset=utf-8".encode()),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"retry-after", str(error.extensions["retryAfter"]).encode()),
    ]
    await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})
