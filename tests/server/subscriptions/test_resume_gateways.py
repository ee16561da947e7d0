"""Clients that resume at another gateway, without a bus, while the shards of the streams are split."""

import asyncio
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from datastore.database import StoreOptions, open_database
from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.keyspace.matches.active_matches import ACTIVE_MATCHES
from tests.support.earthquake_samples import put_raw
from tests.support.fault_proxy import Proxy
from tests.support.match_updates import advance, register_at_version_1
from tests.support.resume import CUTS, MATCH, QUAKES, TRANSPORTS, cut_at_random, write_until
from tests.support.resume import other as other
from tests.support.resuming_clients import ResumingClient
from tests.support.served import Served
from tests.support.split_stream import SplitStream
from tests.support.store_engines import Engines

SPLITS = 12


@pytest.fixture
async def streams(engine: str, engines: Engines, proxy: Proxy) -> AsyncIterator[SplitStream]:
    async with open_database(StoreOptions(store=engine, prefix=engines.prefix)) as database:
        streams = SplitStream(database.client)
        proxy.always = streams.answer
        yield streams


@pytest.fixture
def store_options(engines: Engines, streams: SplitStream, proxy: Proxy) -> StoreOptions:
    """The engine behind a proxy whose streams have several shards."""
    return StoreOptions(store=proxy.url, prefix=engines.prefix)


@pytest.fixture
def split(served: Served, streams: SplitStream) -> Any:
    """Return a function that splits a shard of a table's stream."""
    rng = random.Random(5)
    database = served.gateway.database
    assert database is not None
    prefix = database.prefix

    async def split(table: Any) -> None:
        await streams.split(prefix + table.name, rng)

    return split


@TRANSPORTS
async def test_each_earthquake_arrives_once_while_shards_are_split(
    served: Served, other: Served, streams: SplitStream, split: Any, transport: type[ResumingClient]
) -> None:
    over, had = asyncio.Event(), list[str]()
    client = transport(served.http, QUAKES, {})
    async with client.connected(served.url) as events:
        assert await anext(events) == {"begun": True}
        await put_raw(served, "q0")
        had.append((await anext(events))["data"]["earthquakeDetected"]["eventId"])

    def take(payload: Any) -> None:
        if not payload.get("begun"):
            had.append(payload["data"]["earthquakeDetected"]["eventId"])

    async def write(number: int) -> None:
        await put_raw(served, f"q{number + 1}")
        if number % 5 == 4 and number < 5 * SPLITS:
            await split(EARTHQUAKES)

    writing = asyncio.create_task(write_until(over, write))
    await cut_at_random(client, [served.url, other.url], lambda: True, take)
    over.set()
    expected = {f"q{number}" for number in range(await writing + 1)}
    async with client.connected(other.url) as events, asyncio.timeout(50):
        while len(had) < len(expected):
            take(await anext(events))
    assert (len(had), set(had)) == (len(expected), expected)
    assert len(had) > CUTS
    assert len(streams.shards(served.gateway.database.prefix + EARTHQUAKES.name)) > 3  # type: ignore[union-attr]


@pytest.mark.proof
@TRANSPORTS
async def test_versions_are_contiguous_while_shards_are_split(
    served: Served, other: Served, split: Any, transport: type[ResumingClient]
) -> None:
    await register_at_version_1(served, "m1")
    over, versions, written = asyncio.Event(), list[int](), [1]
    client = transport(served.http, MATCH, {})

    def take(payload: Any) -> None:
        if payload.get("begun"):
            return
        assert "resync" not in payload["extensions"], payload
        versions.append(payload["data"]["matchUpdates"]["version"])

    async def write(number: int) -> None:
        written[0] = (await advance(served)).version
        if number % 5 == 4 and number < 5 * SPLITS:
            await split(ACTIVE_MATCHES)

    async with client.connected(served.url) as events:
        take(await anext(events))
        await advance(served)
        take(await anext(events))
    writing = asyncio.create_task(write_until(over, write))
    await cut_at_random(client, [served.url, other.url], lambda: True, take)
    over.set()
    await writing
    async with client.connected(other.url) as events, asyncio.timeout(50):
        while versions[-1] < written[0]:
            take(await anext(events))
    assert versions == [*range(versions[0], versions[0] + len(versions))]
    assert len(versions) > CUTS
