"""CPU of the gateway for deliveries to many subscribers, and how long after its write an event arrives."""

import asyncio
import time
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
from datastore.sightings import Sightings

EVENTS_PER_SECOND = 20
SETTLE_SECONDS = 15.0
ARRIVAL_SECONDS = 5.0
QUERY = "subscription { sightingReported { id sightingId area category description reportedAt confidence freshness } }"


@dataclass(frozen=True, slots=True)
class SubscriptionResult:
    """`cpu_ms` is the server's for 1,000 deliveries, all that it does meanwhile included."""

    subscribers: int
    events_per_second: int
    deliveries: int
    missing: int
    cpu_ms: float
    lag_p50_ms: float
    lag_p99_ms: float


async def measure(server: Server, client: Client, subscribers: int, seconds: float) -> SubscriptionResult:
    """Sightings are written past the gateway, so that it has nothing to do but to deliver them."""
    sent: dict[str, float] = {}
    lags: list[float] = []
    total = int(seconds * EVENTS_PER_SECOND)
    async with AsyncExitStack() as stack:
        sockets = [await stack.enter_async_context(_socket(server)) for _ in range(subscribers)]
        await asyncio.gather(*[_subscribe(socket, server.token) for socket in sockets])
        await _settled(server, subscribers)
        listening = [asyncio.create_task(_listen(socket, total, sent, lags)) for socket in sockets]
        before = await server.usage()
        await _publish(client, total, sent)
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
        EVENTS_PER_SECOND,
        len(lags),
        subscribers * total - len(lags),
        used.cpu * 1_000_000 / len(lags),
        percentile(lags, 0.50) * 1000,
        percentile(lags, 0.99) * 1000,
    )


def _socket(server: Server) -> Any:
    url = server.url.replace("http", "ws") + "/graphql"
    return server.http.ws_connect(url, protocols=["graphql-transport-ws"])


async def _subscribe(socket: aiohttp.ClientWebSocketResponse, token: str) -> None:
    payload = {"Authorization": f"Bearer {token}"}
    await socket.send_json({"type": "connection_init", "payload": payload})
    if (await socket.receive_json(timeout=SETTLE_SECONDS))["type"] != "connection_ack":
        raise RuntimeError("A subscriber was not let in.")
    await socket.send_json({"id": "1", "type": "subscribe", "payload": {"query": QUERY}})


async def _settled(server: Server, subscribers: int) -> None:
    """Until all of them follow the table, and the feed is attached to its stream."""
    async with asyncio.timeout(SETTLE_SECONDS):
        while (await server.usage()).followers < subscribers:  # noqa: ASYNC110 - it is over the wire
            await asyncio.sleep(0.05)


async def _listen(
    socket: aiohttp.ClientWebSocketResponse, total: int, sent: dict[str, float], lags: list[float]
) -> None:
    received = 0
    while received < total:
        message = orjson.loads(await socket.receive_str())
        arrived = time.perf_counter()
        if message["type"] == "next":
            lags.append(arrived - sent[message["payload"]["data"]["sightingReported"]["sightingId"]])
            received += 1
        elif message["type"] != "ping":
            raise RuntimeError(f"A subscriber was told: {message}")


async def _publish(client: Client, total: int, sent: dict[str, float]) -> None:
    """At a steady rate; the lag counts from when the write was asked for."""
    began = time.perf_counter()
    for number in range(total):
        await asyncio.sleep(began + number / EVENTS_PER_SECOND - time.perf_counter())
        event = sighting(number, NOON + timedelta(milliseconds=number), f"live-{number:05}")
        sent[event.sighting_id] = time.perf_counter()
        await Sightings(open_store(client), NOON).seed([event], [])
