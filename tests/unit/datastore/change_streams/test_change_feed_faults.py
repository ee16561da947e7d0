"""Change feeds on a scripted stream: splits, expired iterators, trimmed records and failures."""

from datetime import timedelta
from typing import Any

import pytest

from datastore.change_streams.shards import stream_reader as module
from datastore.change_streams.shards.stream_reader import ChangesLost, StreamReader
from datastore.dynamodb.client import RequestRefused
from datastore.dynamodb.retry.backoff import Backoff
from datastore.errors import Throttled, Unavailable
from datastore.queues import QueueLimits
from tests.support.change_feeds import BLIP, Told, every, reader_tasks, scripted, take_changes
from tests.support.changes import Numbers, number_of
from tests.support.scripted_stream import Script, Shard
from tests.support.until import until


@pytest.fixture(autouse=True)
def _short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRIES", Backoff(0.005, 0.05))


async def test_only_open_shards_are_joined() -> None:
    script = Script(a=Shard(closed=True), b=Shard("a"), c=Shard("a"), d=Shard("gone"))
    script.write("a", "x")
    script.write("b", "x")
    async with scripted(script).follow(BLIP, number_of) as events:
        assert script.calls.count("GetShardIterator") == 3
        expected = {script.write(shard, "x") for shard in "bcd"}
        assert set(await take_changes(events, 3)) == expected
    assert "a" not in script.read


async def test_children_are_read_after_their_parent() -> None:
    script = Script(a=Shard())
    async with scripted(script).follow(BLIP, number_of, limits=QueueLimits(max_events=10_000)) as events:
        expected = [script.write("a", "x") for _ in range(2500)]
        script.shards |= {"b": Shard("a"), "c": Shard("a"), "e": Shard("b")}
        script.shards["a"].closed = script.shards["b"].closed = True
        first = [script.write("b", "x") for _ in range(3)]
        second = [script.write("e", "x") for _ in range(3)]
        other = [script.write("c", "y") for _ in range(3)]
        seen = await take_changes(events, 2509)
        assert seen[:2500] == expected
        assert [number for number in seen[2500:] if number not in other] == first + second
        assert [number for number in seen[2500:] if number in other] == other
        last = script.write("e", "x")
        assert await take_changes(events, 1) == [last]


async def test_a_shard_that_one_listing_omits_is_not_read_again() -> None:
    script, sink = Script(a=Shard()), Numbers()
    reader = StreamReader(script, "", 0.001, 0.01, lambda *_: None, BLIP, sink)
    await reader.attached()
    script.shards["b"] = Shard("a")
    number = script.write("a", "x")
    script.shards["a"].closed = True
    await until(lambda: number in sink.delivered and "b" in reader._started)
    dropped = script.shards.pop("a")
    await until(lambda: "a" in reader._missed)
    script.shards["a"] = dropped
    await until(lambda: "a" not in reader._missed)

    last = script.write("b", "y")
    await until(lambda: last in sink.delivered)
    await reader.stop()

    assert sink.delivered == [number, last]


async def test_nothing_is_kept_of_shards_that_were_read_and_are_no_longer_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "RETENTION", timedelta(0))
    script, sink = Script(a=Shard()), Numbers()
    reader = StreamReader(script, "", 0.001, 0.01, lambda *_: None, BLIP, sink)
    await reader.attached()
    for parent, child in (("a", "b"), ("b", "c")):
        script.shards[child] = Shard(parent)
        script.shards[parent].closed = True
        number = script.write(child, "x")
        await until(lambda number=number: number in sink.delivered)  # type: ignore[misc]
        del script.shards[parent]
        await until(lambda child=child: reader._started == {child})  # type: ignore[misc]
    assert sink.delivered == [99, 100]
    assert reader._finished == set()
    await reader.stop()


async def test_a_shard_that_ends_while_attaching_is_no_gap() -> None:
    script = Script(a=Shard())
    describe = script.DescribeStream

    def split(payload: dict[str, Any]) -> dict[str, Any]:
        answer = describe(payload)
        if "b" not in script.shards:
            script.shards["a"].closed = True
            script.shards["b"] = Shard("a")
            script.write("b", "x")
        return answer

    script.DescribeStream = split  # type: ignore[method-assign]
    async with scripted(script).follow(BLIP, number_of) as events:
        script.write("b", "x")
        assert await take_changes(events, 2) == [99, 100]


async def test_children_listed_late_and_shards_without_parent_are_found() -> None:
    script = Script(a=Shard())
    async with scripted(script).follow(BLIP, number_of) as events:
        script.shards["a"].closed = True
        listings = script.calls.count("DescribeStream")
        await until(lambda: script.calls.count("DescribeStream") > listings + 1)
        script.shards |= {"b": Shard("a"), "root": Shard()}
        expected = {script.write("b", "x"), script.write("root", "y")}
        assert set(await take_changes(events, 2)) == expected


async def test_an_expired_iterator_is_replaced_after_the_last_record() -> None:
    script = Script(a=Shard())
    async with scripted(script).follow(BLIP, number_of) as events:
        script.write("a", "x")
        assert await take_changes(events, 1) == [99]
        script.generation += 1
        script.write("a", "x")
        assert await take_changes(events, 1) == [100]


