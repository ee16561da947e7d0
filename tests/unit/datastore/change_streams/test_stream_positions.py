"""The positions of a stream's reader: texts of sequence numbers, and positions that the stream refuses."""

import asyncio
import logging
from datetime import timedelta

import pytest

import datastore.change_streams.shards.stream_reader as module
from datastore.change_streams.shards.checkpoints import joined
from datastore.change_streams.shards.shard_reader import MAX_REFUSALS
from datastore.change_streams.shards.stream_reader import ChangesLost
from datastore.dynamodb.client import RequestRefused
from datastore.dynamodb.retry.backoff import Backoff
from tests.support.bus_hosts import Hosts, hosts, take_numbers
from tests.support.redis_server import redis
from tests.support.scripted_readers import Going
from tests.support.scripted_stream import Script, Shard
from tests.support.until import until

__all__ = ["hosts", "redis"]

WIDTH = 21  # as many digits as DynamoDB Local writes
INVALID = RequestRefused("ValidationException", "Invalid ShardIterator")


@pytest.fixture(autouse=True)
def _short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRIES", Backoff(0.002, 0.01))


@pytest.fixture
def script() -> Script:
    script = Script(a=Shard())
    script.width = WIDTH
    return script


class ReaderRun:
    """A context manager that runs a reader of a scripted stream."""

    def __init__(self, script: Script, **start: str) -> None:
        self._script = script
        self._start = start

    async def __aenter__(self) -> Going:
        self.going = Going(self._script, self._start)
        return self.going

    async def __aexit__(self, *_: object) -> None:
        await self.going.reader.stop()


async def test_a_reader_continues_with_the_text_that_the_stream_wrote(script: Script) -> None:
    first, second = script.write("a", "x"), script.write("a", "x")
    async with ReaderRun(script, a=str(first).zfill(WIDTH)) as going:
        await until(lambda: going.heard.numbers == [second])
        script.generation += 1  # all iterators expire
        third = script.write("a", "x")
        await until(lambda: going.heard.numbers == [second, third])
        assert going.reader.reached is not None
        assert going.reader.reached.shards == {"a": str(third).zfill(WIDTH)}


async def test_the_bus_keeps_the_text_for_the_next_holder(hosts: Hosts, script: Script) -> None:
    holder, other = hosts.process(lease_seconds=1), hosts.process(lease_seconds=1)
    await hosts.follow(holder)
    events = await hosts.follow(other)
    first = script.write("a", "x")
    assert await take_numbers(events, 1) == [first]

    await holder.vanish()
    second = script.write("a", "x")
    assert await take_numbers(events, 1) == [second]
    state = await other.bus.commands.claim("blip", other.bus.instance)
    assert state.positions == {"a": str(second).zfill(WIDTH)}


