"""DescribeStream calls: the intervals of listings, and the search for the children of an ended shard."""

from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial

import pytest

from datastore.change_streams.shards.listing import LISTING_INTERVALS, MAX_CHILD_LISTINGS, ShardListing
from datastore.change_streams.shards.stream_reader import StreamReader
from datastore.database import Database
from datastore.keyspace.sightings import BLIP
from tests.support.changes import Numbers
from tests.support.consumer_shards import append_record
from tests.support.consumers import QUICK, ConsumerInstance, Noting
from tests.support.scripted_stream import Script, Shard
from tests.support.until import until

# No interval passes in a test, so a reader finds new shards only because a shard has ended.
LATER = 600.0


def reader_of(script: Script, sink: Numbers) -> StreamReader:
    return StreamReader(script, "", 0.001, LATER, lambda *_: None, BLIP, sink)


def _has_received(sink: Numbers, numbers: list[int]) -> bool:
    return set(numbers) <= set(sink.delivered)


async def follow_splits(script: Script, sink: Numbers) -> list[int]:
    """Split a shard in two and one of its children in two, with a record in each shard."""
    reader = reader_of(script, sink)
    await reader.attached()
    script.calls.clear()
    numbers = []
    for parent, children in (("s0", ("a", "b")), ("a", ("c", "d"))):
        script.shards |= {child: Shard(parent) for child in children}
        script.shards[parent].closed = True
        numbers += [script.write(child, "x") for child in children]
        await until(partial(_has_received, sink, numbers))
    await reader.stop()
    return numbers


def twenty_shards() -> Script:
    """Return a stream of 20 shards whose listing has two shards a page."""
    return Script(**{f"s{number}": Shard() for number in range(20)})


async def test_one_call_finds_the_children_of_a_shard_that_has_ended() -> None:
    script, sink = twenty_shards(), Numbers()
    numbers = await follow_splits(script, sink)
    assert sorted(sink.delivered) == numbers
    assert (script.asked_children, script.calls.count("DescribeStream")) == (["s0", "a"], 2)


async def test_an_engine_that_refuses_the_filter_has_its_stream_listed() -> None:
    script, sink = twenty_shards(), Numbers()
    script.refuses_filter = True
    numbers = await follow_splits(script, sink)
    assert sorted(sink.delivered) == numbers
    # One refusal each, then listings of 22 and 24 shards, two a page.
    assert (script.asked_children, script.calls.count("DescribeStream")) == (["s0", "a"], 2 + 11 + 12)


class Ignoring(Script):
    """An engine that ignores the filter and lists all shards."""

    def DescribeStream(self, payload: dict[str, object]) -> dict[str, object]:
        return super().DescribeStream({name: value for name, value in payload.items() if name != "ShardFilter"})


async def test_the_listing_is_complete_with_an_engine_that_ignores_the_filter() -> None:
    script, sink = Ignoring(**{f"s{number}": Shard() for number in range(20)}), Numbers()
    numbers = await follow_splits(script, sink)
    assert sorted(sink.delivered) == numbers


async def test_many_shards_that_end_together_take_one_listing() -> None:
    script, sink = twenty_shards(), Numbers()
    script.page = 100
    reader = reader_of(script, sink)
    await reader.attached()
    ended = [f"s{number}" for number in range(MAX_CHILD_LISTINGS + 1)]
    script.shards |= {f"{parent}-child": Shard(parent) for parent in ended}
    numbers = [script.write(f"{parent}-child", "x") for parent in ended]
    script.listed = 0
    for parent in ended:
        script.shards[parent].closed = True
    await until(lambda: set(numbers) <= set(sink.delivered))
    await reader.stop()
    assert script.listed <= 2
    assert len(script.asked_children) <= MAX_CHILD_LISTINGS


async def test_a_stream_is_listed_again_only_after_thirty_intervals() -> None:
    script = twenty_shards()
    script.page = 100
    listing = ShardListing(script, script.arn, LATER)
    for _ in range(LISTING_INTERVALS):
        assert len(await listing.refresh(())) == 20
    assert script.calls == ["DescribeStream"]

    script.shards["new"] = Shard()
    assert len(await listing.refresh(())) == 20
    listing.expire()
    assert len(await listing.refresh(())) == 21
    assert script.calls == ["DescribeStream"] * 2

    without_interval = ShardListing(script, script.arn, 0.0)
    for _ in range(3):
        await without_interval.refresh(())
    assert script.calls == ["DescribeStream"] * 5


@pytest.mark.parametrize("refuses", [False, True])
async def test_a_consumer_finds_the_children_of_a_shard_that_has_ended(database: Database, refuses: bool) -> None:
    script, handler = twenty_shards(), Noting()
    script.refuses_filter = refuses
    pace = replace(QUICK, discover_seconds=LATER)
    async with AsyncExitStack() as stack:
        instance = ConsumerInstance(database, handler, wire=script, pace=pace)
        await stack.enter_async_context(instance.running())
        await until(lambda: len(instance.consumer.working) == 20)
        listed = script.listed
        script.shards["a"] = Shard("s0")
        append_record(script, "a", 1)
        script.shards["s0"].closed = True
        await until(lambda: handler.numbers() == [1])
    assert set(script.asked_children) == {"s0"}
    assert (script.listed > listed) is refuses
