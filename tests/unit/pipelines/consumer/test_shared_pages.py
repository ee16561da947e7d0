"""Two consumers of a stream in one process read each shard once, at positions of their own."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, cast

import pytest

from datastore.change_streams.change import Change
from datastore.change_streams.shards.shard_reader import ShardCursor, Wire, stream_of
from datastore.database import Database
from datastore.errors import Unavailable
from datastore.keyspace.feeds.table import FEED
from pipelines.consumer.consumer import Consumer, Instance
from pipelines.consumer.metrics import StreamMetrics
from pipelines.consumer.shared_pages import MAX_RECORDS, FollowingCursor, LeadingCursor, SharedPages, SharedShard
from runtime.jobs import Background
from tests.support.consumers import (
    AT_ONCE,
    QUICK,
    ConsumerInstance,
    HandlerGate,
    Noting,
    leased,
    leases_of,
    numbered,
    stream_record,
)
from tests.support.feed_changes import put_feed_records, store_of
from tests.support.moments import utc_now
from tests.support.scripted_stream import Script, Shard
from tests.support.served import Served
from tests.support.until import until

GROUP = "following"


class CountingWire:
    """A wire that counts its GetRecords calls."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.reads = 0

    async def call(self, operation: str, payload: dict[str, Any], /, *, timeout: float) -> dict[str, Any]:  # noqa: ASYNC109
        self.reads += operation == "GetRecords"
        return await self._wire.call(operation, payload, timeout=timeout)

    def now(self) -> datetime:
        return self._wire.now()


