"""A client that costs little beside what it measures: one request after another on each of some connections."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import orjson

from benchmarks.connection import Connection
from benchmarks.workloads import Body, Workload

ANSWER_SECONDS = 30.0


async def ask(connection: Connection, request: bytes) -> bytes:
    """The body of the answer. Raises `RuntimeError` unless its status is 200."""
    status, body = await connection.ask(request)
    if status != 200:
        raise RuntimeError(f"Answered {status}: {body[:300].decode(errors='replace')}")
    return body


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
            _, connection = await loop.create_connection(Connection, parts.hostname, parts.port)
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
            answer = orjson.loads(await ask(connection, next(requests(urlsplit(url).netloc, headers, workload))))
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
            content = await ask(connection, request)
            took.append(time.perf_counter() - began)
            if b'"errors"' in content[:20]:
                raise RuntimeError(f"Answered: {content[:300].decode(errors='replace')}")

    async with connected(url, concurrency) as connections:
        await asyncio.gather(*map(work, connections))
    return took
