"""A proxy between client and engine that injects faults; DynamoDB itself is the engine's own."""

import asyncio
import re
import zlib
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Self

import aiohttp
import orjson
from aiohttp import web
from botocore.credentials import Credentials

from datastore.dynamodb.client import Client, Endpoint
from datastore.dynamodb.http1 import HttpLimits
from datastore.dynamodb.retry.backoff import Backoff
from datastore.dynamodb.sigv4 import CredentialSource

QUICK = Backoff(initial=0.001, maximum=0.004, attempts=4)
# Only the proxy decides which request fails: a machine that stands still times none out.
PATIENT = HttpLimits(connect_seconds=50, silence_seconds=50)
LOCAL = Credentials("local", "local")


@dataclass(frozen=True)
class Seen:
    """A request as it reached the proxy."""

    operation: str
    body: dict[str, Any]
    request: web.Request

    @property
    def tables(self) -> str:
        """The names of the tables of the request, joined by "+"; empty for streams."""
        found = {self.body["TableName"]} if "TableName" in self.body else {*self.body.get("RequestItems", ())}
        found |= {one["TableName"] for entry in self.body.get("TransactItems", ()) for one in entry.values()}
        return "+".join(sorted(found))


Fault = Callable[["Proxy", Seen], Awaitable[web.StreamResponse]]


class Proxy:
    """Forwards to the engine. The next requests meet `faults`, one each, or every request meets `always`.

    `reached` counts the requests that arrived and `asked` those that were forwarded, by operation. With `remembers` off
    the requests are not recorded, for long runs.
    """

    def __init__(self, engine: str, *, remembers: bool = True) -> None:
        self.engine = engine
        self.url = ""
        self.seen: list[Seen] = []
        self.reached: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()
        self._remembers = remembers
        self.faults: deque[Fault] = deque()
        self.always: Fault | None = None
        self.closing = asyncio.Event()

    async def __aenter__(self) -> Self:
        self.http = aiohttp.ClientSession()
        app = web.Application(client_max_size=2**26)
        app.router.add_post("/", self._answer)
        self.runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
        await self.runner.setup()
        await self.come_back()
        self.url = "http://{}:{}".format(*self.runner.addresses[0][:2])
        return self

    async def __aexit__(self, *_: object) -> None:
        self.closing.set()
        await self.http.close()
        await self.runner.cleanup()

    async def go_away(self) -> None:
        """Stop listening and close all connections."""
        await self.site.stop()
        assert self.runner.server is not None
        for connection in list(self.runner.server.connections):
            if connection.transport is not None:
                connection.transport.abort()

    async def come_back(self) -> None:
        """Listen, on the previous port if there was one."""
        self.site = web.TCPSite(self.runner, "127.0.0.1", int(self.url.rpartition(":")[2] or 0))
        await self.site.start()

    @property
    def connections(self) -> int:
        """The number of open connections to the proxy."""
        assert self.runner.server is not None
        return len(self.runner.server.connections)

    def operations(self) -> list[str]:
        return [seen.operation for seen in self.seen]

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        operation = request.headers["x-amz-target"].rpartition(".")[2]
        seen = Seen(operation, orjson.loads(await request.read()), request)
        self.reached[operation] += 1
        if self._remembers:
            self.seen.append(seen)
        fault = self.faults.popleft() if self.faults else self.always or forward
        return await fault(self, seen)

    async def ask(self, seen: Seen) -> tuple[int, dict[str, str], bytes]:
        """Forward a request. Return the engine's status, headers and body."""
        self.asked[seen.operation] += 1
        kept = ("x-amz-target", "content-type", "authorization", "x-amz-date")
        headers = {name: seen.request.headers[name] for name in kept}
        async with self.http.post(self.engine, data=BytesIO(orjson.dumps(seen.body)), headers=headers) as response:
            content = await response.read()
            # DynamoDB Local does not always send a checksum.
            sums = {name: value for name, value in response.headers.items() if name.lower() == "x-amz-crc32"}
            return response.status, sums, content


async def forward(proxy: Proxy, seen: Seen) -> web.StreamResponse:
    status, headers, content = await proxy.ask(seen)
    return web.Response(status=status, headers=headers, body=content)


