"""Small applications that write down what they are asked, and answer in every way there is."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.http.cycle import CYCLE

# What an application takes at the most: seconds of virtual time without a word from its client.
APP_SECONDS = 3.0
LARGE = 400_000


@dataclass
class ApplicationCall:
    """One call of the application: what it was asked, as it was when the call began, and what came of it."""

    number: int
    method: str
    target: bytes
    path: str
    version: str
    headers: list[tuple[bytes, bytes]]
    scope: Scope
    body: bytearray = field(default_factory=bytearray)
    has_whole_body: bool = False
    has_begun: bool = False
    is_over: bool = False
    listens: bool = False
    saw_disconnect: bool = False

    @property
    def heard(self) -> tuple[Any, ...]:
        """What a request meant, to be compared."""
        return self.method, self.target, self.version, self.headers, bytes(self.body), self.has_whole_body

    def changed(self) -> list[str]:
        """Tell what of the scope is another than when the call began."""
        now = _asked(self.scope)
        return [
            f"{name}: {was!r} became {now[name]!r}" for name, was in self._asked_at_first.items() if now[name] != was
        ]

    def __post_init__(self) -> None:
        self._asked_at_first = _asked(self.scope)


def _asked(scope: Scope) -> dict[str, Any]:
    names = ("type", "method", "path", "raw_path", "query_string", "http_version", "scheme", "client", "server")
    return {name: scope.get(name) for name in names} | {"headers": [*map(tuple, scope["headers"])]}


class CallRecorder:
    """An ASGI application that numbers its calls, and has each answer tell its number as `x-call`.

    `app` answers. Without one, the first part of the path says how to answer, and WebSockets go to `sockets`.
    """

    def __init__(self, app: ASGIApp | None, sockets: ASGIApp | None) -> None:
        self.calls: list[ApplicationCall] = []
        self._app = app
        self._sockets = sockets

    @property
    def is_busy(self) -> bool:
        """Whether a call is under way."""
        return any(not call.is_over for call in self.calls)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            sockets = self._app or self._sockets
            assert sockets is not None, "A WebSocket was opened where there are none."
            await sockets(scope, receive, send)
            return
        raw, query = scope["raw_path"], scope["query_string"]
        target = raw + b"?" + query if query else raw
        headers = [*map(tuple, scope["headers"])]
        number = len(self.calls)
        call = ApplicationCall(number, scope["method"], target, scope["path"], scope["http_version"], headers, scope)
        self.calls.append(call)
        try:
            if self._app is not None:
                await self._numbered(self._app, call, receive, send)
            else:
                how = getattr(self, "_" + scope["path"].strip("/").partition("/")[0], self._echo)
                await how(_Line(call, receive, send))
        finally:
            call.is_over = True

    async def _numbered(self, app: ASGIApp, call: ApplicationCall, receive: Receive, send: Send) -> None:
        call.scope[CYCLE].add_headers([(b"x-call", b"%d" % call.number)])
        await app(call.scope, receive, send)

    async def _echo(self, line: "_Line") -> None:
        """Read the body, and answer with its length."""
        if await line.read():
            await line.answer(b"%d" % len(line.call.body))

    async def _early(self, line: "_Line") -> None:
        """Answer without reading the body."""
        await line.answer(b"early")

    async def _late(self, line: "_Line") -> None:
        """Answer after a while, without reading the body."""
        await asyncio.sleep(1.0)
        await line.answer(b"late")

    async def _pieces(self, line: "_Line") -> None:
        """Read the body, and answer in chunks."""
        if await line.read():
            await line.begin()
            for piece in (b"one", b"", b"three"):
                await asyncio.sleep(0)
                await line.say(piece)
            await line.say(b"", more=False)

    async def _events(self, line: "_Line") -> None:
        """Answer for some seconds, whatever the client sends, until it has gone."""
        await line.begin()
        gone = asyncio.ensure_future(line.gone())
        try:
            for second in range(int(APP_SECONDS)):
                await asyncio.wait([gone], timeout=1.0)
                if gone.done():
                    return
                await line.say(b"data: %d\n\n" % second)
            await line.say(b"", more=False)
        finally:
            gone.cancel()
            await asyncio.wait([gone])

    async def _large(self, line: "_Line") -> None:
        """Answer with more than what a client that does not read can be sent."""
        await line.begin(LARGE)
        for _ in range(10):
            await line.say(b"x" * (LARGE // 10))
        await line.say(b"", more=False)

    async def _waits(self, line: "_Line") -> None:
        """Answer once the client has gone, or after a while."""
        gone = asyncio.ensure_future(line.gone())
        await asyncio.wait([gone], timeout=APP_SECONDS)
        if not gone.done():
            gone.cancel()
            await asyncio.wait([gone])
            await line.answer(b"waited")


class _Line:
    """What an application has of a request."""

    def __init__(self, call: ApplicationCall, receive: Receive, send: Send) -> None:
        self.call = call
        self._receive = receive
        self._send = send

    async def read(self) -> bool:
        """Read the body to its end. Return False when the client has gone."""
        while True:
            message = await self._heard()
            if message["type"] == "http.disconnect":
                self.call.saw_disconnect = True
                return False
            self.call.body += message.get("body", b"")
            if not message.get("more_body", False):
                self.call.has_whole_body = True
                return True

    async def _heard(self) -> Message:
        self.call.listens = True
        message = await self._receive()
        self.call.listens = False
        return message

    async def gone(self) -> None:
        """Read the body, and return when the client has gone."""
        while (await self._heard())["type"] != "http.disconnect":
            pass
        self.call.saw_disconnect = True

    async def answer(self, body: bytes) -> None:
        await self.begin(len(body))
        await self.say(body, more=False)

    async def begin(self, length: int | None = None) -> None:
        self.call.has_begun = True
        headers = [(b"x-call", b"%d" % self.call.number), (b"content-type", b"text/plain")]
        if length is not None:
            headers.append((b"content-length", b"%d" % length))
        await self._say({"type": "http.response.start", "status": 200, "headers": headers})

    async def say(self, body: bytes, *, more: bool = True) -> None:
        await self._say({"type": "http.response.body", "body": body, "more_body": more})

    async def _say(self, message: Message) -> None:
        await self._send(message)
