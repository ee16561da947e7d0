"""A load generator with little overhead: sequential requests on each of several connections."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import orjson

from benchmarks.connection import Connection
from benchmarks.workloads import Body, Workload

RESPONSE_SECONDS = 30.0


async def ask(connection: Connection, request: bytes) -> bytes:
    """Send a request. Return the body of the response. Raises `RuntimeError` unless its status is 200."""
    status, body = await connection.ask(request)
    if status != 200:
        raise RuntimeError(f"The server returned status {status}: {body[:300].decode(errors='replace')}")
    return body


@asynccontextmanager
async def connected(url: str, number: int) -> AsyncIterator[list[Connection]]:
    """Open `number` connections to a server."""
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
    """Yield the encoded requests of a workload."""
    heads = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    head = f"POST /graphql HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n{heads}Content-Length: "
    for text, variables in workload.documents():
        body = orjson.dumps({"query": text, "variables": variables})
        yield f"{head}{len(body)}\r\n\r\n".encode() + body


async def send_once(url: str, headers: Mapping[str, str], workload: Workload) -> Body:
    """Send one request. Return its data. Raises `RuntimeError` for errors, and for incomplete data."""
    async with connected(url, 1) as (connection,):
        async with asyncio.timeout(RESPONSE_SECONDS):
            answer = orjson.loads(await ask(connection, next(requests(urlsplit(url).netloc, headers, workload))))
    if answer.get("errors"):
        raise RuntimeError(f"{workload.name} failed: {answer['errors'][0]}")
    data: Body = answer["data"]
    if not workload.holds(data):
        raise RuntimeError(f"The response to {workload.name} is incomplete.")
    return data


async def closed_loop(url: str, encoded_requests: Iterator[bytes], total: int, concurrency: int) -> list[float]:
    """Send `total` requests on `concurrency` connections, each as soon as a connection is free.

    Return the latencies in seconds.
    """
    latencies: list[float] = []
    remaining = iter(range(total))

    async def work(connection: Connection) -> None:
        for _ in remaining:
            request = next(encoded_requests)
            began = time.perf_counter()
            content = await ask(connection, request)
            latencies.append(time.perf_counter() - began)
            if b'"errors"' in content[:20]:
                raise RuntimeError(f"The server returned errors: {content[:300].decode(errors='replace')}")

    async with connected(url, concurrency) as connections:
        await asyncio.gather(*map(work, connections))
    return latencies
