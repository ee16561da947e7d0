"""CPU of the gateway for deliveries to many subscribers, and how long after its write an event arrives."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import aiohttp
import orjson

from benchmarks.data import NOON, open_store, sighting
from benchmarks.measuring import percentile
from benchmarks.server import Server
from datastore.client import Client
from datastore.declarations import Table
from datastore.keyspace.sightings import BLIP
from datastore.sightings import Sightings

SIGHTINGS_PER_SECOND = 20
SETTLE_SECONDS = 15.0
ARRIVAL_SECONDS = 5.0

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Feed:
    """What is subscribed to, and who writes it: past the gateway, so that it has nothing to do but to deliver.

    `publish` writes event number so and so, and says which one it is just before; `which` tells that of a message.
    With `snapshot` each subscription begins with a message of its own, which does not count.
    """

    query: str
    table: Table
    per_second: float
    publish: Callable[[int, Callable[[Hashable], None]], Awaitable[None]]
    which: Callable[[Body], Hashable]
    snapshot: bool = False


def sightings(client: Client) -> Feed:
    async def publish(number: int, says: Callable[[Hashable], None]) -> None:
        event = sighting(number, NOON + timedelta(milliseconds=number), f"live-{number:05}")
        says(event.sighting_id)
        await Sightings(open_store(client), NOON).seed([event], [])

    fields = "id sightingId area category description reportedAt confidence freshness"
    query = f"subscription {{ sightingReported {{ {fields} }} }}"
    return Feed(query, BLIP, SIGHTINGS_PER_SECOND, publish, lambda data: data["sightingReported"]["sightingId"])


@dataclass(frozen=True, slots=True)
class SubscriptionResult:
    """`cpu_ms` is the server's for 1,000 deliveries, all that it does meanwhile included."""

    subscribers: int
    events_per_second: float
    deliveries: int
    missing: int
    cpu_ms: float
    lag_p50_ms: float
    lag_p99_ms: float


async def measure(server: Server, feed: Feed, subscribers: int, seconds: float) -> SubscriptionResult:
    """All of them get all that is published in so many seconds."""
    sent: dict[Hashable, float] = {}
    lags: list[float] = []
    total = int(seconds * feed.per_second)
    async with AsyncExitStack() as stack:
        sockets = [await stack.enter_async_context(open_socket(server)) for _ in range(subscribers)]
        await asyncio.gather(*[subscribe(socket, server.token, feed.query) for socket in sockets])
        await _settled(server, feed.table, subscribers)
        if feed.snapshot:
            await asyncio.gather(*[socket.receive_json(timeout=SETTLE_SECONDS) for socket in sockets])
        listening = [asyncio.create_task(_listen(socket, feed, total, sent, lags)) for socket in sockets]
        before = await server.usage()
        await _publish(feed, total, sent)
        done, late = await asyncio.wait(listening, timeout=ARRIVAL_SECONDS)
        used = (await server.usage()).since(before)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        for task in done:
            task.result()
    if not lags:
        raise RuntimeError("No event was delivered.")
    return SubscriptionResult(
        subscribers,
        feed.per_second,
        len(lags),
        subscribers * total - len(lags),
        used.cpu * 1_000_000 / len(lags),
        percentile(lags, 0.50) * 1000,
        percentile(lags, 0.99) * 1000,
    )


def open_socket(server: Server) -> Any:
    url = server.url.replace("http", "ws") + "/graphql"
    return server.http.ws_connect(url, protocols=["graphql-transport-ws"])


async def subscribe(socket: aiohttp.ClientWebSocketResponse, token: str, query: str) -> None:
    payload = {"Authorization": f"Bearer {token}"}
    await socket.send_json({"type": "connection_init", "payload": payload})
    if (await socket.receive_json(timeout=SETTLE_SECONDS))["type"] != "connection_ack":
        raise RuntimeError("A subscriber was not let in.")
    await socket.send_json({"id": "1", "type": "subscribe", "payload": {"query": query}})


async def _settled(server: Server, table: Table, subscribers: int) -> None:
    """Until all of them follow the table, and the feed is attached to its stream."""
    async with asyncio.timeout(SETTLE_SECONDS):
        while (await server.usage()).followers[table.name] < subscribers:  # noqa: ASYNC110 - it is over the wire
            await asyncio.sleep(0.05)


async def _listen(
    socket: aiohttp.ClientWebSocketResponse, feed: Feed, total: int, sent: Mapping[Hashable, float], lags: list[float]
) -> None:
    received = 0
    while received < total:
        message = orjson.loads(await socket.receive_str())
        arrived = time.perf_counter()
        if message["type"] == "next":
            lags.append(arrived - sent[feed.which(message["payload"]["data"])])
            received += 1
        elif message["type"] != "ping":
            raise RuntimeError(f"A subscriber was told: {message}")


async def _publish(feed: Feed, total: int, sent: dict[Hashable, float]) -> None:
    """At a steady rate; the lag counts from when the write was asked for."""

    def says(event: Hashable) -> None:
        sent[event] = time.perf_counter()

    began = time.perf_counter()
    for number in range(total):
        await asyncio.sleep(began + number / feed.per_second - time.perf_counter())
        await feed.publish(number, says)
