"""GraphQL over WebSocket: the protocol graphql-transport-ws, to the letter.

https://github.com/enisdenjo/graphql-ws/blob/master/PROTOCOL.md
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import orjson
import strawberry
from graphql import GraphQLError
from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send
from strawberry.types import ExecutionResult
from strawberry.types.graphql import OperationType
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from datastore.errors import BadUserInput, SlowSubscriber, Unauthenticated, Unavailable
from edge.execution import (
    Identify,
    OnResult,
    OpenContext,
    Operation,
    OperationNotAllowed,
    Runner,
    answer,
    belongs_to_no_field,
    described,
    described_failure,
    domain_error,
    encode,
    read_operation,
    told_error,
)
from edge.identity import bearer
from resolvers.access import Identity

SUBPROTOCOL = "graphql-transport-ws"
# RFC 6455, 5.5: a close frame holds 125 bytes, two of them the code.
MAX_REASON_BYTES = 123
SHUTDOWN_SECONDS = 2.0
EVENTS_PER_TURN = 16

_SINGLE_RESULT = frozenset({OperationType.QUERY, OperationType.MUTATION})
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SocketLimits:
    """Seconds, and counts."""

    init_timeout: float = 5.0
    ping_every: float = 12.0
    unanswered_pings: int = 2
    send_timeout: float = 10.0
    deadline: float = 30.0
    max_operations: int = 100


class Farewell(NamedTuple):
    """How a socket ends, as a close frame says it."""

    code: int
    reason: str = ""


# Nothing is said: the peer has gone, or does not read. The protocol reserves 1006 for that.
_GONE = Farewell(1006)
_GOING_AWAY = Farewell(1001, "The server is shutting down")


class Broken(Exception):
    """The peer broke the protocol, or may not be here: the socket ends."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.farewell = Farewell(code, reason)


class Message(NamedTuple):
    """A message of a client, its form checked."""

    type: str
    id: str = ""
    payload: dict[str, Any] | None = None


_WITHOUT_ID = frozenset({"connection_init", "ping", "pong"})
_WITH_ID = frozenset({"subscribe", "complete"})


def read_message(text: str | None) -> Message:
    """Any deviation from the protocol is answered with the code 4400."""
    if text is None:
        raise Broken(4400, "Invalid message: binary, and not text")
    try:
        message = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Broken(4400, f"Invalid message: not JSON: {error}") from None
    if not isinstance(message, dict):
        raise Broken(4400, "Invalid message: not an object")
    kind, id, payload = message.get("type"), message.get("id"), message.get("payload")
    if not isinstance(kind, str) or kind not in _WITHOUT_ID | _WITH_ID:
        raise Broken(4400, "Invalid message: unknown type")
    if kind in _WITHOUT_ID:
        return Message(kind, "", _payload(payload))
    if not isinstance(id, str) or not id:
        raise Broken(4400, "Invalid message: id must be a non-empty string")
    return Message(kind, id, _payload(payload) if kind == "subscribe" else None)


def _payload(payload: object) -> dict[str, Any] | None:
    if payload is not None and not isinstance(payload, dict):
        raise Broken(4400, "Invalid message: payload must be an object")
    return payload


def _requested(message: Message) -> Operation:
    try:
        return read_operation(message.payload)
    except BadUserInput as error:
        raise Broken(4400, f"Invalid message: {error}") from None


class GraphQLWebSocket:
    """The ASGI application behind the GraphQL URL for WebSocket connections.

    `allowed_origins` are the pages on other hosts that may connect, as `https://host[:port]`.
    """

    def __init__(
        self,
        schema: strawberry.Schema,
        open_context: OpenContext,
        identify: Identify,
        *,
        allowed_origins: Collection[str] = (),
        limits: SocketLimits = SocketLimits(),
        clock: Callable[[], float] = time.time,
        on_result: OnResult | None = None,
    ) -> None:
        self.runner = Runner(schema, limits.deadline, on_result)
        self.open_context = open_context
        self.identify = identify
        self.limits = limits
        self.clock = clock
        self._allowed_origins = frozenset(origin.rstrip("/").lower() for origin in allowed_origins)
        self._sockets: dict[_Socket, asyncio.Task[Any] | None] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        headers = Headers(scope=scope)
        if not self._may_connect(headers):
            await send({"type": "websocket.close", "code": 4403, "reason": "Origin not allowed"})
            return
        known = SUBPROTOCOL in scope["subprotocols"]
        await send({"type": "websocket.accept", "subprotocol": SUBPROTOCOL if known else None})
        socket = _Socket(self, headers, receive, send)
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
            socket.end(_GOING_AWAY)
        served = [task for task in self._sockets.values() if task is not None]
        if served:
            await asyncio.wait(served)

    def _may_connect(self, headers: Headers) -> bool:
        """A browser connects on behalf of any page, so the page has to be ours; other clients send no Origin."""
        origin = headers.get("origin")
        if origin is None:
            return True
        return origin.lower() in self._allowed_origins or _same_host(origin, headers.get("host", ""))


