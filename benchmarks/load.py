"""A client that costs little beside what it measures: one request after another on each of some connections."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import cast
from urllib.parse import urlsplit

import httptools
import orjson

from benchmarks.workloads import Body, Workload

ANSWER_SECONDS = 30.0


class Connection(asyncio.Protocol):
    """A connection that is kept, for one request at a time."""

    def __init__(self, host: str) -> None:
        self.host = host
        self._transport: asyncio.WriteTransport | None = None
        self._answer: asyncio.Future[bytes] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []

    async def ask(self, request: bytes) -> bytes:
        """The body of the answer. Raises `RuntimeError` unless its status is 200."""
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # asyncio's protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError("The server closed the connection."))

    # httptools' callbacks

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        body, status = b"".join(self._parts), self._parser.get_status_code()
        self._parts.clear()
        if self._answer is None or self._answer.done():
            return
        if status == 200:
            self._answer.set_result(body)
        else:
            self._answer.set_exception(RuntimeError(f"Answered {status}: {body[:300].decode(errors='replace')}"))


@asynccontextmanager
async def connected(url: str, number: int) -> AsyncIterator[list[Connection]]:
    """So many connections to a server."""
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    loop = asyncio.get_running_loop()
    connections: list[Connection] = []
    try:
        for _ in range(number):
            _, connection = await loop.create_connection(lambda: Connection(parts.netloc), parts.hostname, parts.port)
            connections.append(connection)
        yield connections
    finally:
        for connection in connections:
            connection.close()


def requests(host: str, headers: Mapping[str, str], workload: Workload) -> Iterator[bytes]:
    """What a client sends, request after request."""
    heads = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"POST /graphql HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n{heads}Content-Length: "
    for text, variables in workload.asked():
        body = orjson.dumps({"query": text, "variables": variables})
        yield f"{head}{len(body)}\r\n\r\n".encode() + body


async def ask_once(url: str, headers: Mapping[str, str], workload: Workload) -> Body:
    """The data of one answer. Raises `RuntimeError` for one that tells of errors, or is not what was asked for."""
    async with connected(url, 1) as (connection,):
        async with asyncio.timeout(ANSWER_SECONDS):
            answer = orjson.loads(await connection.ask(next(requests(connection.host, headers, workload))))
    if answer.get("errors"):
        raise RuntimeError(f"{workload.name} was answered: {answer['errors'][0]}")
    data: Body = answer["data"]
    if not workload.holds(data):
        raise RuntimeError(f"{workload.name} was answered with something else than was asked for.")
    return data


async def closed_loop(url: str, asked: Iterator[bytes], total: int, concurrency: int) -> list[float]:
    """Ask `total` times, on so many connections at once and on each as soon as it is free; the seconds each took."""
    took: list[float] = []
    left = iter(range(total))

    async def work(connection: Connection) -> None:
        for _ in left:
            request = next(asked)
            began = time.perf_counter()
            content = await connection.ask(request)
            took.append(time.perf_counter() - began)
            if b'"errors"' in content[:20]:
                raise RuntimeError(f"Answered: {content[:300].decode(errors='replace')}")

    async with connected(url, concurrency) as connections:
        await asyncio.gather(*map(work, connections))
    return took
