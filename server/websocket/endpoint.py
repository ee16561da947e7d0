"""GraphQL over WebSocket, by the protocol graphql-transport-ws.

https://github.com/enisdenjo/graphql-ws/blob/master/PROTOCOL.md
"""

import asyncio
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from operator import methodcaller

from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from datastore.errors import DomainError, Throttled, Unavailable
from datastore.primitives.timer_queue import TimerQueue
from server.admission.callers import Caller, payer
from server.admission.client_address import address_in
from server.admission.quotas import KeyedQuota
from server.http.headers import JSON
from server.operations.outcome import encode, format_error
from server.operations.runner import Runner
from server.request_identity import CURRENT, RequestIdentity, identity_in
from server.security.jwt import Identify
from server.security.origins import Origins
from server.shutdown import STEP_SECONDS, Delays, end_gradually
from server.subscriptions.manager import SubscriptionManager
from server.websocket.authentication import AUTHORIZATION
from server.websocket.messages import GOING_AWAY, CloseCode
from server.websocket.socket import Socket
from server.websocket.transport import LIMITS, TAKE_OVER, SocketLimits

SUBPROTOCOL = "graphql-transport-ws"


class GraphQLWebSocket:
    """The ASGI application at the GraphQL URL for WebSocket connections.

    Pages on `allowed_origins`, as `https://host[:port]`, may connect besides those of this host. `quota` limits the
    connections; `on_refusal` is called with the status and the error code of each refusal.
    """

    def __init__(
        self,
        runner: Runner,
        identify: Identify,
        *,
        subscriptions: SubscriptionManager | None = None,
        allowed_origins: Collection[str] = (),
        limits: SocketLimits = LIMITS,
        clock: Callable[[], float] = time.time,
        quota: KeyedQuota | None = None,
        on_refusal: Callable[[int, str], None] = lambda _status, _code: None,
    ) -> None:
        self.runner = runner
        self.subscriptions = subscriptions or SubscriptionManager(runner)
        self.identify = identify
        self.limits = limits
        self.clock = clock
        #: The limit of sockets per caller and in all.
        self.quota = quota or KeyedQuota("WebSockets", 0, 0)
        self.sockets: set[Socket] = set()
        self.init_timeouts = TimerQueue[Socket](limits.init_timeout, methodcaller("check_initialised"))
        self.pings = TimerQueue[Socket](limits.ping_every, methodcaller("ping"))
        self._on_refusal = on_refusal
        self._origins = Origins(allowed_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        headers = Headers(scope=scope)
        identity = identity_in(scope["headers"])
        CURRENT.set(identity)
        if not self._origins.may_connect(headers.get("origin"), headers.get("host", "")):
            await send({"type": "websocket.close", "code": 4403, "reason": "Origin not allowed"})
            return
        address = address_in(scope)
        try:
            self.quota.acquire(payer(Caller(None, address)))
        except (Throttled, Unavailable) as full:
            status = 429 if isinstance(full, Throttled) else 503
            self._on_refusal(status, full.code)
            await _refuse(send, status, full, identity)
            return
        socket = Socket(self, address, ", ".join(headers.getlist(AUTHORIZATION)) or None, identity)
        try:
            await self._accept(socket, scope, send)
        except BaseException:
            socket.lost()
            raise

    async def _accept(self, socket: Socket, scope: Scope, send: Send) -> None:
        """Accept the handshake, and attach the socket to its connection."""
        is_supported = SUBPROTOCOL in scope["subprotocols"]
        subprotocol = SUBPROTOCOL if is_supported else None
        await send(
            {"type": "websocket.accept", "subprotocol": subprotocol, "headers": socket.identity.identity_headers}
        )
        if not is_supported:
            asyncio.get_running_loop().call_soon(socket.end, CloseCode(4406, "Subprotocol not acceptable"))
        scope["extensions"][TAKE_OVER]["attach"](socket)

    def __len__(self) -> int:
        return len(self.sockets)

    async def drain(self, delays: Delays, seconds: float) -> None:
        """Close all sockets so that their clients reconnect elsewhere.

        Each closes once its requests are answered, and after `seconds` at the latest.
        """
        deadline = asyncio.get_running_loop().time() + seconds

        def close_when_answered(socket: Socket) -> None:
            socket.close_when_answered(delays.next_ms())

        await end_gradually(self.sockets, close_when_answered)
        with suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                while self._open:  # noqa: ASYNC110 - sockets report no end, and this is rare
                    await asyncio.sleep(STEP_SECONDS)
        for socket in self._open:
            socket.close_now(delays.next_ms())

    @property
    def _open(self) -> list[Socket]:
        """The sockets that have not begun to close."""
        return [socket for socket in self.sockets if not socket.is_over]

    async def close(self) -> None:
        """Close all sockets, and wait until they have ended."""
        for socket in tuple(self.sockets):
            socket.end(GOING_AWAY)
        ending = {task for socket in self.sockets for task in (socket.carrier, *socket.tasks) if task is not None}
        if ending:
            await asyncio.wait(ending, timeout=self.limits.send_timeout)


async def _refuse(send: Send, status: int, error: DomainError, identity: RequestIdentity) -> None:
    """Answer the upgrade with an error, by the ASGI extension websocket.http.response."""
    body = encode({"errors": [format_error(error)]})
    headers = [
        (b"content-type", f"{JSON}; charset=utf-8".encode()),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        *identity.identity_headers,
        (b"retry-after", str(error.extensions["retryAfter"]).encode()),
    ]
    await send({"type": "websocket.http.response.start", "status": status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": body})