class _Socket:
    """One connection: a reader, a keeper of time, and a task for each operation.

    Whoever finds that it is over calls `end`; `run` then stops everything and says goodbye.
    """

    def __init__(self, edge: GraphQLWebSocket, headers: Headers, receive: Receive, send: Send) -> None:
        self._edge = edge
        self._limits = edge.limits
        self._headers = headers
        self._receive = receive
        self._send = send
        self._writing = asyncio.Lock()
        self._over: asyncio.Future[Farewell] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[None]] = set()
        self._operations: dict[str, asyncio.Task[None]] = {}
        self._initialised = False
        self._acknowledged = False
        self._identity: Identity | None = None
        self._unanswered = 0

    def end(self, farewell: Farewell) -> None:
        """Let the socket end. The first reason given counts."""
        if not self._over.done():
            self._over.set_result(farewell)

    async def run(self) -> None:
        if not self._over.done():
            self._spawn(self._read())
            self._spawn(self._keep_time())
        farewell = _GOING_AWAY
        try:
            farewell = await self._over
        finally:
            self.end(farewell)
            await self._stop()
            await self._say(farewell)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Broken):
            self.end(error.farewell)
        elif error is not None:
            _log.error("A socket's task failed", exc_info=error)
            self.end(Farewell(4500, "Internal server error"))

    async def _stop(self) -> None:
        self._operations.clear()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        _, stuck = await asyncio.wait(tasks, timeout=self._limits.send_timeout) if tasks else ((), ())
        if stuck:
            _log.error("%d tasks of a socket do not end: %s", len(stuck), stuck)

    async def _say(self, farewell: Farewell) -> None:
        if farewell is _GONE:
            return
        reason = farewell.reason.encode()[:MAX_REASON_BYTES].decode(errors="ignore")
        await self._deliver({"type": "websocket.close", "code": farewell.code, "reason": reason})

    async def _deliver(self, message: dict[str, Any]) -> None:
        """Hand a message to the server. It blocks while the peer does not read; then the peer is dropped."""
        try:
            async with asyncio.timeout(self._limits.send_timeout):
                await self._send(message)
        except (TimeoutError, OSError, RuntimeError):
            self.end(_GONE)

    async def _write(self, message: dict[str, Any]) -> None:
        text = encode(message).decode()
        async with self._writing:
            if not self._over.done():
                await self._deliver({"type": "websocket.send", "text": text})

    async def _keep_time(self) -> None:
        """The peer has to introduce itself in time, to answer pings, and to hold a token that is still valid."""
        await asyncio.sleep(self._limits.init_timeout)
        if not self._initialised:
            raise Broken(4408, "Connection initialisation timeout")
        while True:
            await asyncio.sleep(self._limits.ping_every)
            self._check_token()
            if self._unanswered >= self._limits.unanswered_pings:
                raise Broken(4411, f"{self._unanswered} pings went unanswered")
            self._unanswered += 1
            await self._write({"type": "ping"})

    def _check_token(self) -> None:
        expires_at = self._identity.expires_at if self._identity else None
        if expires_at is not None and self._edge.clock() >= expires_at:
            raise Broken(4403, "Token expired")

    async def _read(self) -> None:
        while True:
            event = await self._receive()
            if event["type"] == "websocket.disconnect":
                self.end(_GONE)
                return
            await self._handle(read_message(event.get("text")))

    async def _handle(self, message: Message) -> None:
        match message.type:
            case "connection_init":
                await self._initialise(message.payload or {})
            case "ping":
                echoed = {} if message.payload is None else {"payload": message.payload}
                await self._write({"type": "pong", **echoed})
            case "pong":
                self._unanswered = 0
            case "subscribe":
                await self._subscribe(message.id, _requested(message))
            case "complete":
                self._cancel(message.id)

    async def _initialise(self, payload: Mapping[str, Any]) -> None:
        if self._initialised:
            raise Broken(4429, "Too many initialisation requests")
        self._initialised = True
        try:
            self._identity = await self._edge.identify(bearer(_authorization(payload, self._headers)))
        except Unauthenticated as error:
            raise Broken(4403, f"Forbidden: {error}") from None
        except Unavailable as error:
            raise Broken(1013, str(error)) from None
        self._acknowledged = True
        await self._write({"type": "connection_ack"})

    async def _subscribe(self, id: str, operation: Operation) -> None:
        if not self._acknowledged:
            raise Broken(4401, "Unauthorized")
        if id in self._operations:
            raise Broken(4409, f"Subscriber for {id} already exists")
        if len(self._operations) >= self._limits.max_operations:
            refusal = BadUserInput(f"At most {self._limits.max_operations} operations may be open on a socket.")
            await self._write({"id": id, "type": "error", "payload": [told_error(refusal)]})
            return
        self._operations[id] = self._spawn(self._operate(id, operation))

    def _cancel(self, id: str) -> None:
        task = self._operations.pop(id, None)
        if task is not None:
            task.cancel()

    async def _operate(self, id: str, operation: Operation) -> None:
        try:
            last = await self._run(id, operation)
        except Broken:
            raise
        except Exception as error:
            last = {"type": "error", "payload": described_failure(error)}
        if self._is_wanted(id):
            # The id is free again before the peer can know that the operation is over.
            del self._operations[id]
            await self._write({"id": id, **last})

    def _is_wanted(self, id: str) -> bool:
        """False when nobody listens any more, and the event source has not let itself be cancelled (yet)."""
        return not self._over.done() and self._operations.get(id) is asyncio.current_task()

    async def _run(self, id: str, operation: Operation) -> dict[str, Any]:
        """Send the results, and return the message that ends the operation."""
        self._check_token()
        context = self._edge.open_context(self._identity)
        try:
            result = await self._edge.runner.run(operation, context, _SINGLE_RESULT)
        except OperationNotAllowed:
            return await self._stream(id, await self._edge.runner.subscribe(operation, context))
        return await self._next(id, result) or {"type": "complete"}

    async def _stream(self, id: str, results: AsyncGenerator[ExecutionResult, None]) -> dict[str, Any]:
        sent = 0
        async with aclosing(results):
            async for result in results:
                # A source that always has an event ready, and a peer that takes it, would leave nobody else a turn.
                sent += 1
                if sent % EVENTS_PER_TURN == 0:
                    await asyncio.sleep(0)
                if not self._is_wanted(id):
                    break
                self._check_token()
                last = await self._next(id, result)
                if last is not None:
                    return last
        return {"type": "complete"}

    async def _next(self, id: str, result: ExecutionResult) -> dict[str, Any] | None:
        """Send a result. Errors about the operation as a whole are returned instead, as the message that ends it."""
        errors = result.errors or ()
        _check_pace(errors)
        if belongs_to_no_field(result):
            return {"type": "error", "payload": described(errors)}
        await self._write({"id": id, "type": "next", "payload": orjson.Fragment(encode(answer(result)))})
        return None