async def test_an_iterator_that_expires_before_any_record_loses_nothing() -> None:
    script = Script(a=Shard())
    script.write("a", "x", age=timedelta(minutes=30))
    async with scripted(script).follow(BLIP, number_of) as events:
        script.generation += 1
        script.write("a", "x")
        assert await take_changes(events, 1) == [100]


async def test_a_child_whose_iterator_expires_is_read_whole() -> None:
    script = Script(a=Shard())
    async with scripted(script).follow(BLIP, number_of) as events:
        script.fail("GetRecords", *[RequestRefused("ExpiredIteratorException", "")] * 2)
        script.shards["b"] = Shard("a")
        script.write("b", "x", age=timedelta(hours=3))
        script.fail("GetRecords", RequestRefused("ExpiredIteratorException", ""))
        script.shards["a"].closed = True
        assert await take_changes(events, 1) == [99]


async def test_trimmed_changes_are_reported_after_the_changes_before() -> None:
    script = Script(a=Shard())
    feed = scripted(script)
    async with feed.follow(BLIP, number_of) as events, feed.follow(BLIP, number_of) as other:
        script.write("a", "x")
        await until(lambda: len(events.live.backlog) == len(other.live.backlog) == 1)
        script.write("a", "x")
        script.shards["a"].trimmed = 5
        for subscription in (events, other):
            assert await take_changes(subscription, 1) == [99]
            with pytest.raises(ChangesLost):
                await take_changes(subscription, 1)
        assert not reader_tasks()
        script.shards["a"] = Shard()
        async with feed.follow(BLIP, number_of) as again:
            script.write("a", "x")
            assert await take_changes(again, 1) == [101]


async def test_an_outage_longer_than_the_retention_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datastore.change_streams.shards.positioned_cursor.RETENTION", timedelta(0))
    script = Script(a=Shard())
    async with scripted(script).follow(BLIP, number_of) as events:
        script.generation += 1
        with pytest.raises(ChangesLost):
            await take_changes(events, 1)


async def test_a_replaced_stream_is_reported() -> None:
    script = Script(a=Shard())
    async with scripted(script).follow(BLIP, number_of) as events:
        script.arn = "arn:2"
        with pytest.raises(ChangesLost):
            await take_changes(events, 1)


@pytest.mark.proof
async def test_failures_are_retried_and_reported_once() -> None:
    script, problems = Script(a=Shard()), Told()
    async with scripted(script, problems).follow(BLIP, number_of) as events:
        script.fail("GetRecords", *[Throttled("busy")] * 4, Unavailable("gone"), RequestRefused("AccessDenied", "no"))
        script.fail("DescribeTable", *[Unavailable("gone")] * 3)
        script.write("a", "x")
        assert await take_changes(events, 1) == [99]
        await until(lambda: not script.faults["DescribeTable"])
        script.write("a", "x")
        assert await take_changes(events, 1) == [100]
    assert len(problems) == 1


async def test_repeated_records_are_dropped() -> None:
    script = Script(a=Shard())
    async with scripted(script).follow(BLIP, number_of) as events:
        for _ in range(3):
            script.write("a", "x")
        script.shards["a"].records += script.shards["a"].records[-2:]
        script.write("a", "x")
        assert await take_changes(events, 4) == [99, 100, 101, 102]


async def test_a_malformed_record_is_reported_and_skipped() -> None:
    script, problems = Script(a=Shard()), Told()
    async with scripted(script, problems).follow(BLIP, number_of) as events:
        script.write("a", "x")
        script.shards["a"].records[-1]["dynamodb"]["NewImage"] = {"n": {"WHAT": "1"}}
        script.write("a", "x")
        assert await take_changes(events, 1) == [100]
    assert [type(problem) for problem in problems] == [ValueError]


@pytest.mark.parametrize("spelling", ["PrincipalId", "principalId"])
async def test_an_expired_item_is_marked(spelling: str) -> None:
    script = Script(a=Shard())
    async with scripted(script).follow(BLIP, lambda change: (change.by_ttl,)) as events:
        script.write("a", "x", userIdentity={"Type": "Service", spelling: "dynamodb.amazonaws.com"})
        script.write("a", "x")
        assert await take_changes(events, 2) == [(True,), (False,)]


async def test_a_burst_does_not_disconnect_a_follower_that_keeps_up() -> None:
    script = Script(a=Shard())
    async with scripted(script).follow(BLIP, number_of, limits=QueueLimits(max_events=8)) as events:
        for _ in range(3000):
            script.write("a", "x")
        assert await take_changes(events, 3000) == list(range(99, 3099))


async def test_an_unreachable_store_is_reported_at_once() -> None:
    script = Script(a=Shard())
    feed = scripted(script)
    script.fail("DescribeStream", Unavailable("gone"))
    script.fail("GetShardIterator", Throttled("busy"))
    for kind in (Unavailable, Throttled):
        with pytest.raises(kind):
            async with feed.follow(BLIP, every):
                pass
        assert not reader_tasks()
    async with feed.follow(BLIP, number_of) as events:
        script.write("a", "x")
        assert await take_changes(events, 1) == [99]