class Follower:
    """The following consumer of an instance. It runs in the context of `running`."""

    def __init__(
        self,
        database: Database,
        leader: ConsumerInstance,
        handler: Noting,
        name: str = "follower",
        *,
        page_timeout: float = 60.0,
        wire: Wire | None = None,
    ) -> None:
        self.wire = CountingWire(wire or database.client)
        self.handler = handler

        def store() -> Any:
            return store_of(database)

        self.consumer = Consumer(
            Instance(self.wire, database.prefix, store, name, utc_now),
            FEED,
            [handler],
            StreamMetrics(),
            group=GROUP,
            leader=leader.consumer,
            pace=replace(QUICK, follow_seconds=page_timeout),
            retries=AT_ONCE,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Follower"]:
        task = asyncio.create_task(self.consumer.run())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.wait([task])


async def reader_group(database: Database) -> str:
    return f"{await stream_of(database.client, FEED.name, database.prefix)} {GROUP}"


async def test_a_shard_is_read_once_for_both(database: Database) -> None:
    first, second = Noting(), Noting()
    leader = ConsumerInstance(database, first)
    follower = Follower(database, leader, second)
    async with leader.running(), follower.running():
        await put_feed_records(database, numbered(0))
        await until(lambda: second.numbers() == [0])
        (shard,) = follower.consumer.working
        stream = await stream_of(database.client, FEED.name, database.prefix)
        # The follower may begin first, and has then read the first record itself.
        await until(lambda: (shared := leader.consumer.pages.get(stream, shard)) is not None and shared.at_end)
        await put_feed_records(database, numbered(1))
        await until(lambda: second.numbers() == [0, 1])
        before = follower.wire.reads
        for number in range(2, 30):
            await put_feed_records(database, numbered(number))
            await until(lambda number=number: second.numbers()[-1:] == [number])  # type: ignore[misc]
        await until(lambda: first.numbers() == list(range(30)))
        assert second.numbers() == list(range(30))
        assert follower.wire.reads == before

    own = await leases_of(database, await reader_group(database))
    assert own.keys() == (await leases_of(database)).keys()
    assert all(lease.checkpoint for lease in own.values())


async def test_a_follower_whose_handler_is_unavailable_delays_no_leader_and_catches_up(database: Database) -> None:
    away = True

    async def fail(_: Sequence[Change]) -> None:
        if away:
            raise Unavailable("The search host is away.")

    first, second = Noting(), Noting(before=fail)
    leader = ConsumerInstance(database, first)
    follower = Follower(database, leader, second)
    async with leader.running(), follower.running():
        await put_feed_records(database, *[numbered(number) for number in range(40)])
        await until(lambda: first.numbers() == list(range(40)))
        await until(lambda: second.calls > 2)
        assert second.seen == []
        away = False
        await until(lambda: second.numbers() == list(range(40)))


async def test_a_delayed_leader_delays_no_follower(database: Database) -> None:
    gate = HandlerGate()
    first, second = Noting(before=gate), Noting()
    leader = ConsumerInstance(database, first)
    follower = Follower(database, leader, second, page_timeout=0.05)
    async with leader.running(), follower.running():
        await put_feed_records(database, numbered(0))
        await until(lambda: gate.inside == 1)
        await put_feed_records(database, *[numbered(number) for number in range(1, 5)])
        await until(lambda: second.numbers() == list(range(5)))
        assert first.seen == []
        gate.opened.set()
        await until(lambda: first.numbers() == list(range(5)))
        await put_feed_records(database, numbered(5))
        await until(lambda: second.numbers() == list(range(6)))  # each once


async def test_the_follower_itself_reads_earlier_records(database: Database) -> None:
    first, second = Noting(), Noting()
    leader = ConsumerInstance(database, first)
    async with leader.running():
        await put_feed_records(database, *[numbered(number) for number in range(5)])
        await until(lambda: first.numbers() == list(range(5)))
        async with (follower := Follower(database, leader, second)).running():
            await until(lambda: second.numbers() == list(range(5)))
            assert follower.wire.reads >= 1


async def test_a_follower_works_where_the_leaders_group_reads(database: Database) -> None:
    """The leader of another process reads the shard, then the leader of this process."""
    group = await reader_group(database)
    here, elsewhere = Noting(), Noting()
    first, second = ConsumerInstance(database, Noting(), name="one"), ConsumerInstance(database, Noting(), name="two")
    async with second.running(), first.running():
        await until(lambda: bool(first.consumer.working or second.consumer.working))
        reading, other = (first, second) if first.consumer.working else (second, first)
        await until(lambda: bool(other.consumer.elsewhere))
        idle = Follower(database, other, elsewhere, "there")
        async with idle.running(), Follower(database, reading, here, "here").running():
            await put_feed_records(database, numbered(0))
            await until(lambda: here.numbers() == [0])
            assert not idle.consumer.working
            await leased(database, lambda leases: [one.owner for one in leases.values()] == ["here"], group)


@pytest.mark.proof
async def test_a_follower_releases_a_shard_that_its_leader_loses(database: Database) -> None:
    handler = Noting()
    first, second = ConsumerInstance(database, Noting(), name="one"), ConsumerInstance(database, Noting(), name="two")
    async with first.running():
        await until(lambda: bool(first.consumer.working))
        async with Follower(database, first, handler, "of one").running() as follower:
            await until(lambda: bool(follower.consumer.working))
            async with second.running():
                first.kill()  # its lease expires without its notice
                first.consumer.elsewhere = frozenset(follower.consumer.working)  # as it would observe
                await until(lambda: not follower.consumer.working)
                await until(lambda: bool(second.consumer.working))
                async with Follower(database, second, handler, "of two").running():
                    await put_feed_records(database, numbered(7))
                    await until(lambda: handler.numbers() == [7])


async def test_a_follower_that_was_away_while_shards_split_gets_all_in_order(database: Database) -> None:
    """The leaders of two processes are through with all shards before the followers handle the first record."""
    script = Script(root=Shard(), a=Shard("root"), b=Shard("root"), c=Shard("a"))
    numbers = {"root": range(5), "a": range(5, 10), "b": range(20, 25), "c": range(10, 15)}
    for shard, written in numbers.items():
        script.shards[shard].records += [stream_record(number, shard) for number in written]
    script.shards["root"].closed = script.shards["a"].closed = True
    away = True
    order: list[int] = []

    async def handle(changes: Sequence[Change]) -> None:
        if away:
            raise Unavailable("The search host is away.")
        order.extend(change.new["n"] for change in changes if change.new is not None)

    led = Noting()
    leaders = [ConsumerInstance(database, led, wire=script, name=name) for name in ("one", "two")]
    followers = [
        Follower(database, leader, Noting(before=handle), f"of {leader.name}", page_timeout=0.05, wire=script)
        for leader in leaders
    ]
    async with AsyncExitStack() as stack:
        for leader in leaders:
            await stack.enter_async_context(leader.running())
        for follower in followers:
            await stack.enter_async_context(follower.running())
        await until(lambda: len(set(led.numbers())) == 20)
        assert order == []
        away = False
        await until(lambda: len(set(order)) == 20)
        script.shards["b"].records.append(stream_record(25, "b"))
        script.shards["c"].records.append(stream_record(15, "c"))
        await until(lambda: {15, 25} <= set(order) & set(led.numbers()))

    for parent, child in (("root", "a"), ("root", "b"), ("a", "c")):
        assert max(order.index(number) for number in numbers[parent]) < order.index(numbers[child][0])
    for written in numbers.values():
        assert list(dict.fromkeys(number for number in order if number in written)) == list(written)


async def test_the_search_index_of_a_gateway_follows_its_feed_pipeline(served: Served) -> None:
    served.gateway.settings = replace(served.gateway.settings, feed_pipeline=True)
    background = Background(served.gateway)
    jobs = list(background.jobs())
    pipelines = [job.__self__ for job in jobs if hasattr(job, "__self__")]
    feed, search = [one for one in pipelines if isinstance(one, Consumer)]

    assert feed.leader is None
    assert search.leader is feed
    assert background.search_pipeline().leader is None  # `gateway.py pipeline search`


# Kept pages


def test_no_page_is_kept_without_a_follower() -> None:
    shard = SharedShard("90")
    shard.add([stream_record(number) for number in range(5)])
    assert shard.records_after("90", 10) is None  # the follower has to read these itself
    assert shard.records_after("104", 10) == []
    shard.add([stream_record(number) for number in range(5, 8)])
    assert shard.records_after("104", 2) == [stream_record(5), stream_record(6)]
    assert shard.records_after("106", 10) == [stream_record(7)]
    assert shard.records_after("107", 10) == []
    assert shard.records_after("104", 10) is None


def test_a_follower_that_is_ahead_receives_no_record_twice() -> None:
    shard = SharedShard(None)
    assert shard.records_after("103", 10) == []
    shard.add([stream_record(number) for number in range(3)])
    assert shard.records_after("103", 10) == []
    shard.add([stream_record(number) for number in range(3, 6)])
    assert shard.records_after("103", 10) == [stream_record(4), stream_record(5)]


def test_the_kept_pages_are_bounded() -> None:
    shard = SharedShard(None)
    assert shard.records_after(None, 10) == []
    shard.add([stream_record(number) for number in range(MAX_RECORDS + 1)])
    assert shard.records_after(None, 10) is None
    assert shard.records_after("100", MAX_RECORDS) == [stream_record(number) for number in range(1, MAX_RECORDS + 1)]


@pytest.mark.parametrize("lost", [True, False])
def test_records_without_a_position_are_left_to_the_follower(lost: bool) -> None:
    shard = SharedShard(None)
    assert shard.records_after(None, 10) == []
    if lost:
        shard.add([stream_record(1)])
        shard.reset()
        assert shard.records_after(None, 10) == []
        assert not shard.at_end
    else:
        shard.add([stream_record(1), {"dynamodb": {}}, stream_record(2)])
        assert shard.records_after(None, 10) is None
        assert shard.records_after("102", 10) == []


async def test_shards_of_two_streams_are_distinguished() -> None:
    pages = SharedPages()
    shard = pages.open("a", "s", None)
    assert pages.get("a", "s") is shard
    assert pages.get("b", "s") is None
    pages.close("a", "s")
    assert pages.get("a", "s") is None


class AwayCursor:
    """The cursor of a stream that cannot be read."""

    last = None

    async def read(self, _limit: int) -> Any:
        raise Unavailable("The stream is away.")


async def test_a_follower_at_the_end_notices_that_the_stream_cannot_be_read() -> None:
    """Its lag would stay 0 during an outage otherwise."""
    pages, cursor = SharedPages(), cast(ShardCursor, AwayCursor())
    shard = pages.open("stream", "a", None)
    shard.add([])
    following = FollowingCursor(cursor, pages, "stream", "a", page_timeout=0.0)
    assert (await following.read()).records == []

    with pytest.raises(Unavailable):
        await LeadingCursor(cursor, shard).read()
    with pytest.raises(Unavailable):
        await following.read()