def _authorization(payload: Mapping[str, Any], headers: Headers) -> str | None:
    """The one in connection_init; browsers cannot send the header of the upgrade, which others may use instead."""
    given = next((value for key, value in payload.items() if key.lower() == "authorization"), None)
    if given is not None and not isinstance(given, str):
        raise Unauthenticated("Authorization must be a string.")
    return given or headers.get("authorization")


def _same_host(origin: str, host: str) -> bool:
    try:
        page = urlsplit(origin)
        standard = {"http": 80, "https": 443}.get(page.scheme)
        here = urlsplit(f"//{host}")
        return bool(page.hostname) and (page.hostname, page.port or standard) == (here.hostname, here.port or standard)
    except ValueError:
        return False


def _check_pace(errors: Sequence[GraphQLError]) -> None:
    for error in errors:
        slow = domain_error(error)
        if isinstance(slow, SlowSubscriber):
            raise Broken(4410, f"Too slow: {slow}")


class SocketProtocol(WebSocketsSansIOProtocol):
    """uvicorn's WebSocket protocol, which by itself keeps the connection of a peer that does not read for ever.

    It closes a transport only after the write buffer has been flushed, so such a connection outlives its task, holds
    its buffer, and holds up the shutdown. It also logs a traceback for each text that is not UTF-8.
    """

    _reaper: asyncio.TimerHandle | None = None

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        super().on_task_complete(task)
        if not self.disconnected:
            # A socket that ends with its buffer full was given up on: nobody will read the rest.
            patience = self.close_timeout + 1.0 if self.writable.is_set() else 0.0
            self._reaper = self.loop.call_later(patience, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._reaper is not None:
            self._reaper.cancel()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Close with 1001 and wait a moment for the peer's reply; uvicorn's own cuts the connection at once."""
        if not self.handshake_complete or self.close_sent or self.transport.is_closing():
            super().shutdown()
            return
        self.queue.put_nowait({"type": "websocket.disconnect", "code": _GOING_AWAY.code, "reason": _GOING_AWAY.reason})
        self.conn.send_close(_GOING_AWAY.code, _GOING_AWAY.reason)
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.close_sent = True
        self.close_timer = self.loop.call_later(SHUTDOWN_SECONDS, self.transport.abort)

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text" and not _is_utf8(b"".join(self.frames)):
            self.conn.send_close(1007, "Invalid message: not UTF-8")
            self.handle_parser_exception()
            return
        super().send_receive_event_to_app()


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


# How uvicorn is to serve the sockets: without compression (twice the memory for each idle one, and little gained on
# small messages), without its own pings (ours also tell a peer whose application hangs), and with small messages.
UVICORN_WS_OPTIONS: Final[Mapping[str, Any]] = {
    "ws": SocketProtocol,
    "ws_max_size": 65_536,
    "ws_per_message_deflate": False,
    "ws_ping_interval": None,
    "ws_ping_timeout": None,
}
