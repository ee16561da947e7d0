"""The bound of MiniStack's streams in memory, and subscribers whose position the engine has trimmed."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from datastore.change_streams.shards.shard_reader import ShardCursor, Trimmed, shards_of, stream_of
from datastore.database import Database, StoreOptions, open_database
from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.keyspace.feeds.table import FEED
from datastore.keyspace.sightings import BLIP
from datastore.model.access_patterns import Table
from datastore.model.timestamps import day_bucket, epoch_ms
from tests.support import store_engines
from tests.support.consumers import ConsumerInstance, Noting
from tests.support.fault_proxy import Proxy, Seen, forward
from tests.support.ports import free_port
from tests.support.resuming_clients import SocketClient
from tests.support.served import NOON, Served, Tidied, listening
from tests.support.store_engines import ENGINES, MINISTACK, create_tables, new_prefix, running_engine
from tests.support.until import until

NEEDS = "MiniStack is not installed: make .venv-ministack/.ready"
pytestmark = pytest.mark.skipif(not MINISTACK.exists(), reason=NEEDS)
QUAKES = "subscription { earthquakeDetected { eventId } }"
UNAVAILABLE = {"code": "UNAVAILABLE", "retryable": True}
STREAM_BYTES = 2**24
ITEM_BYTES = 350_000
TOO_MANY = STREAM_BYTES // ITEM_BYTES + 12  # the number of items of that size that exceeds the bound of a stream


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    monkeypatch.setattr(store_engines, "ENGINE", ENGINES["ministack"])
    with running_engine(tmp_path / "database") as url:
        yield url


@pytest.fixture
def store_options(engine: str) -> StoreOptions:
    return StoreOptions(store=engine, prefix=new_prefix())


@asynccontextmanager
async def another(served: Served, store_options: StoreOptions) -> AsyncIterator[str]:
    """Yield the URL of another gateway on the same store that has not read the streams."""
    settings = replace(served.gateway.settings, port=free_port())
    gateway = Tidied(settings, store_options, now=served.clock)
    async with gateway.running(), listening(gateway):
        yield settings.url


async def put_earthquake_item(database: Database, event_id: str, place: str = "") -> None:
    moment, day = {"N": str(epoch_ms(NOON))}, day_bucket(NOON)
    texts = {
        "pk": f"EVENT#{event_id}",
        "sk": "EVENT",
        "entity": "EVENT",
        "eventId": event_id,
        "place": place,
        "dayBucket": day,
        "gsi1pk": f"DAY#{day}",
        "source": "USGS",
    }
    numbers = {"mag": "4.5", "lat": "33.25", "lon": "-116.5", "depth": "9.75"}
    item: dict[str, Any] = {name: {"S": text} for name, text in texts.items()}
    item |= {name: {"N": number} for name, number in numbers.items()}
    item |= {"eventTsMs": moment, "gsi1sk": moment, "ingestedAt": moment}
    await database.client.call("PutItem", {"TableName": database.prefix + EARTHQUAKES.name, "Item": item})


async def put_post(database: Database, number: int, text: str) -> None:
    item = {"PK": {"S": "POST#1"}, "SK": {"S": "META"}, "n": {"N": str(number)}, "text": {"S": text}}
    await database.client.call("PutItem", {"TableName": database.prefix + FEED.name, "Item": item})


async def fill_stream(database: Database) -> None:
    """Write more changes of earthquakes than a stream keeps."""
    for number in range(TOO_MANY):
        await put_earthquake_item(database, f"large{number}", "x" * ITEM_BYTES)


async def cursor(database: Database, table: Table, last: str | None = None) -> ShardCursor:
    stream = await stream_of(database.client, table.name, database.prefix)
    (shard,) = await shards_of(database.client, stream)
    return ShardCursor(database.client, stream, shard.id, last)


async def every_record(cursor: ShardCursor) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while records := (await cursor.read()).records:
        found += records
    return found


async def test_a_stream_keeps_its_latest_changes_within_a_bound(store_options: StoreOptions) -> None:
    async with open_database(store_options) as database:
        await create_tables(database)
        item = {"PK": {"S": "AREA#Downtown"}, "SK": {"S": "WATCH#1"}}
        await database.client.call("PutItem", {"TableName": database.prefix + BLIP.name, "Item": item})
        await put_earthquake_item(database, "first")
        begun = await cursor(database, EARTHQUAKES)
        (first,) = (await begun.read()).records
        await fill_stream(database)
        kept = await every_record(await cursor(database, EARTHQUAKES))
        size = sum(len(json.dumps(record)) for record in kept)
        assert STREAM_BYTES - 2 * ITEM_BYTES < size <= STREAM_BYTES
        newest = [f"EVENT#large{number}" for number in range(TOO_MANY - len(kept), TOO_MANY)]
        assert [record["dynamodb"]["Keys"]["pk"]["S"] for record in kept] == newest
        with pytest.raises(Trimmed):
            await begun.read()  # so that it has an iterator
        with pytest.raises(Trimmed):
            await (await cursor(database, EARTHQUAKES, first["dynamodb"]["SequenceNumber"])).read()
        last = kept[-1]["dynamodb"]["SequenceNumber"]
        assert (await (await cursor(database, EARTHQUAKES, last)).read()).records == []
        assert len((await (await cursor(database, BLIP)).read()).records) == 1  # the bound applies to each stream alone


async def test_a_stream_of_a_table_that_is_created_again_has_the_whole_bound(store_options: StoreOptions) -> None:
    async with open_database(store_options) as database:
        await create_tables(database)
        await fill_stream(database)
        await database.client.call("DeleteTable", {"TableName": database.prefix + EARTHQUAKES.name}, timeout=60.0)
        await create_tables(database)
        for number in range(40):
            await put_earthquake_item(database, f"q{number}", "x" * ITEM_BYTES)
        assert len(await every_record(await cursor(database, EARTHQUAKES))) == 40


@pytest.mark.proof
async def test_a_subscriber_whose_position_was_trimmed_gets_a_resync(
    served: Served, store_options: StoreOptions
) -> None:
    database = served.gateway.database
    assert database is not None
    client = SocketClient(served.http, QUAKES, {})
    async with client.connected(served.url) as events:
        assert await anext(events) == {"begun": True}
        await put_earthquake_item(database, "q1")
        assert (await anext(events))["data"] == {"earthquakeDetected": {"eventId": "q1"}}
    await put_earthquake_item(database, "q2")
    async with another(served, store_options) as url, client.connected(url) as events:
        assert (await anext(events))["data"] == {"earthquakeDetected": {"eventId": "q2"}}
    await fill_stream(database)
    async with another(served, store_options) as url, client.connected(url) as events:
        answer = await anext(events)
        assert [error["extensions"]["code"] for error in answer["errors"]] == ["RESYNC"]
        await put_earthquake_item(database, "q3")
        assert (await anext(events))["data"] == {"earthquakeDetected": {"eventId": "q3"}}


class Hold:
    """A fault that holds reads of streams until they are released, and forwards all other calls."""

    def __init__(self) -> None:
        self.waiting = asyncio.Event()
        self.released = asyncio.Event()

    async def __call__(self, proxy: Proxy, seen: Seen) -> web.StreamResponse:
        if seen.operation == "GetRecords":
            self.waiting.set()
            await self.released.wait()
        return await forward(proxy, seen)


@pytest.mark.parametrize("had", [0, 1])
async def test_a_subscriber_left_behind_the_bound_has_to_subscribe_again(
    served: Served, store_options: StoreOptions, had: int
) -> None:
    """This includes a subscription without an event: its reader has only an iterator, which precedes the stream."""
    database = served.gateway.database
    assert database is not None
    client, hold = SocketClient(served.http, QUAKES, {}), Hold()
    async with (
        Proxy(store_options.store) as proxy,
        another(served, replace(store_options, store=proxy.url)) as url,
        client.connected(url) as events,
    ):
        assert await anext(events) == {"begun": True}
        for number in range(had):
            await put_earthquake_item(database, f"q{number}")
            assert (await anext(events))["data"] == {"earthquakeDetected": {"eventId": f"q{number}"}}
        proxy.always = hold
        await hold.waiting.wait()
        await fill_stream(database)
        hold.released.set()
        answer = await anext(events)
        assert [error["extensions"] for error in answer.get("payload", ())] == [UNAVAILABLE], answer


@pytest.mark.proof
async def test_a_pipeline_left_behind_the_bound_counts_a_loss_and_goes_on(store_options: StoreOptions) -> None:
    async with open_database(store_options) as database:
        await create_tables(database)
        handler = Noting()
        async with ConsumerInstance(database, handler).running():
            await put_post(database, 0, "")
            await until(lambda: handler.numbers() == [0])
        for number in range(1, TOO_MANY):
            await put_post(database, number, "x" * (ITEM_BYTES // 2))  # a change also contains the previous item
        kept = await every_record(await cursor(database, FEED))
        numbers = [int(record["dynamodb"]["NewImage"]["n"]["N"]) for record in kept]
        instance = ConsumerInstance(database, handler)
        async with instance.running():
            await until(lambda: handler.numbers() == [0, *numbers])
            assert instance.metric("stream_lost_total", table=FEED.name) == 1
        assert numbers[0] > 1