def refuse(status: int, code: str, **details: Any) -> Fault:
    """Respond with an error of DynamoDB."""

    async def answer(_proxy: Proxy, _seen: Seen) -> web.StreamResponse:
        body = orjson.dumps({"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "No.", **details})
        return web.Response(status=status, body=body, headers={"x-amz-crc32": str(zlib.crc32(body))})

    return answer


def plain_error(status: int, text: str = "<html>Sorry</html>", **headers: str) -> Fault:
    """Respond with an error of a proxy in front of DynamoDB."""

    async def answer(_proxy: Proxy, _seen: Seen) -> web.StreamResponse:
        return web.Response(status=status, text=text, headers=headers)

    return answer


async def reset(_proxy: Proxy, seen: Seen) -> web.StreamResponse:
    return _abort(seen)


def _abort(seen: Seen) -> web.StreamResponse:
    assert seen.request.transport is not None
    seen.request.transport.abort()
    return web.Response()


async def lose_answer(proxy: Proxy, seen: Seen) -> web.StreamResponse:
    """Forward the request and lose the response."""
    await proxy.ask(seen)
    return _abort(seen)


def fail_after_all(status: int, code: str) -> Fault:
    """Forward the request and respond with an error all the same."""
    fail = refuse(status, code)

    async def answer(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        await proxy.ask(seen)
        return await fail(proxy, seen)

    return answer


async def forget_token(proxy: Proxy, seen: Seen) -> web.StreamResponse:
    """Change the token, as if the engine had restarted and forgotten it."""
    seen.body["ClientRequestToken"] += " forgotten"
    return await forward(proxy, seen)


async def hang(proxy: Proxy, _seen: Seen) -> web.StreamResponse:
    await proxy.closing.wait()
    return web.Response(status=500)


async def dribble(_proxy: Proxy, seen: Seen) -> web.StreamResponse:
    """Respond with a byte now and then, without end."""
    response = web.StreamResponse(headers={"content-length": "100000"})
    await response.prepare(seen.request)
    with suppress(ConnectionError):
        for _ in range(1000):
            await response.write(b" ")
            await asyncio.sleep(0.02)
    return response


async def damage(proxy: Proxy, seen: Seen) -> web.StreamResponse:
    """Respond with a wrong checksum."""
    status, _, content = await proxy.ask(seen)
    return web.Response(status=status, headers={"x-amz-crc32": str(zlib.crc32(content) ^ 1)}, body=content)


async def corrupt(proxy: Proxy, seen: Seen) -> web.StreamResponse:
    """Change the last characters of texts and numbers, so that the body is
    well-formed and does not match its checksum.
    """
    status, headers, content = await proxy.ask(seen)
    changed = re.sub(rb'("[SN]":"[^"]*)[0-9A-Za-z]"', rb'\g<1>7"', content)
    if changed == content:
        changed = content + b" "
    return web.Response(status=status, headers=headers, body=changed)


async def garble(proxy: Proxy, seen: Seen) -> web.StreamResponse:
    """Respond with words instead of a checksum."""
    status, _, content = await proxy.ask(seen)
    return web.Response(status=status, headers={"x-amz-crc32": "none"}, body=content)


async def cut_body(proxy: Proxy, seen: Seen) -> web.StreamResponse:
    """Lose the connection in the middle of the body."""
    _, headers, content = await proxy.ask(seen)
    response = web.StreamResponse(headers={**headers, "content-length": str(len(content))})
    await response.prepare(seen.request)
    await response.write(content[: len(content) // 2])
    return _abort(seen)


async def cut_json(proxy: Proxy, seen: Seen) -> web.StreamResponse:
    """Respond with half of the JSON, completely and without a checksum."""
    _, _, content = await proxy.ask(seen)
    return web.Response(body=content[: len(content) // 2])


def slow(seconds: float) -> Fault:
    """Forward the request after a delay."""

    async def answer(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        await asyncio.sleep(seconds)
        return await forward(proxy, seen)

    return answer


async def leave_half(proxy: Proxy, seen: Seen) -> web.StreamResponse:
    """Forward the first half of each table's part of a batch (at least one), and report the rest as unprocessed."""
    done, rest = _halves(seen.body["RequestItems"])
    if not rest:
        return await forward(proxy, seen)
    status, _, content = await proxy.ask(Seen(seen.operation, seen.body | {"RequestItems": done}, seen.request))
    unprocessed = "UnprocessedKeys" if seen.operation == "BatchGetItem" else "UnprocessedItems"
    answer = orjson.loads(content)
    return web.Response(status=status, body=orjson.dumps(answer | ({unprocessed: rest} if status == 200 else {})))


def _halves(tables: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    done: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for name, entry in tables.items():
        listed = entry["Keys"] if isinstance(entry, dict) else entry
        middle = (len(listed) + 1) // 2
        for part, some in ((done, listed[:middle]), (rest, listed[middle:])):
            if some:
                part[name] = entry | {"Keys": some} if isinstance(entry, dict) else some
    return done, rest


async def repeat_records(proxy: Proxy, seen: Seen) -> web.StreamResponse:
    """Repeat the records of a stream: each at once, and all of them again at the end."""
    status, _, content = await proxy.ask(seen)
    answer = orjson.loads(content)
    records = answer.get("Records", [])
    answer["Records"] = [record for record in records for _ in range(2)] + records
    return web.Response(status=status, body=orjson.dumps(answer))


EXPIRED = refuse(400, "ExpiredIteratorException")
TRIMMED = refuse(400, "TrimmedDataAccessException")


def client_of(
    proxy: Proxy, *, credentials: Any = LOCAL, backoff: Backoff = QUICK, limits: HttpLimits = PATIENT, **options: Any
) -> Client:
    endpoint = Endpoint(lambda: proxy.url, lambda: proxy.url, "local")
    source = credentials if isinstance(credentials, CredentialSource) else CredentialSource(credentials)
    return Client(endpoint, source, backoff=backoff, limits=limits, **options)


async def apply_and_refuse(proxy: Proxy, seen: Seen) -> web.StreamResponse:
    """Let the engine apply the call, and return an error to the caller."""
    await proxy.ask(seen)
    return await refuse(400, "AccessDeniedException")(proxy, seen)
