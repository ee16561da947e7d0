"""Consumers of scripted streams that split, expire and are trimmed, unlike those of the engine. Leases are real."""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from aiohttp import web

from datastore.change_streams.change import Change
from datastore.change_streams.shards.shard_reader import (
    MAX_REFUSALS,
    PositionRefused,
    ShardCursor,
    ShardPage,
    sequence_of,
)
from datastore.database import Database
from datastore.dynamodb.client import Client, RequestRefused
from datastore.errors import Unavailable
from datastore.keyspace.feeds.pipeline import FEED_PIPELINE
from datastore.keyspace.feeds.table import FEED
from pipelines.consumer.shard_worker import ShardWorker
from pipelines.feeds.handlers import feed_handlers
from tests.support.consumer_shards import append_record
from tests.support.consumers import (
    QUICK,
    ConsumerInstance,
    HandlerGate,
    Noting,
    leased,
    leases_of,
    letters_of,
    stream_record,
)
from tests.support.fault_proxy import Proxy, Seen, forward, refuse
from tests.support.feed_changes import items_of, put_feed_records, store_of
from tests.support.feed_items import like_item, post_item, user_item
from tests.support.feed_workload import pipeline_settled
from tests.support.moments import utc_now
from tests.support.scripted_stream import Script, Shard
from tests.support.until import until


@asynccontextmanager
async def running(*instances: ConsumerInstance) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for instance in instances:
            await stack.enter_async_context(instance.running())
        yield


def shares(instances: Sequence[ConsumerInstance]) -> list[int]:
    return sorted(len(instance.consumer.working) for instance in instances)


@pytest.mark.proof
async def test_children_are_read_after_their_parents_by_any_instance(database: Database) -> None:
    """One instance leases both shards first, so another one steals a lease: its records may be handled twice."""
    script = Script(root=Shard(), a=Shard("root"), b=Shard("root"), c=Shard("a"), old=Shard("gone"))
    numbers = {"root": range(5), "a": range(5, 10), "c": range(10, 15), "b": range(20, 25), "old": range(30, 31)}
    for shard, written in numbers.items():
        for number in written:
            append_record(script, shard, number, shard)
    script.shards["root"].closed = script.shards["a"].closed = True
    order: list[int] = []
    stolen = asyncio.Event()

    async def note(changes: Sequence[Change]) -> None:
        await stolen.wait()
        order.extend(change.new["n"] for change in changes if change.new is not None)

    first, *others = [ConsumerInstance(database, Noting("handler", note), wire=script) for _ in range(3)]
    async with first.running():
        await until(lambda: first.consumer.working == {"root", "old"})
        async with running(*others):
            await until(lambda: any(instance.consumer.working for instance in others))
            stolen.set()
            await until(lambda: len(set(order)) == 21)

    handled = {shard: [number for number in order if number in written] for shard, written in numbers.items()}
    assert {shard: list(dict.fromkeys(found)) for shard, found in handled.items()} == {
        shard: list(written) for shard, written in numbers.items()
    }
    for parent, child in (("root", "a"), ("root", "b"), ("a", "c")):
        last_of_parent = max(place for place, number in enumerate(order) if number in numbers[parent])
        assert last_of_parent < order.index(numbers[child][0])
    leases = await leases_of(database, script.arn)
    assert {shard for shard, lease in leases.items() if lease.ended} == {"root", "a"}


async def test_only_leases_of_ended_shards_expire_soon_after_the_stream_forgets_them(database: Database) -> None:
    script = Script(a=Shard(closed=True), b=Shard("a"))
    async with ConsumerInstance(database, Noting(), wire=script).running():
        await leased(database, lambda leases: len(leases) == 2, script.arn)
    found = {item["SK"]: item for item in await items_of(database, FEED_PIPELINE)}
    assert abs(found["a"]["expiresAt"] - (utc_now() + timedelta(hours=26)).timestamp()) < 60
    assert not {"owner", "held_until"} & found["a"].keys()
    assert "expiresAt" not in found["b"]


@pytest.mark.proof
async def test_children_listed_late_are_found(database: Database) -> None:
    script, handler = Script(a=Shard(closed=True)), Noting()
    pace = replace(QUICK, discover_seconds=60)
    async with ConsumerInstance(database, handler, wire=script, pace=pace).running():
        await until(lambda: script.calls.count("DescribeStream") > 1)
        script.shards["b"] = Shard("a")
        append_record(script, "b", 1)
        await until(lambda: handler.numbers() == [1])


