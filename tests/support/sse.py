"""Server-sent events of a small schema, and a client."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from server.documents.document_cache import Documents
from server.http.endpoint import GraphQLHTTP
from server.http.streams.response_stream import ResponseStreams, StreamLimits
from server.operations.report import Report
from server.operations.runner import Runner
from tests.support.http_server import served as serving
from tests.support.toy_sockets import SCHEMA, SocketContext, identify_socket_user, world
from tests.support.until import until

EVENTS = "text/event-stream"
QUICK = StreamLimits(heartbeat=30, send_timeout=0.2)


@dataclass
class ServedStreams:
    """The server on a free port, and a client."""

    url: str
    streams: ResponseStreams
    http: aiohttp.ClientSession
    reports: list[Report]

    def ask(self, query: str, *, token: str | None = None, accept: str = EVENTS) -> Any:
        headers = {"accept": accept} | ({"authorization": f"Bearer {token}"} if token else {})
        return self.http.post(self.url, json={"query": query}, headers=headers)

    async def whole(self, query: str, **how: Any) -> list[Any]:
        """Return all blocks of a stream that ends by itself."""
        async with self.ask(query, **how) as response:
            assert (response.status, response.headers["content-type"]) == (200, f"{EVENTS}; charset=utf-8")
            return [block async for block in blocks(response)]


async def blocks(response: aiohttp.ClientResponse) -> AsyncIterator[Any]:
    """Yield the blocks between empty lines: the fields with decoded data, or the text of a comment."""
    async with asyncio.timeout(50):
        while text := (await response.content.readuntil(b"\n\n") if not response.content.at_eof() else b"").decode():
            if text.startswith(":"):
                yield ":"
                continue
            fields = dict(line.partition(":")[::2] for line in text.strip().split("\n"))
            fields = {name: value.removeprefix(" ") for name, value in fields.items()}
            if fields.get("data"):
                fields["data"] = json.loads(fields["data"])
            yield fields
            if fields.get("event") == "complete":
                assert await response.content.read() == b""


def next_of(number: int, body: Any) -> dict[str, Any]:
    return {"id": str(number), "event": "next", "data": body}


@asynccontextmanager
async def serve_event_streams(
    limits: StreamLimits = QUICK, deadline: float = 50.0, **how: Any
) -> AsyncIterator[ServedStreams]:
    """Serve event streams. Check at the end that no stream, task, connection or event source is left."""
    world.begin()
    reports: list[Report] = []
    streams = ResponseStreams(limits, world.clock)
    runner = Runner(Documents(SCHEMA), SocketContext, deadline=deadline, observers=[reports.append])
    app = GraphQLHTTP(runner, identify_socket_user, streams=streams)
    async with serving(app, **how) as url, aiohttp.ClientSession() as session:
        yield ServedStreams(url, streams, session, reports)
        await session.close()
        await until(lambda: len(streams) == 0)
    assert world.held == 0