async def test_a_position_that_the_stream_refuses_ends_the_reader(
    script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    script.write("a", "x")
    async with ReaderRun(script, a="5") as going:
        await until(lambda: bool(going.heard.problems))
        assert isinstance(going.heard.problems[0], ChangesLost)
        assert script.calls.count("GetShardIterator") == MAX_REFUSALS
    (logged,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert "Invalid SequenceNumber 5" in logged.getMessage()


async def test_iterators_that_are_refused_again_and_again_end_the_reader(script: Script) -> None:
    first = script.write("a", "x")
    # Replacing an iterator takes a further call.
    script.fail("GetRecords", *[INVALID] * (2 * MAX_REFUSALS))
    async with ReaderRun(script, a=str(first).zfill(WIDTH)) as going:
        await until(lambda: bool(going.heard.problems))
        assert isinstance(going.heard.problems[0], ChangesLost)


async def test_an_iterator_that_is_refused_is_replaced(script: Script) -> None:
    first, second = script.write("a", "x"), script.write("a", "x")
    busy = RequestRefused("InternalServerError", "busy")
    script.fail("GetRecords", *[INVALID, INVALID, busy] * 3)
    async with ReaderRun(script, a=str(first).zfill(WIDTH)) as going:
        await until(lambda: going.heard.numbers == [second])


async def test_a_joined_position_whose_iterator_has_expired_is_changes_lost(script: Script) -> None:
    """The age of the position is unknown, so resuming by time would skip later changes."""
    script.write("a", "x", age=timedelta(minutes=12))
    script.generation = 1
    async with ReaderRun(script, a=joined("o", "a 0 0")) as going:
        await until(lambda: bool(going.heard.problems))
        assert isinstance(going.heard.problems[0], ChangesLost)
        assert going.heard.numbers == []


async def test_a_joined_position_whose_iterator_is_valid_continues(script: Script) -> None:
    number = script.write("a", "x", age=timedelta(minutes=12))
    async with ReaderRun(script, a=joined("o", "a 0 0")) as going:
        await until(lambda: going.heard.numbers == [number])
        script.generation = 1
        number = script.write("a", "x")
        await until(lambda: going.heard.numbers[1:] == [number])


LOCAL_STREAM = "arn:aws:dynamodb:ddblocal:000000000000:table/t__x/stream/2026-06-25T12:00:00.000"


class Forgetful(Script):
    """A script that fails a LATEST iterator of a shard without records at the first record, as DynamoDB Local does."""

    def GetShardIterator(self, payload: dict[str, str]) -> dict[str, str]:
        answer = super().GetShardIterator(payload)
        is_of_empty_shard = payload["ShardIteratorType"] == "LATEST" and not self.shards[payload["ShardId"]].records
        return {"ShardIterator": f"{answer['ShardIterator']} latest"} if is_of_empty_shard else answer

    def GetRecords(self, payload: dict[str, str]) -> dict[str, object]:
        name, *_, kind = payload["ShardIterator"].split()
        if kind != "latest":
            return super().GetRecords(payload)
        if self.shards[name].records:
            raise RequestRefused("TrimmedDataAccessException", "trimmed")
        return {"Records": [], "NextShardIterator": payload["ShardIterator"]}


async def test_a_shard_that_was_joined_without_records_is_read_from_its_start_on_dynamodb_local() -> None:
    script = Forgetful(a=Shard())
    script.arn = LOCAL_STREAM
    going = Going(script, None)
    try:
        await going.reader.attached()
        numbers = [script.write("a", "x") for _ in range(3)]
        await until(lambda: going.heard.numbers == numbers)
        assert not going.heard.problems
    finally:
        await going.reader.stop()


async def test_a_shard_that_was_joined_without_records_and_trimmed_is_changes_lost() -> None:
    """This holds for other stores. MiniStack trims by number, whatever the age of a record."""
    script = Forgetful(a=Shard())
    going = Going(script, None)
    try:
        await going.reader.attached()
        script.write("a", "x")
        await until(lambda: bool(going.heard.problems))
        assert isinstance(going.heard.problems[0], ChangesLost)
        assert going.heard.numbers == []
    finally:
        await going.reader.stop()


async def test_a_shard_that_is_trimmed_though_it_is_read_from_its_start_is_changes_lost() -> None:
    script = Forgetful(a=Shard())
    script.arn = LOCAL_STREAM
    going = Going(script, None)
    try:
        await going.reader.attached()
        script.write("a", "x")
        script.fail("GetRecords", *[RequestRefused("TrimmedDataAccessException", "trimmed")] * 2)
        await until(lambda: bool(going.heard.problems))
        assert isinstance(going.heard.problems[0], ChangesLost)
    finally:
        await going.reader.stop()


async def test_a_reader_waits_for_a_store_that_is_away_however_long(script: Script) -> None:
    first, second = script.write("a", "x"), script.write("a", "x")
    script.fail("GetRecords", *[RequestRefused("AccessDeniedException", "not yet")] * 20)
    async with ReaderRun(script, a=str(first).zfill(WIDTH)) as going, asyncio.timeout(50):
        await until(lambda: going.heard.numbers == [second])
