"""Consumers of a stream: one instance at a time works each shard, and no shard or record is left out."""

import asyncio
import signal
import socket
import sys
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta

import aiohttp
import pytest

from datastore.change_streams.leases import Leases
from datastore.change_streams.shards.shard_reader import ShardCursor, sequence_of, shards_of, stream_of
from datastore.database import Database, StoreOptions
from datastore.dynamodb.client import Client
from datastore.engine.ttl_sweeper import sweep
from datastore.keyspace.feeds.pipeline import CONSUMER_TABLE, FEED_PIPELINE
from datastore.keyspace.feeds.table import FEED
from runtime.container import Gateway
from server.settings import Misconfigured, Settings
from tests.support.consumers import (
    QUICK,
    ConsumerInstance,
    HandlerGate,
    Noting,
    leased,
    leases_of,
    letters_of,
    numbered,
)
from tests.support.fault_proxy import Proxy, lose_answer, plain_error
from tests.support.feed_changes import items_of, put_feed_records, store_of
from tests.support.feed_items import like_item, post_item, user_item
from tests.support.moments import utc_now
from tests.support.ports import free_port
from tests.support.served import SECRET
from tests.support.store_engines import ROOT
from tests.support.until import until

ONE_LIFE = QUICK.lease_seconds


async def only_shard(database: Database) -> tuple[str, str]:
    """Return the stream of the table and the id of its one shard."""
    stream = await stream_of(database.client, FEED.name, database.prefix)
    (shard,) = await shards_of(database.client, stream)
    return stream, shard.id


async def test_changes_of_an_item_are_handled_in_order(database: Database) -> None:
    handler = Noting()
    await put_feed_records(database, *[numbered(number, f"item{number % 3}") for number in range(30)])

    async with ConsumerInstance(database, handler).running():
        await until(lambda: len(handler.seen) == 30)
        await put_feed_records(database, *[numbered(number, f"item{number % 3}") for number in range(30, 60)])
        await until(lambda: len(handler.seen) == 60)

    for item in range(3):
        assert handler.numbers(f"item{item}") == list(range(item, 60, 3))


async def test_one_instance_at_a_time_works_a_shard(database: Database) -> None:
    gate = HandlerGate(is_open=True)
    handlers = [Noting("handler", gate) for _ in range(3)]

    async with AsyncExitStack() as stack:
        for handler in handlers:
            await stack.enter_async_context(ConsumerInstance(database, handler).running())
        for number in range(30):
            await put_feed_records(database, numbered(number))
        await until(lambda: sum(len(handler.seen) for handler in handlers) >= 30)
        await asyncio.sleep(2 * QUICK.renew_seconds)

    assert gate.most == 1
    assert sorted(len(handler.seen) for handler in handlers) == [0, 0, 30]


@pytest.mark.proof
async def test_a_killed_instance_is_replaced_once_its_lease_has_ended(database: Database) -> None:
    first, second = Noting(), Noting()
    dying, successor = ConsumerInstance(database, first), ConsumerInstance(database, second)
    async with dying.running():
        await put_feed_records(database, numbered(1))
        await until(lambda: len(first.seen) == 1)
        await until_checkpoint(database, 1)
        async with successor.running():
            await asyncio.sleep(2 * QUICK.renew_seconds)
            dying.kill()
            await put_feed_records(database, numbered(2))
            await until(lambda: second.numbers() == [2])


async def until_checkpoint(database: Database, handled: int) -> None:
    """Wait until the checkpoint of the one shard is after `handled` records."""
    stream, shard_id = await only_shard(database)
    page = await ShardCursor(database.client, stream, shard_id, None).read()
    expected = sequence_of(page.records[handled - 1])
    await leased(database, lambda leases: shard_id in leases and leases[shard_id].checkpoint == expected)


async def test_a_clean_stop_releases_the_shard_and_the_next_instance_continues_there(database: Database) -> None:
    first, second = Noting(), Noting()
    await put_feed_records(database, numbered(1), numbered(2))
    async with ConsumerInstance(database, first).running():
        await until(lambda: len(first.seen) == 2)
    (lease,) = (await leases_of(database)).values()
    await put_feed_records(database, numbered(3))

    async with ConsumerInstance(database, second).running():
        await until(lambda: len(second.seen) == 1)

    assert (lease.owner, lease.held_until, lease.fence) == (None, None, 1)
    assert second.numbers() == [3]