@pytest.mark.proof
async def test_three_instances_share_equally_and_the_remaining_ones_take_over(database: Database) -> None:
    script = Script(**{f"s{number}": Shard() for number in range(6)})
    instances = [ConsumerInstance(database, Noting(), wire=script) for _ in range(3)]
    async with AsyncExitStack() as stack:
        for instance in instances[:2]:
            await stack.enter_async_context(instance.running())
        async with instances[2].running():
            await until(lambda: shares(instances) == [2, 2, 2])
        await until(lambda: shares(instances) == [0, 3, 3])
        instances[0].kill()
        await until(lambda: len(instances[1].consumer.working) == 6)


@pytest.mark.proof
async def test_a_lease_is_stolen_from_the_instance_with_most_and_no_record_is_handled_by_two(
    database: Database,
) -> None:
    script = Script(**{f"s{number}": Shard() for number in range(4)})
    at_work: Counter[str] = Counter()
    both: list[str] = []

    async def work(changes: Sequence[Change]) -> None:
        shard = changes[0].keys["PK"]
        at_work[shard] += 1
        if at_work[shard] > 1:
            both.append(shard)
        try:
            await asyncio.sleep(0.05)
        finally:  # also when the batch is cancelled because the lease is lost
            at_work[shard] -= 1

    handlers = [Noting("handler", work) for _ in range(2)]
    first, second = (ConsumerInstance(database, handler, wire=script) for handler in handlers)
    async with first.running():
        await until(lambda: len(first.consumer.working) == 4)
        writing = asyncio.create_task(write_on(script))
        async with second.running():
            await until(lambda: shares([first, second]) == [2, 2])
            await until(lambda: len(handlers[1].seen) > 10)
            writing.cancel()
            written = {made["dynamodb"]["NewImage"]["n"]["N"] for s in script.shards.values() for made in s.records}
            await until(lambda: {str(number) for handler in handlers for number in handler.numbers()} == written)
    assert both == []


async def write_on(script: Script) -> None:
    """Append records to all shards all the time."""
    for number in range(10_000):
        append_record(script, f"s{number % 4}", number, f"s{number % 4}")
        await asyncio.sleep(0.005)


