"""A reader of a stream that continues where another ended, and the reports of a store that is away at that time."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import pytest

import datastore.change_streams.shards.stream_reader as module
from datastore.change_streams.shards.checkpoints import Reached, joined
from datastore.change_streams.shards.stream_reader import ChangesLost, StreamReader
from datastore.dynamodb.retry.backoff import Backoff
from datastore.errors import TableMissing, Unavailable
from datastore.keyspace.sightings import BLIP
from tests.support.scripted_readers import Going, RecordingSink
from tests.support.scripted_stream import Script, Shard
from tests.support.until import until

Go = Callable[..., Going]


@pytest.fixture
async def go(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Go]:
    monkeypatch.setattr(module, "RETRIES", Backoff(0.005, 0.01))
    async with AsyncExitStack() as stack:

        def going(script: Script, **start: str) -> Going:
            run = Going(script, start)
            stack.push_async_callback(run.reader.stop)
            return run

        yield going


async def test_a_trimmed_shard_is_no_gap_if_its_child_was_started(go: Go) -> None:
    script = Script(b=Shard("a"), c=Shard("a"))
    first, second = script.write("b", "x"), script.write("b", "x")
    other = script.write("c", "y")

    going = go(script, a="50", b=str(first))

    await until(lambda: len(going.heard.numbers) == 2)
    assert sorted(going.heard.numbers) == [second, other]
    assert going.reader.reached == Reached(script.arn, {"b": str(second), "c": str(other)})


@pytest.mark.parametrize(
    "start",
    [{"a": "50"}, {"a": "50", "c": joined("o", "c 0 0")}, {"a": "50", "z": "7", "b": "99"}],
    ids=["alone", "beside another", "beside one whose child was begun"],
)
async def test_a_trimmed_shard_is_a_gap_if_none_of_its_children_was_started(go: Go, start: dict[str, str]) -> None:
    script = Script(b=Shard("a"), c=Shard("z2"))
    script.write("b", "x")

    going = go(script, **start)

    with pytest.raises(ChangesLost):
        await going.reader.attached()


async def test_a_resuming_subscriber_waits_for_an_unavailable_store_and_reports_it_once(
    go: Go, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    script = Script(a=Shard())
    first, second = script.write("a", "x"), script.write("a", "x")
    script.fail("DescribeTable", *[Unavailable("gone")] * 5)
    script.fail("GetRecords", *[Unavailable("gone")] * 3)

    going = go(script, a=str(first))

    await until(lambda: going.heard.numbers == [second])
    assert [str(problem) for problem in going.errors] == ["gone"]
    assert [record.getMessage() for record in caplog.records] == ["Changes of blip can be read again."]


async def test_a_new_subscriber_learns_of_an_outage() -> None:
    script = Script(a=Shard())
    script.fail("DescribeTable", Unavailable("gone"))
    reader = StreamReader(script, "", 0.001, 0.02, lambda *_: None, BLIP, RecordingSink())
    with pytest.raises(Unavailable, match="gone"):
        await reader.attached()


async def test_a_resuming_subscriber_does_not_wait_for_a_missing_table(go: Go) -> None:
    script = Script(a=Shard())
    script.fail("DescribeTable", TableMissing("no table"))
    going = go(script, a="98")
    with pytest.raises(TableMissing):
        async with asyncio.timeout(50):
            await going.reader.attached()