async def test_a_stop_waits_for_the_batch(database: Database) -> None:
    gate = HandlerGate()
    handler = Noting("handler", gate)
    async with ConsumerInstance(database, handler).running():
        await put_feed_records(database, numbered(1))
        await until(lambda: gate.inside == 1)
        asyncio.get_running_loop().call_later(0.1, gate.opened.set)
    assert (handler.numbers(), gate.left_early) == ([1], 0)
    await until_checkpoint(database, 1)


async def test_a_batch_that_does_not_end_is_abandoned_and_handled_again(database: Database) -> None:
    gate, second = HandlerGate(), Noting()
    async with ConsumerInstance(database, Noting("handler", gate), pace=replace(QUICK, stop_seconds=0.05)).running():
        await put_feed_records(database, numbered(1))
        await until(lambda: gate.inside == 1)
    assert gate.left_early == 1
    async with ConsumerInstance(database, second).running():
        await until(lambda: second.numbers() == [1])


@pytest.mark.proof
async def test_a_lease_is_renewed_during_a_long_batch(database: Database) -> None:
    gate, other = HandlerGate(), Noting()
    handler = Noting("handler", gate)
    await put_feed_records(database, numbered(1))
    async with ConsumerInstance(database, handler).running():
        await until(lambda: gate.inside == 1)
        async with ConsumerInstance(database, other).running():
            await asyncio.sleep(1.5 * ONE_LIFE)
            gate.opened.set()
            await until(lambda: len(handler.seen) == 1)
    assert (other.seen, gate.left_early) == ([], 0)


async def test_an_instance_that_loses_its_lease_stops_at_once_and_writes_no_checkpoint(database: Database) -> None:
    gate = HandlerGate()
    await put_feed_records(database, numbered(1))
    instance = ConsumerInstance(database, Noting("handler", gate))
    async with instance.running():
        await until(lambda: gate.inside == 1)
        stream, shard_id = await only_shard(database)
        seen = (await leases_of(database))[shard_id]
        taken = await Leases(store_of(database), CONSUMER_TABLE, stream, "thief", utc_now(), 60).acquire(shard_id, seen)
        await until(lambda: gate.left_early == 1 and not instance.consumer.working)
        gate.opened.set()
        assert (await leases_of(database))[shard_id] == taken
    assert taken is not None
    assert (taken.owner, taken.fence, taken.checkpoint) == ("thief", 2, None)


@pytest.mark.proof
async def test_an_instance_that_is_cut_off_from_the_store_stops_by_itself(
    database: Database, proxy: Proxy, client: Client
) -> None:
    gate, other = HandlerGate(), Noting()
    await put_feed_records(database, numbered(1))
    async with ConsumerInstance(database, Noting("handler", gate), client=client).running():
        await until(lambda: gate.inside == 1)
        proxy.always = plain_error(503)
        async with ConsumerInstance(database, other).running():
            await until(lambda: other.numbers() == [1])
            assert (gate.inside, gate.left_early) == (0, 1)
        proxy.always = None


@pytest.mark.proof
async def test_no_change_is_lost_in_an_outage(database: Database, proxy: Proxy, client: Client) -> None:
    handler = Noting()
    async with ConsumerInstance(database, handler, client=client).running():
        await put_feed_records(database, numbered(1))
        await until_checkpoint(database, 1)
        proxy.always = plain_error(503)
        asked = len(proxy.seen)
        # A second read shows that the read in progress at the start of the outage has ended.
        await until(lambda: "GetRecords" in proxy.operations()[asked:])
        await put_feed_records(database, *[numbered(number) for number in range(2, 12)])
        await asyncio.sleep(1.2 * ONE_LIFE)
        assert len(handler.seen) == 1
        proxy.always = None
        await until(lambda: len(handler.seen) >= 11)
    assert handler.numbers() == list(range(1, 12))
    assert await letters_of(database) == []


async def test_a_lease_is_renewed_although_the_clock_of_its_holder_stands_still(database: Database) -> None:
    leases = Leases(store_of(database), CONSUMER_TABLE, "stream", "me", utc_now())
    lease = await leases.acquire("shard", None)
    assert lease is not None
    held = await leases.renew(lease)
    assert held is not None
    noted = await leases.checkpoint(held, "5")
    assert noted == (await leases_of(database, "stream"))["shard"]
    assert (lease.held_until or 0) < (held.held_until or 0) < (noted.held_until or 0)


