"""Workers on a bus: each of them, and Redis, ends at some time, and subscribers miss nothing."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from datastore.database import Database, StoreOptions
from datastore.earthquakes.earthquakes import Earthquakes
from datastore.session.metering import Deadline
from datastore.session.store import Store
from tests.support.command_line import GatewayProcess, serve_process
from tests.support.earthquake_samples import quake
from tests.support.redis_server import RedisServer, redis
from tests.support.resuming_clients import EventStreamClient, ResumingClient, SocketClient
from tests.support.served import NOON, SECRET
from tests.support.until import until
from tests.support.workers import QUIET, workers

__all__ = ["redis"]

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="finds the workers in /proc"),
    pytest.mark.timeout(180),
]
QUAKES = "subscription { earthquakeDetected { eventId } }"
# The errors of a client whose connection ends: it breaks, or an unexpected message arrives.
ENDED = (aiohttp.ClientError, ConnectionError, TypeError)


@pytest.fixture
def gateway(
    tmp_path: Path, store_options: StoreOptions, database: Database, redis: RedisServer
) -> Iterator[GatewayProcess]:
    store = ("--store", store_options.store or "", "--prefix", store_options.prefix, "--no-demo", "--bus", redis.url)
    with serve_process(tmp_path / "data", "--workers", "2", *store, *QUIET, GATEWAY_SECRET=SECRET) as gateway:
        yield gateway
        gateway.stop(signal.SIGTERM)


class ReconnectingFollower:
    """A subscriber that reconnects whenever it is cut off. `odd` holds what it received besides events."""

    def __init__(self, client: ResumingClient) -> None:
        self.client = client
        self.received: list[str] = []
        self.odd: list[Any] = []
        self.connections = 0

    async def follow(self, url: str) -> None:
        while True:
            with suppress(*ENDED):
                async with self.client.connected(url) as events:
                    self.connections += 1
                    async for payload in events:
                        self._take(payload)
            await asyncio.sleep(0.05)  # as clients do

    def _take(self, payload: Any) -> None:
        if payload.get("data"):
            self.received.append(payload["data"]["earthquakeDetected"]["eventId"])
        elif not payload.get("begun"):
            self.odd.append(payload)


class EarthquakeWriter:
    """Writes earthquakes one after another, past the gateway."""

    def __init__(self, database: Database) -> None:
        store = Store(
            database.client, prefix=database.prefix, deadline=Deadline(60), token=lambda: "", now=lambda: NOON
        )
        self._earthquakes = Earthquakes(store, NOON)
        self.written: list[str] = []
        self.is_over = False

    async def write_on(self) -> None:
        while not self.is_over:
            await self.write()
            await asyncio.sleep(0.02)

    async def write(self) -> None:
        name = f"q{len(self.written)}"
        await self._earthquakes.insert(quake(name))
        self.written.append(name)


@asynccontextmanager
async def running_work(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
        assert not task.done(), task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_subscribers_miss_nothing_while_workers_and_redis_end(
    gateway: GatewayProcess, redis: RedisServer, database: Database
) -> None:
    writer = EarthquakeWriter(database)
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(aiohttp.ClientSession())
        followers = [
            ReconnectingFollower(kind(http, QUAKES, {})) for kind in (SocketClient, EventStreamClient) for _ in range(3)
        ]
        for follower in followers:
            await stack.enter_async_context(running_work(follower.follow(gateway.url)))
        await until(lambda: all(follower.client.last is not None for follower in followers))

        async def all_are_told() -> None:
            """Wait until all subscribers received all events so far."""
            many = len(writer.written)
            await until(lambda: all(len(follower.received) >= many for follower in followers))

        async with asyncio.TaskGroup() as writing:
            writing.create_task(writer.write_on())
            await until(lambda: all(follower.received for follower in followers))
            os.kill(min(workers(gateway)), signal.SIGKILL)
            await until(lambda: "a replacement starts" in gateway.output)
            redis.kill()
            await all_are_told()
            redis.start()
            await all_are_told()
            gateway.process.send_signal(signal.SIGHUP)
            await until(lambda: "All workers were replaced" in gateway.output)
            writer.is_over = True
        await all_are_told()

    assert [follower.odd for follower in followers] == [[]] * len(followers)
    assert [follower.received for follower in followers] == [writer.written] * len(followers)
    assert min(follower.connections for follower in followers) > 1