async def test_trimmed_changes_are_reported_and_reading_continues_with_the_oldest(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    script, handler = Script(a=Shard()), Noting()
    append_record(script, "a", 1)
    async with ConsumerInstance(database, handler, wire=script).running():
        await until(lambda: handler.numbers() == [1])
    for number in range(2, 6):
        append_record(script, "a", number)
    script.shards["a"].trimmed = 3
    instance = ConsumerInstance(database, handler, wire=script)

    async with instance.running():
        await until(lambda: handler.numbers() == [1, 4, 5])

    assert instance.metric("stream_lost_total", table="feed") == 1
    assert f"CHANGES OF {database.prefix}feed ARE LOST" in caplog.text


async def test_a_refused_checkpoint_is_reported_and_reading_continues_with_the_oldest(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    script, handler = Script(a=Shard()), Noting()
    append_record(script, "a", 1)
    async with ConsumerInstance(database, handler, wire=script).running():
        await until(lambda: handler.numbers() == [1])
    del script.shards["a"].records[0]  # the script accepts the sequence numbers of its records
    for number in (2, 3):
        append_record(script, "a", number)
    script.calls.clear()
    instance = ConsumerInstance(database, handler, wire=script)

    async with instance.running():
        await until(lambda: handler.numbers() == [1, 2, 3])
        append_record(script, "a", 4)
        await until(lambda: handler.numbers() == [1, 2, 3, 4])

    assert script.calls.count("GetShardIterator") == MAX_REFUSALS + 1
    assert instance.metric("stream_lost_total", table="feed") == 1
    (logged,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "Invalid SequenceNumber 1" in logged.getMessage()
    assert "compare the attribute `checkpoint`" in logged.getMessage()
    leases = await leases_of(database, script.arn)
    assert leases["a"].checkpoint == "104"


INVALID = RequestRefused("ValidationException", "Invalid ShardIterator")
BUSY = RequestRefused("InternalServerError", "busy")


async def test_repeated_refusals_of_iterators_are_a_refused_position(database: Database) -> None:
    script, handler = Script(a=Shard()), Noting()
    append_record(script, "a", 1)
    script.shards["a"].records[0]["dynamodb"]["ApproximateCreationDateTime"] = utc_now().timestamp()
    instance = ConsumerInstance(database, handler, wire=script)
    async with instance.running():
        await until(lambda: handler.numbers() == [1])
        # Replacing the held leases takes a further call.
        script.fail("GetRecords", *[INVALID] * (2 * MAX_REFUSALS))
        await until(lambda: instance.metric("stream_lost_total", table="feed") == 1)
        await until(lambda: handler.numbers() == [1, 1])


@pytest.mark.parametrize("problem", [BUSY, Unavailable("away")], ids=["refused", "away"])
async def test_transient_refusals_lose_nothing(database: Database, problem: Exception) -> None:
    script, handler = Script(a=Shard()), Noting()
    append_record(script, "a", 1)
    async with ConsumerInstance(database, handler, wire=script).running():
        await until(lambda: handler.numbers() == [1])
    script.fail("GetShardIterator", *[INVALID, INVALID, problem] * 3)
    append_record(script, "a", 2)
    instance = ConsumerInstance(database, handler, wire=script)
    async with instance.running():
        await until(lambda: handler.numbers() == [1, 2])
    assert not instance.metric("stream_lost_total", table="feed")


async def test_a_shard_without_a_checkpoint_is_retried_while_iterators_are_refused(database: Database) -> None:
    script, handler = Script(a=Shard()), Noting()
    script.fail("GetShardIterator", *[INVALID] * 3 * MAX_REFUSALS)
    append_record(script, "a", 1)
    instance = ConsumerInstance(database, handler, wire=script)
    async with instance.running():
        await until(lambda: handler.numbers() == [1])
    assert not instance.metric("stream_lost_total", table="feed")


async def test_records_handled_more_than_a_day_ago_are_not_read_again() -> None:
    """An embedded engine keeps records for ever, but the marks of handled changes expire."""
    script = Script(a=Shard())
    old, young, last = (script.write("a", "x", age=timedelta(hours=age)) for age in (25, 23, 0))
    cursor = ShardCursor(script, script.arn, "a", None)
    await cursor.read()
    unread = script.write("a", "x", age=timedelta(hours=25))
    script.fail("GetRecords", *[INVALID] * (2 * MAX_REFUSALS))
    for _ in range(MAX_REFUSALS - 1):
        with pytest.raises(RequestRefused):
            await cursor.read()
    with pytest.raises(PositionRefused):
        await cursor.read()
    page = await cursor.read()
    assert old not in [int(sequence_of(record) or 0) for record in page.records]
    assert [int(sequence_of(record) or 0) for record in page.records] == [young, last, unread]


async def test_counts_stay_exact_when_records_are_repeated(database: Database, proxy: Proxy, client: Client) -> None:
    posts = [post_item(f"p{number}", author="bob") for number in range(3)]
    likes = [like_item(post, user) for post in posts for user in ("ada", "eve")]
    await put_feed_records(database, user_item("bob"), *posts, *likes)

    async def handled(many: int) -> ConsumerInstance:
        last = Noting()
        handlers = [*feed_handlers(lambda: store_of(database), utc_now), last]
        instance = ConsumerInstance(database, *handlers, client=client)
        async with instance.running():
            await until(lambda: len(last.seen) >= many)
            await pipeline_settled(database.client, lambda: store_of(database), database.prefix, 20)
        assert await letters_of(database) == []
        many_handled.append(len(last.seen))
        return instance

    many_handled: list[int] = []
    await handled(len(posts) + len(likes))
    before = await items_of(database, FEED)
    assert [item["likes"] for item in before if item["SK"] == "META" and "likes" in item] == [2, 2, 2]

    async def refuse_positions(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        is_position = seen.operation == "GetShardIterator" and "SequenceNumber" in seen.body
        return await (refuse(400, "ValidationException") if is_position else forward)(proxy, seen)

    proxy.always = refuse_positions
    instance = await handled(many_handled[0])
    assert instance.metric("stream_lost_total", table="feed") == 1
    assert await items_of(database, FEED) == before


async def test_a_listed_shard_that_is_gone_is_skipped_and_its_loss_reported_once(database: Database) -> None:
    script, handler = Script(a=Shard(closed=True), b=Shard("a"), c=Shard()), Noting()
    append_record(script, "b", 1)
    place = script.GetShardIterator

    def refuse(payload: dict[str, Any]) -> dict[str, Any]:
        if payload["ShardId"] != "b":
            raise RequestRefused("ResourceNotFoundException", "gone")
        return place(payload)

    script.GetShardIterator = refuse  # type: ignore[method-assign]
    instance = ConsumerInstance(database, handler, wire=script)
    async with instance.running():
        await until(lambda: handler.numbers() == [1])
        await leased(database, lambda leases: leases["a"].ended and leases["c"].fence > 3, script.arn)
        script.GetShardIterator = place  # type: ignore[method-assign]
        append_record(script, "c", 2)
        await until(lambda: handler.numbers() == [1, 2])

    assert instance.metric("stream_lost_total", table="feed") == 2


async def test_an_expired_iterator_is_replaced(database: Database) -> None:
    script, handler = Script(a=Shard()), Noting()
    async with ConsumerInstance(database, handler, wire=script).running():
        script.generation += 1
        append_record(script, "a", 1)
        await until(lambda: handler.numbers() == [1])
        script.generation += 1
        append_record(script, "a", 2)
        await until(lambda: handler.numbers() == [1, 2])


async def test_repeated_records_are_handled_once(database: Database) -> None:
    script, handler = Script(a=Shard()), Noting()
    for number in (1, 2, 1, 2, 3):
        append_record(script, "a", number)
    async with ConsumerInstance(database, handler, wire=script).running():
        await until(lambda: len(handler.seen) == 3)
    assert handler.numbers() == [1, 2, 3]


async def test_another_stream_is_read_from_its_start(database: Database) -> None:
    script, handler = Script(a=Shard()), Noting()
    append_record(script, "a", 1)
    async with ConsumerInstance(database, handler, wire=script).running():
        await until(lambda: handler.numbers() == [1])
        script.shards = {"z": Shard()}
        append_record(script, "z", 2)
        script.arn = "arn:2"
        await until(lambda: handler.numbers() == [1, 2])
    assert (await leases_of(database, "arn:2")).keys() == {"z"}


async def test_the_lag_grows_while_a_batch_is_held_up(database: Database) -> None:
    gate = HandlerGate()
    handler, labels = Noting("handler", gate), {"table": "feed", "shard": "a"}
    script = Script(a=Shard())
    made = stream_record(1)
    made["dynamodb"]["ApproximateCreationDateTime"] = (utc_now() - timedelta(minutes=2)).timestamp()
    script.shards["a"].records.append(made)
    instance = ConsumerInstance(database, handler, wire=script)
    async with instance.running():
        await until(lambda: gate.inside == 1)
        behind = instance.metric("stream_lag_seconds", **labels)
        gate.opened.set()
        await until(lambda: instance.metric("stream_lag_seconds", **labels) == 0)
        assert instance.metric("stream_leases_held", table="feed") == 1
    assert behind is not None
    assert 120 <= behind < 140
    assert instance.metric("stream_lag_seconds", **labels) is None
    assert instance.metric("stream_leases_held", table="feed") == 0
    assert instance.metric("stream_records_total", table="feed", handler="handler", outcome="handled") == 1


async def test_the_lag_is_reported_while_the_stream_returns_short_and_empty_pages(database: Database) -> None:
    handler, labels = Noting(), {"table": "feed", "shard": "a"}
    script = Script(a=Shard())
    for number in range(60):
        append_record(script, "a", number, f"k{number}")
    whole, pages = script.GetRecords, 0
    lags = []

    def cut(payload: dict[str, Any]) -> dict[str, Any]:
        nonlocal pages
        pages += 1
        if 0 < len(handler.seen) < 60:
            lags.append(instance.metric("stream_lag_seconds", **labels))
        return whole({**payload, "Limit": 2 * (pages % 2)})

    script.GetRecords = cut  # type: ignore[method-assign]
    instance = ConsumerInstance(database, handler, wire=script, pace=replace(QUICK, poll_seconds=0.02))
    async with instance.running():
        await until(lambda: len(handler.seen) == 60)
        await until(lambda: instance.metric("stream_lag_seconds", **labels) == 0)
    assert len(lags) > 10
    assert 0 not in lags


async def test_a_backlog_in_short_pages_is_read_without_the_pauses_of_the_end(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    pause = ShardWorker._pause

    def note(worker: ShardWorker, page: ShardPage) -> float:
        pauses.append(pause(worker, page))
        return 0.001

    monkeypatch.setattr(ShardWorker, "_pause", note)
    handler, script = Noting(), Script(a=Shard())
    for number in range(20):
        append_record(script, "a", number, f"k{number}")
    whole = script.GetRecords
    script.GetRecords = lambda payload: whole({**payload, "Limit": 2})  # type: ignore[method-assign]
    instance = ConsumerInstance(database, handler, wire=script, pace=replace(QUICK, poll_seconds=0.5))
    async with instance.running():
        await until(lambda: len(pauses) > 10)
    assert handler.numbers() == list(range(20))
    assert pauses[:11] == [0.1] * 10 + [0.5]


async def test_a_slow_stream_is_not_polled_more_often(database: Database) -> None:
    handler, script = Noting(), Script(a=Shard())
    instance = ConsumerInstance(database, handler, wire=script, pace=replace(QUICK, poll_seconds=0.1))
    async with instance.running():
        await until(lambda: len(script.read) > 0)
        before, began_at = len(script.read), asyncio.get_running_loop().time()
        for number in range(50):
            fresh = stream_record(number, f"k{number}")
            fresh["dynamodb"]["ApproximateCreationDateTime"] = utc_now().timestamp()
            script.shards["a"].records.append(fresh)
            await asyncio.sleep(0.01)
        took = asyncio.get_running_loop().time() - began_at
        assert len(script.read) - before <= took / 0.1 + 2