async def test_a_lease_is_acquired_although_the_response_was_lost(
    database: Database, proxy: Proxy, client: Client
) -> None:
    proxy.faults.append(lose_answer)
    leases = await Leases(store_of(database, client), CONSUMER_TABLE, "stream", "me", utc_now()).acquire("shard", None)
    others = await Leases(store_of(database), CONSUMER_TABLE, "stream", "other", utc_now()).acquire("shard", None)
    assert (leases and leases.fence, others) == (1, None)


async def test_a_lease_that_was_renewed_since_it_was_read_is_not_taken(database: Database) -> None:
    mine, other = (Leases(store_of(database), CONSUMER_TABLE, "stream", name, utc_now()) for name in ("me", "other"))
    seen = await mine.acquire("shard", None)
    assert seen is not None
    held = await mine.renew(seen)
    assert await other.acquire("shard", seen) is None
    assert await other.acquire("shard", held) is not None


async def test_a_released_lease_may_be_taken_by_an_instance_that_saw_it_held(database: Database) -> None:
    mine, other = (Leases(store_of(database), CONSUMER_TABLE, "stream", name, utc_now()) for name in ("me", "other"))
    seen = await mine.acquire("shard", None)
    assert seen is not None
    await mine.release(seen)
    assert await other.acquire("shard", seen) is not None


async def test_no_handled_record_is_handled_again_after_a_year(database: Database) -> None:
    first, second = Noting(), Noting()
    await put_feed_records(database, numbered(1))
    async with ConsumerInstance(database, first).running():
        await until_checkpoint(database, 1)

    await sweep(database.client, [FEED_PIPELINE], database.prefix, utc_now() + timedelta(days=366))

    await put_feed_records(database, numbered(2))
    async with ConsumerInstance(database, second).running():
        await until(lambda: len(second.seen) > 0)
    assert second.numbers() == [2]


async def test_a_gateway_with_the_feed_pipeline_handles_changes_and_reports_metrics(
    database: Database, store_options: StoreOptions
) -> None:
    port = free_port()
    settings = Settings(secret=SECRET, poll_interval=0.02, feed_pipeline=True, metrics_port=port)
    async with Gateway(settings, store_options).running() as gateway, aiohttp.ClientSession() as http:
        await put_feed_records(database, user_item("ada"), post := post_item("p1"), like_item(post))
        await liked(database)
        labels = {"table": "feed", "handler": "counters", "outcome": "handled"}
        await until(lambda: gateway.metrics.registry.get_sample_value("stream_records_total", labels) is not None)
        async with http.get(f"http://127.0.0.1:{port}/metrics") as answer:
            output = await answer.text()
    assert 'stream_leases_held{table="feed"} 1.0' in output
    assert 'stream_records_total{handler="counters",outcome="handled",table="feed"}' in output


async def liked(database: Database) -> None:
    """Wait until the one post has its like counted."""
    async with asyncio.timeout(50):
        while not any(item.get("likes") for item in await items_of(database, FEED)):  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.02)


@pytest.mark.proof
async def test_the_pipeline_runs_in_its_own_process_and_stops_cleanly(
    database: Database, store_options: StoreOptions
) -> None:
    store = ("--store", store_options.store, "--prefix", store_options.prefix)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "gateway.py", "pipeline", "feed", *store, cwd=ROOT, stderr=asyncio.subprocess.PIPE
    )
    await put_feed_records(database, user_item("ada"), post := post_item("p1"), like_item(post))
    await liked(database)
    process.send_signal(signal.SIGTERM)
    _, output = await process.communicate()
    assert (process.returncode, b"Stopped." in output) == (0, True)
    (lease,) = (await leases_of(database)).values()
    assert lease.owner is None


async def test_a_taken_port_for_metrics_is_reported(database: Database, store_options: StoreOptions) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        settings = Settings(secret=SECRET, metrics_port=port)
        with pytest.raises(Misconfigured, match=f"127.0.0.1:{port}: Address already in use"):
            async with Gateway(settings, store_options).running():
                pass
