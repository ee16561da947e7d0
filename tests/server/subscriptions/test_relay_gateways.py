"""Gateways that share a bus: the events of the subscribers of each, and the cost."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

from datastore.database import StoreOptions, open_database
from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.keyspace.matches.active_matches import ACTIVE_MATCHES
from datastore.model.access_patterns import Table
from server.settings import Settings
from tests.support.active_matches import active_match_state
from tests.support.bus_gateways import metric_value
from tests.support.earthquake_samples import put_raw, scan
from tests.support.fault_proxy import Proxy
from tests.support.match_updates import advance, register_at_version_1
from tests.support.ports import free_port
from tests.support.redis_server import RedisServer, redis
from tests.support.resume import CUTS, cut_at_random, write_until
from tests.support.resuming_clients import EventStreamClient, ResumingClient, SocketClient
from tests.support.served import Clock, Served, Tidied, listening
from tests.support.split_stream import SplitStream
from tests.support.store_engines import Engines
from tests.support.until import until

__all__ = ["redis"]

QUAKES = "subscription { earthquakeDetected { eventId } }"
SCORES = "subscription { liveScores { isSnapshot updates { matchId version conflatedCount } } }"
# After this number of writes no more shards are split, so that a long run tests other things, too.
MOST_UNREST = 300
TRANSPORTS = pytest.mark.parametrize("transport", [SocketClient, EventStreamClient])


@pytest.fixture
def settings(settings: Settings, redis: RedisServer) -> Settings:
    return replace(settings, bus=redis.url)


@pytest.fixture
async def streams(engine: str, engines: Engines, proxy: Proxy) -> AsyncIterator[SplitStream]:
    async with open_database(StoreOptions(store=engine, prefix=engines.prefix)) as database:
        streams = SplitStream(database.client)
        proxy.always = streams.answer
        yield streams


@pytest.fixture
def store_options(engines: Engines, streams: SplitStream, proxy: Proxy) -> StoreOptions:
    """Use an engine whose streams have several shards."""
    return StoreOptions(store=proxy.url, prefix=engines.prefix)


@pytest.fixture
async def gateways(
    served: Served, settings: Settings, store_options: StoreOptions, clock: Clock
) -> AsyncIterator[list[Served]]:
    async with AsyncExitStack() as stack:
        gateways = [served]
        for _ in range(2):
            another = replace(settings, port=free_port())
            gateway = Tidied(another, store_options, now=clock)
            await stack.enter_async_context(gateway.running())
            await stack.enter_async_context(listening(gateway))
            gateways.append(Served(gateway, another.url, served.http, clock))
        yield gateways


def count_reads(served: Served, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the calls for stream records from now on."""
    assert served.gateway.database is not None
    client = served.gateway.database.client
    call, made = client.call, list[str]()

    async def counted(operation: str, *arguments: Any, **options: Any) -> Any:
        if operation == "GetRecords":
            made.append(operation)
        return await call(operation, *arguments, **options)

    monkeypatch.setattr(client, "call", counted)
    return made


async def readiness(served: Served) -> Any:
    async with served.http.get(f"{served.url}/readyz") as response:
        assert response.status == 200
        return await response.json()


