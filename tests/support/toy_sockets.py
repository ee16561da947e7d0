"""A small schema behind a real server, and peers that speak graphql-transport-ws to it."""

import asyncio
import base64
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import strawberry
import uvicorn
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from datastore.change_streams.subscriptions.event_source import EventSource, source_of
from datastore.errors import BadUserInput, NotFound, SlowSubscriber, Unauthenticated, Unavailable
from datastore.model.identity import Identity, Role
from datastore.model.ids import IdSource
from datastore.queues import OverflowPolicy, QueueLimits
from datastore.session.metering import Meter
from datastore.session.request_reads import ReadFreshness
from server.admission.connection_limits import Connections
from server.documents.document_cache import Documents
from server.documents.persisted.registry import DocumentRegistry
from server.http.protocol import UVICORN_OPTIONS
from server.operations.runner import Runner
from server.websocket.endpoint import SUBPROTOCOL, GraphQLWebSocket
from server.websocket.transport import SocketLimits
from tests.support.http_server import on_any_server
from tests.support.until import until

NOW = 1_800_000_000.0
# Limits that well-behaved clients keep although the machine stalls for some seconds.
QUICK = SocketLimits(init_timeout=40, ping_every=0.1, unanswered_pings=1000, send_timeout=40, max_operations=3)
# Limits that a client that does not read exceeds.
IMPATIENT = replace(QUICK, send_timeout=0.3)
# Time enough for anything that must happen, however slow the machine is.
AT_LAST = 30.0


