"""Slow clients of a small application behind the HTTP server."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any

import uvicorn
from starlette.types import Receive, Scope, Send

from server.admission.connection_limits import Connections, HttpConnectionLimits
from server.admission.settings import Capacity
from server.http.protocol import UVICORN_OPTIONS
from tests.support.until import until

PATIENT = HttpConnectionLimits(head_seconds=30, silent_seconds=30, linger_seconds=5)
# For tests that advance the time.
TIMED = HttpConnectionLimits(
    head_bytes=2000,
    head_lines=20,
    head_seconds=10,
    silent_seconds=10,
    least_bytes=1000,
    linger_seconds=2,
    pipelined=4,
)
GET = b"GET /%s HTTP/1.1\r\nHost: here\r\n\r\n"


class LoopTime:
    """A loop for connections whose time advances only when the test says so."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._now = 0.0
        self._due: list[tuple[float, asyncio.Event, Callable[[], None]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def time(self) -> float:
        return self._now

    def call_later(self, seconds: float, act: Callable[[], None]) -> Any:
        cancelled = asyncio.Event()
        self._due.append((self._now + seconds, cancelled, act))
        return SimpleNamespace(cancel=cancelled.set)

    def passes(self, seconds: float) -> None:
        self._now += seconds
        due = [timer for timer in self._due if timer[0] <= self._now]
        self._due = [timer for timer in self._due if timer[0] > self._now]
        for _, cancelled, act in due:
            if not cancelled.is_set():
                act()


class EchoApplication:
    """An application that echoes requests; the path chooses the response."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.left: list[str] = []
        self.go = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.accept"})
            if scope["path"] == "/large":
                await send({"type": "websocket.send", "bytes": b"x" * 20_000_000})
            await receive()
            return
        path = scope["path"]
        self.asked.append(path)
        answer = path.encode()
        if path == "/early":
            await respond(send, b"early")
            return
        if path == "/broken":
            raise asyncio.CancelledError("the password is swordfish")
        if path == "/silent":
            return
        if path == "/large":
            answer = b"x" * 20_000_000
        if path == "/wait":
            await self.go.wait()
        if path == "/body":
            answer = b""
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    self.left.append(path)
                    return
                answer += message["body"]
                if not message["more_body"]:
                    break
        await respond(send, answer)


async def respond(send: Send, body: bytes) -> None:
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Running:
    """The running server of `EchoApplication`."""

    def __init__(
        self, app: EchoApplication, server: uvicorn.Server, connections: Connections, time: LoopTime | None
    ) -> None:
        self.app = app
        self.time = time
        self.server = server
        self.connections = connections
        self.port: int = server.servers[0].sockets[0].getsockname()[1]

    @asynccontextmanager
    async def client(self, *sent: bytes) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(b"".join(sent))
            yield reader, writer
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def exchange(self, *sent: bytes) -> "Answers":
        """Send bytes. Return all responses until the server closes the connection."""
        async with self.client(*sent) as (reader, _), asyncio.timeout(50):
            return Answers(await reader.read())

    async def heard(self, least: int) -> Any:
        """Return the protocol of the only connection once it has read this many bytes of a head."""
        open: set[Any] = self.server.server_state.connections
        await until(lambda: any(one._head_bytes >= least for one in open))
        (protocol,) = open
        return protocol

    async def empty(self) -> None:
        def is_empty() -> bool:
            if self.time is not None:
                self.time.passes(1)
            return not self.server.server_state.connections and not self.connections.open

        await until(is_empty)


class Answers:
    """Responses as bytes from the wire."""

    def __init__(self, raw: bytes) -> None:
        self.raw = raw
        self.statuses: list[int] = []
        self.bodies: list[bytes] = []
        self.heads: list[str] = []
        while raw:
            head, _, rest = raw.partition(b"\r\n\r\n")
            status = int(head.split()[1])
            length = 0 if status == 100 else int(head.lower().partition(b"content-length: ")[2].split()[0])
            self.statuses.append(status)
            self.heads.append(head.decode())
            self.bodies.append(rest[:length])
            raw = rest[length:]

    @property
    def error(self) -> tuple[int, str, str]:
        """Return the status, code and message of the only response, which must be GraphQL JSON and close the
        connection.
        """
        assert len(self.statuses) == 1
        assert "content-type: application/json; charset=utf-8" in self.heads[0]
        assert "connection: close" in self.heads[0]
        [payload] = json.loads(self.bodies[0])["errors"]
        return self.statuses[0], payload["extensions"]["code"], payload["message"]


@asynccontextmanager
async def serve_echo(
    limits: HttpConnectionLimits = PATIENT, time: LoopTime | None = None, **capacity: int
) -> AsyncIterator[Running]:
    app = EchoApplication()
    connections = Connections(Capacity(**capacity), limits)  # type: ignore[arg-type]
    config = uvicorn.Config(app, port=0, log_config=None, lifespan="off", access_log=False, **UVICORN_OPTIONS)
    config.load()
    if time is not None:
        made = config.http_protocol_class
        config.http_protocol_class = lambda **given: made(**(given | {"_loop": time}))  # type: ignore[assignment]
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    server.lifespan.state.update(connections.lifespan_state())
    await server.startup()
    running = Running(app, server, connections, time)
    try:
        yield running
        await running.empty()
    finally:
        app.go.set()
        for listener in server.servers:
            listener.close()
        # A shutdown takes a tenth of a second, with connections or without.
        if server.server_state.connections or server.server_state.tasks:
            await server.shutdown()