async def test_subscribers_of_all_gateways_receive_each_event_once_and_one_process_reads(
    gateways: list[Served], monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = [count_reads(served, monkeypatch) for served in gateways]
    listeners = [await served.listen(QUAKES) for served in gateways]
    for served in gateways:
        await served.settle(EARTHQUAKES)

    for number in range(9):
        await put_raw(gateways[number % 3], f"us{number}")

    for listener in listeners:
        received = [(await listener.event())["earthquakeDetected"]["eventId"] for _ in range(9)]
        assert received == [f"us{number}" for number in range(9)]
        await listener.socket.close()
    assert sum(bool(made) for made in reads) == 1
    assert sum([await metric_value(served, "gateway_bus_relayed_total") for served in gateways]) == 9
    assert [await metric_value(served, "gateway_bus_received_total") for served in gateways] == [9, 9, 9]
    assert await readiness(gateways[0]) == {"ready": True, "store": "ok", "bus": "ok"}


async def test_a_gateway_is_ready_and_delivers_while_the_bus_is_unavailable(served: Served, redis: RedisServer) -> None:
    listener = await served.listen(QUAKES)
    await served.settle(EARTHQUAKES)
    redis.kill()
    await put_raw(served, "us1")

    assert (await listener.event())["earthquakeDetected"]["eventId"] == "us1"
    assert await readiness(served) == {"ready": True, "store": "ok", "bus": "away"}
    assert await metric_value(served, "gateway_bus_tables_direct") == 1
    redis.start()
    bus = served.gateway.bus
    assert bus is not None
    await until(lambda: not bus.is_away)
    assert (await readiness(served))["bus"] == "ok"


@TRANSPORTS
async def test_a_client_that_was_cut_off_resumes_at_another_gateway(
    gateways: list[Served], transport: type[ResumingClient]
) -> None:
    one, other, fresh = gateways
    stays = await other.listen(QUAKES)
    await other.settle(EARTHQUAKES)
    client = transport(one.http, QUAKES, {})
    received: list[str] = []

    async def take(served: Served, many: int) -> None:
        async with client.connected(served.url) as events:
            async for payload in events:
                if "data" in payload:
                    assert "resync" not in payload["extensions"]
                    received.append(payload["data"]["earthquakeDetected"]["eventId"])
                elif not received:
                    await put_raw(one, "us0")
                if len(received) == many:
                    return

    await take(one, 1)
    for number in range(1, 5):
        await put_raw(one, f"us{number}")
    await take(other, 5)
    for number in range(5, 8):
        await put_raw(one, f"us{number}")
    await take(fresh, 8)

    assert received == [f"us{number}" for number in range(8)]
    assert [(await stays.event())["earthquakeDetected"]["eventId"] for _ in range(8)] == received


async def test_a_client_without_events_receives_the_first_ones_at_another_gateway(gateways: list[Served]) -> None:
    client = EventStreamClient(gateways[0].http, QUAKES, {})
    async with client.connected(gateways[0].url) as events:
        assert await anext(events) == {"begun": True}
    for number in range(3):
        await put_raw(gateways[0], f"us{number}")
    stays = await gateways[1].listen(QUAKES)
    async with client.connected(gateways[1].url) as events, asyncio.timeout(50):
        received = [(await anext(events))["data"]["earthquakeDetected"]["eventId"] for _ in range(3)]
    assert received == ["us0", "us1", "us2"]
    await stays.socket.close()


class Unrest:
    """Splits shards, and makes other gateways the leader of a table. `holders` are the gateways that were."""

    def __init__(self, streams: SplitStream, gateways: list[Served]) -> None:
        database = gateways[0].gateway.database
        assert database is not None
        self._streams = streams
        self._prefix = database.prefix
        self._buses = [served.gateway.bus for served in gateways if served.gateway.bus is not None]
        self._rng = random.Random(3)
        self.holders: set[str] = set()

    async def rise(self) -> None:
        table = self._rng.choice((EARTHQUAKES, ACTIVE_MATCHES))
        await self._rng.choice((self._split, self._hand_over))(table)

    async def _split(self, table: Table) -> None:
        await self._streams.split(self._prefix + table.name, self._rng)

    async def _hand_over(self, table: Table) -> None:
        """Make another gateway the leader. The previous one notices when it appends or claims again."""
        follow = [bus for bus in self._buses if any(source.table == table.name for source in bus._sources)]
        taker = self._rng.choice(follow)
        held = await taker.commands.claim(table.name, taker.instance)
        await taker.commands.release(table.name, held.lease)
        held = await taker.commands.claim(table.name, taker.instance)
        self.holders.add(held.lease.partition(":")[2])

    def shards(self, table: Table) -> list[str]:
        return self._streams.shards(self._prefix + table.name)


@pytest.mark.proof
@TRANSPORTS
async def test_clients_go_on_at_any_gateway_while_shards_end_and_others_read_them(
    gateways: list[Served], streams: SplitStream, transport: type[ResumingClient]
) -> None:
    """Their events add up to the content of the tables: no gap, and nothing twice."""
    matches = [f"m{number}" for number in range(4)]
    await register_at_version_1(gateways[0], *matches)
    unrest, over = Unrest(streams, gateways), asyncio.Event()
    quakes, scores = transport(gateways[0].http, QUAKES, {}), transport(gateways[0].http, SCORES, {})
    received, versions = list[str](), {match: list[int]() for match in matches}

    async def write(number: int) -> None:
        await put_raw(gateways[0], f"q{number}")
        await advance(gateways[0], matches[number % 4])
        if number % 3 == 2 and number < MOST_UNREST:
            await unrest.rise()

    def take_quake(payload: Any) -> None:
        if not payload.get("begun"):
            received.append(payload["data"]["earthquakeDetected"]["eventId"])

    def take_scores(payload: Any) -> None:
        if payload.get("begun"):
            return
        assert "resync" not in payload["extensions"]
        for update in payload["data"]["liveScores"]["updates"]:
            versions[update["matchId"]].append(update["version"])

    async with quakes.connected(gateways[0].url) as events:
        assert await anext(events) == {"begun": True}
    urls = [served.url for served in gateways]
    writing = asyncio.create_task(write_until(over, write))
    await asyncio.gather(
        cut_at_random(quakes, urls, lambda: True, take_quake), cut_at_random(scores, urls, lambda: True, take_scores)
    )
    async with asyncio.timeout(50):
        while len(unrest.holders) < 2:  # noqa: ASYNC110 - who reads is chance
            await asyncio.sleep(0.01)
    over.set()
    await writing
    stored = {event["eventId"]["S"] for event in await scan(gateways[0], "EVENT")}
    latest = {match: (await active_match_state(gateways[0], match)).version for match in matches}
    async with quakes.connected(urls[1]) as events, asyncio.timeout(50):
        while len(received) < len(stored):
            take_quake(await anext(events))
    async with scores.connected(urls[2]) as events, asyncio.timeout(50):
        while {match: had[-1] for match, had in versions.items()} != latest:
            take_scores(await anext(events))

    assert (len(received), set(received)) == (len(stored), stored)
    assert {match: [*range(had[0], latest[match] + 1)] for match, had in versions.items()} == versions
    assert len(received) > CUTS
    assert len(unrest.holders) > 1
    assert min(len(unrest.shards(table)) for table in (EARTHQUAKES, ACTIVE_MATCHES)) > 1