class ToyWorld:
    """The state of the resolvers for one server, which tests read and set."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.now = NOW
        self.opened = 0
        self.closed = 0
        self.contexts = 0
        self.go = asyncio.Event()
        self.numbers: asyncio.Queue[int] = asyncio.Queue()  # the values of `numbers`
        self.started = 0

    def clock(self) -> float:
        return self.now

    @property
    def held(self) -> int:
        return self.opened - self.closed


class SocketContext:
    """A context with a dataloader that remembers, as real ones do."""

    used_identity = True

    def __init__(self, identity: Identity | None, _freshness: ReadFreshness, _compiled: bool) -> None:
        world.contexts += 1
        self.identity = identity
        self.loaded: dict[str, float] = {}
        self.moment = world.now

    @property
    def meter(self) -> Meter:
        return Meter()

    def close(self) -> None:
        pass

    def use_id_source(self, source: IdSource) -> None:
        pass

    def advance_watermark(self) -> None:
        pass

    def load(self, key: str) -> float:
        return self.loaded.setdefault(key, world.now)


Info = strawberry.Info[SocketContext, None]
world = ToyWorld()


@strawberry.type
class Event:
    number: int

    @strawberry.field
    def loaded(self, info: Info) -> float:
        return info.context.load("x")

    @strawberry.field
    def moment(self, info: Info) -> float:
        return info.context.moment

    @strawberry.field
    def failing(self) -> int | None:
        raise NotFound("Not here.")


@strawberry.type(name="Query")
class SocketQuery:
    @strawberry.field
    def hello(self) -> str:
        return "world"

    @strawberry.field
    def me(self, info: Info) -> str | None:
        return info.context.identity.user_id if info.context.identity else None

    @strawberry.field
    async def slow(self) -> str:
        world.opened += 1
        try:
            await asyncio.sleep(20)
        finally:
            world.closed += 1
        return "slow"

    @strawberry.field
    async def patient(self) -> str:
        await world.go.wait()
        return "patient"

    @strawberry.field
    def twice(self, info: Info) -> float:
        world.now += 1
        return info.context.load("x")


@strawberry.type(name="Mutation")
class SocketMutation:
    @strawberry.mutation
    def change(self) -> str:
        return "changed"


async def numbers(when_slow: str, size: int, buffer: int = 100) -> EventSource[str]:
    """Yield texts of this size that begin with a number. A newer one replaces one that is equal modulo 3."""

    async def events() -> AsyncGenerator[str, None]:
        world.opened += 1
        try:
            while True:
                number = await world.numbers.get()
                yield f"{number} {'x' * size}"
                world.started += 1
        finally:
            world.closed += 1

    if when_slow not in list(OverflowPolicy):
        raise BadUserInput("`whenSlow` must be one of the policies.", field="whenSlow")
    return source_of(
        events(), QueueLimits.of(OverflowPolicy(when_slow), buffer), key=lambda text: int(text.split()[0]) % 3
    )


@strawberry.type(name="Subscription")
class SocketSubscription:
    @strawberry.subscription
    async def count(self, to: int = 3) -> AsyncIterator[int]:
        for number in range(to):
            yield number

    @strawberry.subscription
    async def events(self) -> AsyncIterator[Event]:
        for number in range(3):
            await world.go.wait()
            world.now += 1
            yield Event(number=number)

    @strawberry.subscription
    async def held(self) -> AsyncIterator[int]:
        world.opened += 1
        try:
            yield 0
            await asyncio.sleep(60)
        finally:
            world.closed += 1

    @strawberry.subscription
    async def stubborn(self) -> AsyncIterator[int]:
        yield 0
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            yield 1

    @strawberry.subscription
    async def failing(self, how: str) -> AsyncIterator[int]:
        yield 0
        if how == "slow":
            raise SlowSubscriber("the queue of 64 events is full, " + "é" * 100)
        if how == "domain":
            raise NotFound("It ended.")
        raise RuntimeError("the password is swordfish")

    @strawberry.subscription
    async def refused(self) -> AsyncIterator[int]:
        raise Unauthenticated("Sign in.")
        yield 0

    numbers: Any = strawberry.subscription(resolver=numbers, graphql_type=AsyncIterator[str])

    @strawberry.subscription
    async def flood(self, size: int = 200_000) -> AsyncIterator[str]:
        world.opened += 1
        try:
            while True:
                yield "x" * size
        finally:
            world.closed += 1


SCHEMA = strawberry.Schema(SocketQuery, SocketMutation, SocketSubscription)


async def identify_socket_user(token: str | None) -> Identity | None:
    """Parse a token: `user`, or `user/role/seconds of life/mailbox`."""
    if token is None:
        return None
    if token == "wrong":
        raise Unauthenticated("The token's signature is wrong.")
    if token == "unlucky":
        raise Unavailable("The keys cannot be fetched.")
    if token == "hanging":
        await asyncio.sleep(60)
    if token == "bug":
        raise RuntimeError("ann@example.com has a strange token")
    user, role, seconds, mailbox = (token + "///").split("/")[:4]
    email = f"{mailbox}@a.example" if mailbox else None
    return Identity(user, Role(role or "user"), email, expires_at=NOW + float(seconds or 60))


class ServedSockets:
    """The WebSocket server on a free port."""

    def __init__(self, endpoint: GraphQLWebSocket, server: uvicorn.Server) -> None:
        self.endpoint = endpoint
        self.uvicorn = server
        self.port: int = server.servers[0].sockets[0].getsockname()[1]
        self.url = f"ws://127.0.0.1:{self.port}/graphql"

    def peer(self, **how: Any) -> "connect":
        how = {"subprotocols": [SUBPROTOCOL], "compression": None, "ping_interval": None, "close_timeout": 0.2, **how}
        return connect(self.url, **how)

    @asynccontextmanager
    async def ready(self, payload: Any = None, **how: Any) -> AsyncIterator["SocketPeer"]:
        async with self.peer(**how) as connection:
            peer = SocketPeer(connection)
            await peer.send(type="connection_init", payload=payload)
            assert await peer.receive() == {"type": "connection_ack"}
            yield peer


class SocketPeer:
    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection

    async def send(self, **message: Any) -> None:
        await self.connection.send(json.dumps(message))

    async def subscribe(self, id: str, query: str, **rest: Any) -> None:
        await self.send(type="subscribe", id=id, payload={"query": query, **rest})

    async def receive(self) -> Any:
        """Return the next message. Skip pings, which may arrive at any time."""
        async with asyncio.timeout(AT_LAST):
            while (message := json.loads(await self.connection.recv())) == {"type": "ping"}:
                pass
        return message

    async def next(self, id: str) -> Any:
        message = await self.receive()
        assert (message["type"], message["id"]) == ("next", id)
        return message["payload"]

    async def closed(self) -> tuple[int, str]:
        async with asyncio.timeout(AT_LAST):
            with suppress(ConnectionClosed):
                async for _ in self.connection:
                    pass
            await self.connection.wait_closed()
        return self.connection.close_code or 0, self.connection.close_reason or ""


@asynccontextmanager
async def serve_websockets(
    registry: DocumentRegistry | None = None,
    connections: Connections | None = None,
    server_options: Mapping[str, Any] = UVICORN_OPTIONS,
    deadline: float = 50.0,
    **how: Any,
) -> AsyncIterator[ServedSockets]:
    """Serve WebSockets. Check at the end that no connection, task or event source is left."""
    world.begin()
    before: set[asyncio.Task[Any] | None] = {*asyncio.all_tasks()}
    runner = Runner(Documents(SCHEMA), SocketContext, deadline=deadline, registry=registry)
    endpoint = GraphQLWebSocket(runner, identify_socket_user, **{"limits": QUICK, "clock": world.clock, **how})
    config = uvicorn.Config(on_any_server(endpoint), port=0, log_config=None, lifespan="off", **server_options)
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    server.lifespan.state.update(connections.lifespan_state() if connections else {})
    await server.startup()
    yield ServedSockets(endpoint, server)
    server.servers[0].close()
    before.add(asyncio.current_task())
    await until(lambda: not server.server_state.connections and asyncio.all_tasks() <= before)
    assert world.held == 0
    assert not endpoint.sockets


def upgrade(host: str, more: str = "") -> bytes:
    key = base64.b64encode(b"0123456789abcdef").decode()
    head = f"GET /graphql HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    head += f"Sec-WebSocket-Key: {key}\r\n"
    return f"{head}Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: {SUBPROTOCOL}\r\n{more}\r\n".encode()
