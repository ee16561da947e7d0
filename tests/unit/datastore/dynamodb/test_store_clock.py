"""Hosts whose clock differs from the store's: times follow the store's clock, and no change is missed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import orjson
import pytest
from aiohttp import web

from datastore.change_streams.change_feed import ChangeFeed
from datastore.change_streams.replay.resume_token import decode
from datastore.database import Database
from datastore.dynamodb.client import Client
from datastore.dynamodb.store_clock import StoreClock
from datastore.keyspace.sightings import BLIP
from tests.support.bus_hosts import Hosts, reads_settle, take_numbers
from tests.support.changes import number_of
from tests.support.consumers import ConsumerInstance, HandlerGate, Noting, stream_record
from tests.support.fault_proxy import Fault, Proxy, Seen, client_of
from tests.support.redis_server import RedisServer, redis
from tests.support.refused_signatures import clock_off_by
from tests.support.resume_splits import TABLE, SplitFeeds, Splitting
from tests.support.scripted_stream import Script, Shard
from tests.support.until import until

__all__ = ["redis"]

NEAR = timedelta(seconds=3)


@pytest.fixture(params=[timedelta(minutes=-10), timedelta(minutes=10)], ids=["clock ahead", "clock behind"])
def ahead(request: pytest.FixtureRequest) -> timedelta:
    """Return the time by which the store's clock is ahead of this machine's."""
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


def dated(moment: datetime) -> bytes:
    return format_datetime(moment, usegmt=True).encode()


# --- The clock --------------------------------------------------------------------------------------------------------


@dataclass
class Times:
    """The clocks of this machine."""

    wall: float = 1_800_000_000.0
    passed: float = field(default=100.0)

    def pass_(self, seconds: float) -> None:
        self.wall += seconds
        self.passed += seconds


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Times:
    times = Times()
    monkeypatch.setattr("datastore.dynamodb.store_clock.time.time", lambda: times.wall)
    monkeypatch.setattr("datastore.dynamodb.store_clock.time.monotonic", lambda: times.passed)
    return times


def test_the_time_is_that_of_the_responses(times: Times) -> None:
    clock, store = StoreClock(), datetime(2026, 6, 25, 12, tzinfo=UTC)
    assert (clock.now().timestamp(), clock.skew) == (times.wall, 0)
    clock.observe(dated(store))
    times.pass_(40)
    assert clock.now() == store + timedelta(seconds=40)
    assert clock.skew == store.timestamp() + 40 - times.wall


def test_setting_the_clock_of_the_machine_changes_nothing(times: Times) -> None:
    clock, store = StoreClock(), datetime(2026, 6, 25, 12, tzinfo=UTC)
    clock.observe(dated(store))
    times.wall += 3600
    assert clock.now() == store


def test_one_response_a_second_is_used(times: Times) -> None:
    clock, store = StoreClock(), datetime(2026, 6, 25, 12, tzinfo=UTC)
    clock.observe(dated(store))
    clock.observe(dated(store + timedelta(hours=1)))
    assert clock.now() == store
    clock.observe(dated(store + timedelta(hours=1)), at_once=True)
    assert clock.now() == store + timedelta(hours=1)
    times.pass_(1)
    clock.observe(dated(store))
    assert clock.now() == store


@pytest.mark.parametrize("date", [None, b"", b"yesterday", b"Wed, 99 Nov 2026 00:00:00 GMT"])
def test_a_malformed_date_is_ignored(times: Times, date: bytes | None) -> None:
    clock = StoreClock()
    clock.observe(date)
    assert clock.skew == 0


def test_the_clock_of_the_machine_is_used_until_the_store_has_answered(times: Times) -> None:
    tables = StoreClock()
    bucket = StoreClock(tables)
    tables.observe(dated(datetime.fromtimestamp(times.wall + 600, UTC)))
    assert bucket.skew == 600
    bucket.observe(dated(datetime.fromtimestamp(times.wall, UTC)))
    assert bucket.skew == 0


async def test_the_client_learns_the_time_of_the_store_from_responses_and_refusals(
    client: Client, proxy: Proxy, ahead: timedelta
) -> None:
    assert client.now() - datetime.now(UTC) < NEAR
    proxy.always = clock_off_by(ahead)
    await client.call("ListTables", {"Limit": 1})
    assert abs(client.now() - datetime.now(UTC) - ahead) < NEAR


async def test_responses_give_the_time_of_a_store_that_accepts_any_clock(
    client: Client, proxy: Proxy, ahead: timedelta
) -> None:
    proxy.always = store_at(ahead)
    await client.call("ListTables", {"Limit": 1})
    assert abs(client.now() - datetime.now(UTC) - ahead) < NEAR
    assert proxy.operations() == ["ListTables"]


# --- Changes ----------------------------------------------------------------------------------------------------------


async def test_a_client_that_resumes_at_another_process_misses_nothing(stack: AsyncExitStack, ahead: timedelta) -> None:
    script = Splitting(2)
    script.ahead = ahead
    client = SplitFeeds(script, stack)
    old = script.write("s1", "k1", age=timedelta(minutes=20))
    async with client.following(client.feed()) as events:
        script.put("k0")
        await anext(events)
        client.place = decode(events.token.encode())
    numbers = [script.put("k1"), script.put("k0")]
    await client.read(client.feed(), 2)
    assert sorted(client.numbers) == numbers
    assert old not in client.numbers


async def test_no_change_is_missed_when_the_iterator_of_an_idle_shard_expires(
    stack: AsyncExitStack, ahead: timedelta
) -> None:
    script = Splitting()
    script.ahead = ahead
    script.write("s0", "k0", age=timedelta(minutes=20))
    async with SplitFeeds(script, stack).feed(poll_interval=0.01).follow(TABLE, lambda change: change) as events:
        await until(lambda: script.calls.count("GetRecords") > 1)
        script.generation += 1
        number = script.put("k0")
        async with asyncio.timeout(50):
            assert number_of(await anext(events)) == number


async def test_a_shard_without_records_beyond_the_retention_is_too_old_by_the_store_s_clock(
    stack: AsyncExitStack,
) -> None:
    script = Splitting(2)
    client = SplitFeeds(script, stack)
    async with client.following(client.feed()) as events:
        script.put("k0")
        await anext(events)
        client.place = decode(events.token.encode())
    script.ahead = timedelta(hours=25)
    async with client.following(client.feed()) as events:
        assert events.is_too_old


async def test_a_process_that_leaves_a_bus_without_a_record_of_a_shard_misses_nothing(
    stack: AsyncExitStack, redis: RedisServer, ahead: timedelta
) -> None:
    """A process that joins the bus knows that the iterator of an idle shard is valid, so at most 15 minutes old."""
    script = Script(a=Shard(), b=Shard())
    script.ahead = 3 * ahead  # longer than an iterator is valid
    hosts = Hosts(script, "t__", redis, stack)
    first, second = hosts.process(), hosts.process()
    await hosts.follow(first)
    await reads_settle(first)
    async with second.feed.follow(BLIP, number_of) as events:
        await reads_settle(first, second)
        number = script.write("a", "x")
        assert await take_numbers(events, 1) == [number]
        place = decode(events.token.encode())
    last = script.write("b", "y")
    feed = ChangeFeed(script, poll_interval=0.001, discover_interval=0.02, linger=0, empty_seconds=0)
    stack.push_async_callback(feed.aclose)
    async with feed.follow(BLIP, number_of, after=place) as events, asyncio.timeout(50):
        assert await anext(events) == last


# --- A store whose clock differs --------------------------------------------------------------------------------------


def store_at(ahead: timedelta) -> Fault:
    """Return a fault that moves the Date of responses and the times of records ahead."""

    async def answer(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        status, _, content = await proxy.ask(seen)
        body_out: dict[str, Any] = orjson.loads(content)
        for record in body_out.get("Records", ()):
            record["dynamodb"]["ApproximateCreationDateTime"] += ahead.total_seconds()
        date = format_datetime(datetime.now(UTC) + ahead, usegmt=True)
        return web.Response(status=status, headers={"Date": date}, body=orjson.dumps(body_out))

    return answer


async def test_a_feed_of_the_client_misses_nothing(database: Database, proxy: Proxy, ahead: timedelta) -> None:
    proxy.always = store_at(ahead)
    async with client_of(proxy) as client, AsyncExitStack() as stack:

        def feed() -> ChangeFeed:
            opened = ChangeFeed(client, prefix=database.prefix, poll_interval=0.01, linger=0, empty_seconds=0)
            stack.push_async_callback(opened.aclose)
            return opened

        async def write(number: int) -> None:
            item = {"PK": {"S": f"k{number}"}, "SK": {"S": "x"}, "n": {"N": str(number)}}
            await client.call("PutItem", {"TableName": database.prefix + BLIP.name, "Item": item})

        async with feed().follow(BLIP, number_of) as events:
            place = decode(events.token.encode())  # of an idle shard
        await write(1)
        async with feed().follow(BLIP, number_of, after=place) as events, asyncio.timeout(50):
            assert not events.is_too_old
            assert await anext(events) == 1


async def test_a_pipeline_that_is_up_to_date_is_not_behind_by_its_clock(database: Database, ahead: timedelta) -> None:
    script, labels = Script(a=Shard()), {"table": "feed", "shard": "a"}
    script.ahead = ahead
    record = stream_record(1)
    record["dynamodb"]["ApproximateCreationDateTime"] = (script.now() - timedelta(minutes=3)).timestamp()
    script.shards["a"].records.append(record)
    gate = HandlerGate()
    instance = ConsumerInstance(database, Noting("gated", gate), wire=script)
    async with instance.running():
        await until(lambda: gate.inside == 1)
        behind = instance.metric("stream_lag_seconds", **labels)
        gate.opened.set()
        await until(lambda: instance.metric("stream_lag_seconds", **labels) == 0)
    assert behind is not None
    assert 180 <= behind < 200
