"""Following tables: on the real engine, and, for what the engine never does (splits, expiry, trimming), on a script."""

import asyncio
import random
import socket
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import aiohttp
import boto3
import orjson
import pytest

from datastore.change_streams import change_feed as changes_module
from datastore.change_streams.change_feed import ChangeFeed
from datastore.change_streams.change_subscription import ChangeSubscription
from datastore.change_streams.replay.backfill import Backfill
from datastore.change_streams.replay.replay_log import MissingRange, ResumeTokenRefused
from datastore.change_streams.replay.resume_token import key_of
from datastore.change_streams.shards import stream_reader as module
from datastore.change_streams.shards.read_pace import FIRST_INTERVAL_SECONDS, JITTER
from datastore.change_streams.shards.shard_reader import StreamMissing
from datastore.change_streams.shards.stream_reader import Change, ChangesLost, StreamReader
from datastore.dynamodb.client import RequestRefused
from datastore.engine.programs import EngineMissing, find_binary
from datastore.errors import SlowSubscriber, TableMissing, Throttled, Timeout, Unavailable
from datastore.model.access_patterns import Table
from datastore.queues import OverflowPolicy, QueueLimits
from tests.support.changes import Numbers, number_of
from tests.support.scripted_stream import Script, Shard
from tests.support.store_engines import ROOT
from tests.support.until import until

BLIP = Table("Blip", "pk", "sk", stream="NEW_AND_OLD_IMAGES")
MUTE = Table("Mute", "pk", "sk")
PREFIX = "test-"
POLL = 0.01


class HttpWire:
    """The wire without signing and without retries."""

    def __init__(self, port: int, session: aiohttp.ClientSession) -> None:
        self._url = f"http://127.0.0.1:{port}/"
        self._session = session

    async def call(self, operation: str, payload: dict[str, Any], /, *, timeout: float) -> dict[str, Any]:  # noqa: ASYNC109
        api = "DynamoDB" if operation == "DescribeTable" else "DynamoDBStreams"
        headers = {
            "Content-Type": "application/x-amz-json-1.0",
            "X-Amz-Target": f"{api}_20120810.{operation}",
            "X-Amz-Date": "20260101T000000Z",
            "Authorization": "AWS4-HMAC-SHA256 Credential=a/20260101/x/dynamodb/aws4_request, "
            "SignedHeaders=host, Signature=a",
        }
        limit = aiohttp.ClientTimeout(total=timeout)
        try:
            async with self._session.post(
                self._url, data=orjson.dumps(payload), headers=headers, timeout=limit
            ) as response:
                answer: dict[str, Any] = orjson.loads(await response.read())
        except (aiohttp.ClientError, OSError) as problem:
            raise Unavailable("The store cannot be reached.") from problem
        if response.status != 200:
            raise RequestRefused(answer["__type"].rpartition("#")[2], answer.get("message", ""))
        return answer

    def now(self) -> datetime:
        return datetime.now(UTC)


class Engine:
    """An engine that can die. Without a file it forgets everything when it does."""

    def __init__(self, binary: Path, file: Path | None = None) -> None:
        self.port = _free_port()
        self._command = [str(binary), "serve", "--host", "127.0.0.1", "--port", str(self.port)]
        self._command += ["--db-path", str(file)] if file else []
        self.writer = boto3.client(
            "dynamodb",
            endpoint_url=f"http://127.0.0.1:{self.port}",
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.01)
        pytest.fail("The engine did not start.")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self.kill()
        self.writer.close()

    def create(self, table: Table) -> None:
        stream = {"StreamEnabled": True, "StreamViewType": table.stream} if table.stream else {"StreamEnabled": False}
        names = (table.partition, table.sort)
        self.writer.create_table(
            TableName=PREFIX + table.name,
            KeySchema=[
                {"AttributeName": name, "KeyType": kind} for name, kind in zip(names, ("HASH", "RANGE"), strict=True)
            ],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in names],
            BillingMode="PAY_PER_REQUEST",
            StreamSpecification=stream,
        )

    def put(self, number: int, key: str = "k") -> None:
        item = {"pk": {"S": key}, "sk": {"S": f"{number:06}"}, "n": {"N": str(number)}}
        self.writer.put_item(TableName=f"{PREFIX}Blip", Item=item)


def _free_port() -> int:
    for port in random.sample(range(20_000, 32_000), 100):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
    pytest.fail("No port is free.")


@pytest.fixture(scope="module")
def binary() -> Path:
    try:
        return find_binary(ROOT)
    except EngineMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def engine(binary: Path) -> Iterator[Engine]:
    engine = Engine(binary)
    engine.create(BLIP)
    yield engine
    engine.close()


@pytest.fixture
def durable(binary: Path, tmp_path: Path) -> Iterator[Engine]:
    engine = Engine(binary, tmp_path / "engine.db")
    engine.create(BLIP)
    yield engine
    engine.close()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


def feed_of(engine: Engine, session: aiohttp.ClientSession) -> ChangeFeed:
    return ChangeFeed(
        HttpWire(engine.port, session), prefix=PREFIX, poll_interval=POLL, discover_interval=0.2, linger=0
    )


async def take(events: ChangeSubscription[Any], number: int) -> list[Any]:
    async with asyncio.timeout(8):
        return [await anext(events) for _ in range(number)]


def every(change: Change) -> Change:
    """Takes each change as it is."""
    return change


def readers() -> list[asyncio.Task[Any]]:
    return [task for task in asyncio.all_tasks() if "StreamReader." in getattr(task.get_coro(), "__qualname__", "")]


async def test_writes_of_others_are_seen(engine: Engine, session: aiohttp.ClientSession) -> None:
    key = {"pk": {"S": "k"}, "sk": {"S": "000001"}}
    async with feed_of(engine, session).follow(BLIP, every) as events:
        engine.put(1)
        engine.writer.update_item(
            TableName=f"{PREFIX}Blip",
            Key=key,
            UpdateExpression="SET n = :n",
            ExpressionAttributeValues={":n": {"N": "2"}},
        )
        engine.writer.delete_item(TableName=f"{PREFIX}Blip", Key=key)
        insert, modify, remove = await take(events, 3)
    keys = {"pk": "k", "sk": "000001"}
    assert (insert.table, insert.kind, insert.keys, insert.old, insert.new) == (
        "Blip",
        "INSERT",
        keys,
        None,
        {**keys, "n": 1},
    )
    assert (modify.kind, modify.old["n"], modify.new["n"]) == ("MODIFY", 1, 2)
    assert (remove.kind, remove.old["n"], remove.new) == ("REMOVE", 2, None)
    assert abs(remove.time - datetime.now(UTC)) < timedelta(seconds=30)
    assert not remove.by_ttl


async def test_what_was_written_before_is_not_seen(engine: Engine, session: aiohttp.ClientSession) -> None:
    engine.put(1)
    async with feed_of(engine, session).follow(BLIP, number_of) as events:
        engine.put(2)
        assert await take(events, 1) == [2]


class Writer:
    """Writes 1, 2, 3… as fast as it can, in a thread of its own, while entered."""

    def __init__(self, engine: Engine) -> None:
        self.begun = 0
        self._engine = engine
        self._enough = threading.Event()
        self._task = asyncio.create_task(asyncio.to_thread(self._write))

    def _write(self) -> None:
        while not self._enough.is_set():
            self.begun += 1
            self._engine.put(self.begun)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._enough.set()
        await self._task


async def test_followers_of_a_running_reader_miss_nothing(engine: Engine, session: aiohttp.ClientSession) -> None:
    feed, writer, written = feed_of(engine, session), Writer(engine), asyncio.Event()
    joined: list[int] = []

    async def follow() -> list[int]:
        async with feed.follow(BLIP, number_of, keeping=QueueLimits(max_events=100_000)) as events:
            joined.append(bound := writer.begun + 1)
            await written.wait()
            seen = await take(events, 1)
            while seen[-1] < writer.begun:
                seen += await take(events, 1)
            assert seen[0] <= bound
            return seen

    followers = []
    async with writer:
        for number in range(20):
            followers.append(asyncio.create_task(follow()))
            await until(lambda wanted=number + 1: len(joined) == wanted)  # type: ignore[misc]
            await until(lambda wanted=writer.begun + 5: writer.begun >= wanted)  # type: ignore[misc]
    written.set()
    for seen in await asyncio.gather(*followers):
        assert seen == list(range(seen[0], writer.begun + 1))


async def test_a_starting_reader_misses_nothing(engine: Engine, session: aiohttp.ClientSession) -> None:
    async with Writer(engine) as writer:
        for _ in range(20):
            async with feed_of(engine, session).follow(BLIP, number_of) as events:
                bound = writer.begun + 1
                seen = await take(events, 10)
            assert seen == list(range(seen[0], seen[0] + 10))
            assert seen[0] <= bound


async def test_each_key_comes_in_order(engine: Engine, session: aiohttp.ClientSession) -> None:
    def write(key: str) -> None:
        for number in range(40):
            engine.put(number, key)

    async with feed_of(engine, session).follow(BLIP, every, keeping=QueueLimits(max_events=1000)) as events:
        await asyncio.gather(*(asyncio.to_thread(write, key) for key in "abcd"))
        seen = await take(events, 160)
    for key in "abcd":
        assert [number_of(change) for change in seen if change.keys["pk"] == key] == list(range(40))


async def test_a_follower_that_stops_reading_is_disconnected(engine: Engine, session: aiohttp.ClientSession) -> None:
    feed = feed_of(engine, session)
    async with (
        feed.follow(BLIP, number_of, keeping=QueueLimits(max_events=5)) as stuck,
        feed.follow(BLIP, number_of) as sound,
        feed.follow(BLIP, number_of, keeping=QueueLimits(OverflowPolicy.LATEST, 1)) as newest,
    ):
        for number in range(30):
            await asyncio.to_thread(engine.put, number)
        assert await take(sound, 30) == list(range(30))
        with pytest.raises(SlowSubscriber):
            await anext(stuck)
        assert await take(newest, 1) == [29]
        assert newest.dropped == 29


async def test_the_last_follower_stops_the_reader(engine: Engine, session: aiohttp.ClientSession) -> None:
    feed = feed_of(engine, session)
    for _ in range(3):
        async with feed.follow(BLIP, every):
            async with feed.follow(BLIP, every):
                assert len(readers()) == 2  # the table and its one shard, for both followers
            assert len(readers()) == 2
        assert not readers()


async def test_a_cancelled_follower_leaves_nothing(engine: Engine, session: aiohttp.ClientSession) -> None:
    feed = feed_of(engine, session)

    async def follow() -> None:
        async with feed.follow(BLIP, every) as events:
            async for _ in events:
                pass

    for turns in range(12):  # at every stage of attaching
        task = asyncio.create_task(follow())
        for _ in range(turns):
            await asyncio.sleep(0.0005)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not readers()


async def test_closing_the_feed_ends_the_iterations(engine: Engine, session: aiohttp.ClientSession) -> None:
    feed = feed_of(engine, session)
    async with feed.follow(BLIP, every) as events:
        await feed.aclose()
        assert not readers()
        assert [event async for event in events] == []


async def test_a_table_without_a_stream_is_refused(engine: Engine, session: aiohttp.ClientSession) -> None:
    engine.create(MUTE)
    feed = feed_of(engine, session)
    with pytest.raises(StreamMissing, match="Mute has no stream"):
        async with feed.follow(MUTE, every):
            pass
    with pytest.raises(TableMissing, match="Nowhere does not exist"):
        async with feed.follow(Table("Nowhere", "pk", "sk"), every):
            pass
    assert not readers()


async def test_nothing_is_lost_when_the_engine_is_killed(durable: Engine, session: aiohttp.ClientSession) -> None:
    async with feed_of(durable, session).follow(BLIP, number_of, keeping=QueueLimits(max_events=1000)) as events:
        expected: list[int] = []
        for round_ in range(2):
            for number in range(round_ * 40, round_ * 40 + 40):
                await asyncio.to_thread(durable.put, number)
                expected.append(number)
            durable.kill()
            await asyncio.to_thread(durable.start)
        durable.put(80)
        assert await take(events, 81) == [*expected, 80]


async def test_another_store_in_its_place_is_told(engine: Engine, session: aiohttp.ClientSession) -> None:
    feed = feed_of(engine, session)
    async with feed.follow(BLIP, number_of) as events:
        engine.put(1)
        assert await take(events, 1) == [1]
        engine.kill()
        await asyncio.to_thread(engine.start)
        engine.create(BLIP)
        with pytest.raises(ChangesLost):
            await take(events, 2)  # one may come from the new store before it is known to be another
        async with feed.follow(BLIP, number_of) as again:
            engine.put(2)
            assert await take(again, 1) == [2]
    assert not readers()


# On a scripted stream.


Told = list[Exception]


def scripted(script: Script, told: Told | None = None) -> ChangeFeed:
    heard: Told = told if told is not None else []
    return ChangeFeed(
        script, poll_interval=0.001, discover_interval=0.02, linger=0, on_error=lambda _, problem: heard.append(problem)
    )


@pytest.fixture(autouse=True)
def _short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_DELAY", 0.005)
    monkeypatch.setattr(module, "MAX_DELAY", 0.05)


async def test_only_open_shards_are_joined() -> None:
    script = Script(a=Shard(closed=True), b=Shard("a"), c=Shard("a"), d=Shard("gone"))
    script.write("a", "x")
    script.write("b", "x")
    async with scripted(script).follow(BLIP, number_of) as events:
        assert script.calls.count("GetShardIterator") == 3
        expected = {script.write(shard, "x") for shard in "bcd"}
        assert set(await take(events, 3)) == expected
    assert "a" not in script.read


async def test_children_are_read_after_their_parent() -> None:
    script = Script(a=Shard())
    async with scripted(script).follow(BLIP, number_of, keeping=QueueLimits(max_events=10_000)) as events:
        expected = [script.write("a", "x") for _ in range(2500)]
        script.shards |= {"b": Shard("a"), "c": Shard("a"), "e": Shard("b")}
        script.shards["a"].closed = script.shards["b"].closed = True
        first = [script.write("b", "x") for _ in range(3)]
        second = [script.write("e", "x") for _ in range(3)]
        other = [script.write("c", "y") for _ in range(3)]
        seen = await take(events, 2509)
        assert seen[:2500] == expected
        assert [number for number in seen[2500:] if number not in other] == first + second
        assert [number for number in seen[2500:] if number in other] == other
        last = script.write("e", "x")
        assert await take(events, 1) == [last]


async def test_a_shard_that_one_listing_leaves_out_is_not_read_anew() -> None:
    script, sink = Script(a=Shard()), Numbers()
    reader = StreamReader(script, "", 0.001, 0.01, lambda *_: None, BLIP, sink)
    await reader.attached()
    script.shards["b"] = Shard("a")
    number = script.write("a", "x")
    script.shards["a"].closed = True
    await until(lambda: number in sink.told and "b" in reader._started)
    dropped = script.shards.pop("a")
    await until(lambda: "a" in reader._missed)
    script.shards["a"] = dropped
    await until(lambda: "a" not in reader._missed)

    last = script.write("b", "y")
    await until(lambda: last in sink.told)
    await reader.stop()

    assert sink.told == [number, last]


async def test_nothing_is_kept_of_shards_that_were_read_and_are_listed_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETENTION", timedelta(0))
    script, sink = Script(a=Shard()), Numbers()
    reader = StreamReader(script, "", 0.001, 0.01, lambda *_: None, BLIP, sink)
    await reader.attached()
    for parent, child in (("a", "b"), ("b", "c")):
        script.shards[child] = Shard(parent)
        script.shards[parent].closed = True
        number = script.write(child, "x")
        await until(lambda number=number: number in sink.told)  # type: ignore[misc]
        del script.shards[parent]
        await until(lambda child=child: reader._started == {child})  # type: ignore[misc]
    assert sink.told == [99, 100]
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
        assert await take(events, 2) == [99, 100]


async def test_children_listed_late_and_shards_without_parent_are_found() -> None:
    script = Script(a=Shard())
    async with scripted(script).follow(BLIP, number_of) as events:
        script.shards["a"].closed = True
        listings = script.calls.count("DescribeStream")
        await until(lambda: script.calls.count("DescribeStream") > listings + 1)
        script.shards |= {"b": Shard("a"), "root": Shard()}
        expected = {script.write("b", "x"), script.write("root", "y")}
        assert set(await take(events, 2)) == expected


async def test_an_expired_iterator_is_replaced_after_the_last_record() -> None:
    script = Script(a=Shard())
    async with scripted(script).follow(BLIP, number_of) as events:
        script.write("a", "x")
        assert await take(events, 1) == [99]
        script.generation += 1
        script.write("a", "x")
        assert await take(events, 1) == [100]


async def test_an_iterator_that_expires_before_any_record_loses_nothing() -> None:
    script = Script(a=Shard())
    script.write("a", "x", age=timedelta(minutes=30))
    async with scripted(script).follow(BLIP, number_of) as events:
        script.generation += 1
        script.write("a", "x")
        assert await take(events, 1) == [100]


async def test_a_child_whose_iterator_expires_is_read_whole() -> None:
    script = Script(a=Shard())
    async with scripted(script).follow(BLIP, number_of) as events:
        script.fail("GetRecords", *[RequestRefused("ExpiredIteratorException", "")] * 2)
        script.shards["b"] = Shard("a")
        script.write("b", "x", age=timedelta(hours=3))
        script.fail("GetRecords", RequestRefused("ExpiredIteratorException", ""))
        script.shards["a"].closed = True
        assert await take(events, 1) == [99]


async def test_trimmed_changes_are_told_after_what_came_before() -> None:
    script = Script(a=Shard())
    feed = scripted(script)
    async with feed.follow(BLIP, number_of) as events, feed.follow(BLIP, number_of) as other:
        script.write("a", "x")
        await until(lambda: events.waiting == other.waiting == 1)
        script.write("a", "x")
        script.shards["a"].trimmed = 5
        for subscription in (events, other):
            assert await take(subscription, 1) == [99]
            with pytest.raises(ChangesLost):
                await take(subscription, 1)
        assert not readers()
        script.shards["a"] = Shard()
        async with feed.follow(BLIP, number_of) as again:
            script.write("a", "x")
            assert await take(again, 1) == [101]


async def test_an_outage_longer_than_the_retention_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datastore.change_streams.shards.shard_iterator.RETENTION", timedelta(0))
    script = Script(a=Shard())
    async with scripted(script).follow(BLIP, number_of) as events:
        script.generation += 1
        with pytest.raises(ChangesLost):
            await take(events, 1)


async def test_another_stream_is_told() -> None:
    script = Script(a=Shard())
    async with scripted(script).follow(BLIP, number_of) as events:
        script.arn = "arn:2"
        with pytest.raises(ChangesLost):
            await take(events, 1)


async def test_failures_are_waited_out_and_told_once() -> None:
    script, told = Script(a=Shard()), Told()
    async with scripted(script, told).follow(BLIP, number_of) as events:
        script.fail("GetRecords", *[Throttled("busy")] * 4, Unavailable("gone"), RequestRefused("AccessDenied", "no"))
        script.fail("DescribeTable", *[Unavailable("gone")] * 3)
        script.write("a", "x")
        assert await take(events, 1) == [99]
        await until(lambda: not script.faults["DescribeTable"])
        script.write("a", "x")
        assert await take(events, 1) == [100]
    assert len(told) == 1


async def test_records_that_come_again_are_dropped() -> None:
    script = Script(a=Shard())
    async with scripted(script).follow(BLIP, number_of) as events:
        for _ in range(3):
            script.write("a", "x")
        script.shards["a"].records += script.shards["a"].records[-2:]
        script.write("a", "x")
        assert await take(events, 4) == [99, 100, 101, 102]


async def test_a_record_that_makes_no_sense_is_told_and_skipped() -> None:
    script, told = Script(a=Shard()), Told()
    async with scripted(script, told).follow(BLIP, number_of) as events:
        script.write("a", "x")
        script.shards["a"].records[-1]["dynamodb"]["NewImage"] = {"n": {"WHAT": "1"}}
        script.write("a", "x")
        assert await take(events, 1) == [100]
    assert [type(problem) for problem in told] == [ValueError]


@pytest.mark.parametrize("spelling", ["PrincipalId", "principalId"])
async def test_an_expired_item_is_marked(spelling: str) -> None:
    script = Script(a=Shard())
    async with scripted(script).follow(BLIP, lambda change: (change.by_ttl,)) as events:
        script.write("a", "x", userIdentity={"Type": "Service", spelling: "dynamodb.amazonaws.com"})
        script.write("a", "x")
        assert await take(events, 2) == [(True,), (False,)]


async def test_a_burst_does_not_disconnect_a_follower_that_keeps_up() -> None:
    script = Script(a=Shard())
    async with scripted(script).follow(BLIP, number_of, keeping=QueueLimits(max_events=8)) as events:
        for _ in range(3000):
            script.write("a", "x")
        assert await take(events, 3000) == list(range(99, 3099))


async def test_a_store_that_cannot_be_reached_at_first_is_told_at_once() -> None:
    script = Script(a=Shard())
    feed = scripted(script)
    script.fail("DescribeStream", Unavailable("gone"))
    script.fail("GetShardIterator", Throttled("busy"))
    for kind in (Unavailable, Throttled):
        with pytest.raises(kind):
            async with feed.follow(BLIP, every):
                pass
        assert not readers()
    async with feed.follow(BLIP, number_of) as events:
        script.write("a", "x")
        assert await take(events, 1) == [99]


# Going on


class Places(Numbers):
    """A sink that also records the calls about shards."""

    def __init__(self) -> None:
        super().__init__()
        self.begun: list[tuple[dict[str, str], dict[str, str | None]]] = []
        self.started: list[tuple[str, str | None]] = []

    def start_epoch(self, stream: str, positions: Any, parents: Any, since: float) -> None:
        self.begun.append((positions, parents))

    def start_shard(self, shard: str, parent: str | None) -> None:
        self.started.append((shard, parent))


async def test_a_sink_gets_the_start_of_each_shard_and_children_before_their_first_record() -> None:
    script, sink = Script(a=Shard(), b=Shard()), Places()
    reader = StreamReader(script, "", 0.001, 0.02, lambda *_: None, BLIP, sink, new_order=lambda: "o")
    await reader.attached()
    script.shards["a"].closed = True
    script.shards |= {"c": Shard("a"), "d": Shard("a")}
    await until(lambda: len(sink.started) == 2)
    await reader.stop()
    assert sink.begun == [({"a": "@o a 0 0", "b": "@o b 0 0"}, {"a": None, "b": None})]
    assert sink.started == [("c", "a"), ("d", "a")]


async def test_who_comes_again_within_the_linger_goes_on_with_the_same_reader(
    engine: Engine, session: aiohttp.ClientSession
) -> None:
    feed = ChangeFeed(HttpWire(engine.port, session), prefix=PREFIX, poll_interval=POLL, linger=30)
    async with feed.follow(BLIP, number_of) as events:
        engine.put(1)
        assert await take(events, 1) == [1]
        place = events.place
    for number in range(2, 5):
        engine.put(number)
    async with feed.follow(BLIP, number_of, after=place) as events:
        assert not events.is_too_old
        assert await take(events, 3) == [2, 3, 4]
        engine.put(5)
        assert await take(events, 1) == [5]
    assert readers()
    await feed.aclose()
    assert not readers()


async def test_who_joins_as_the_linger_ends_has_a_reader() -> None:
    script = Script(a=Shard())
    feed = ChangeFeed(script, poll_interval=0.001, discover_interval=0.02, linger=0.03)
    async with feed.follow(BLIP, number_of):
        pass
    followed = feed._tables[BLIP.name]
    assert followed.stop_timer is not None
    comes = asyncio.get_running_loop().create_future()

    async def come() -> list[int]:
        await comes
        async with feed.follow(BLIP, number_of) as events:
            script.write("a", "x")
            return await take(events, 1)

    # Woken by a timer of the same turn of the loop: before what that of the linger has begun.
    coming = asyncio.create_task(come())
    asyncio.get_running_loop().call_at(followed.stop_timer.when() - 1e-7, comes.set_result, None)
    assert await coming == [99]
    assert feed._tables[BLIP.name] is not followed
    await feed.aclose()


async def test_a_table_that_is_idle_keeps_no_old_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes_module, "DROP_SECONDS", 0.01)
    script = Script(a=Shard())
    feed = scripted(script)
    async with feed.follow(BLIP, number_of) as events:
        for _ in range(3):
            script.write("a", "x")
        await take(events, 3)
        log = feed._tables[BLIP.name].log
        assert len(log._recent.entries) == 3
        log._kept = 0.0
        await until(lambda: len(log._recent.entries) == 1)  # the last says where all are


async def test_what_came_before_the_log_is_read_from_the_stream(engine: Engine, session: aiohttp.ClientSession) -> None:
    async with feed_of(engine, session).follow(BLIP, number_of) as events:
        engine.put(1)
        await take(events, 1)
        place = events.place
    for number in range(2, 1500):
        engine.put(number)
    async with feed_of(engine, session).follow(BLIP, number_of, after=place) as events:
        engine.put(1500)
        assert await take(events, 1499) == [*range(2, 1501)]


async def read(older: Backfill, after: int, before: Callable[[], int | None]) -> list[Change] | None:
    """What the shard a has after a sequence."""
    wanted = MissingRange(key_of("arn:1", "a"), "a", None, str(after), False, before)
    found = await older.read("arn:1", [wanted])
    return None if found is None else [change for _, change in found]


@pytest.mark.parametrize("is_known", [True, False])
async def test_what_came_before_is_found_behind_many_empty_pages(is_known: bool) -> None:
    """As a stream of AWS has them where little happens; `is_known`: something came after it."""
    script = Script(a=Shard())
    numbers = [script.write("a", "x") for _ in range(5)]
    script.shards["a"].empty = 40 if is_known else 20
    older = Backfill(script, empty_seconds=0)
    found = await read(older, numbers[0], lambda: numbers[4] if is_known else None)
    assert found is not None
    assert [number_of(change) for change in found] == (numbers[1:4] if is_known else numbers[1:])


async def test_what_is_not_reached_in_time_is_too_old() -> None:
    script = Script(a=Shard())
    first, last = script.write("a", "x"), script.write("a", "x")
    script.shards["a"].empty = 1_000_000_000
    assert await read(Backfill(script, seconds=0.05), first, lambda: last + 1) is None


async def test_what_is_written_on_and_on_is_read_only_up_to_what_is_told() -> None:
    script = Script(a=Shard())
    numbers = [script.write("a", "x") for _ in range(3)]
    reads: list[int] = []

    def before() -> int | None:
        reads.append(script.write("a", "x"))
        return reads[0] if len(reads) > 5 else None

    found = await read(Backfill(script, empty_seconds=0), numbers[0], before)
    assert found is not None
    assert {*numbers[1:]} <= {number_of(change) for change in found}
    assert len(found) < 20


async def test_what_comes_behind_more_empty_pages_than_an_end_has_is_found_within_the_time() -> None:
    script = Script(a=Shard())
    numbers = [script.write("a", "x") for _ in range(2)]
    script.shards["a"].empty = 30
    found = await read(Backfill(script, empty_seconds=1.0), numbers[0], lambda: None)
    assert found is not None
    assert [number_of(change) for change in found] == numbers[1:]


async def test_throttled_reads_of_older_changes_are_repeated_at_a_lower_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Script(a=Shard())
    numbers = [script.write("a", "x") for _ in range(3)]
    script.fail("GetRecords", Throttled("busy"), Throttled("busy"))
    asked_at: list[float] = []
    call = script.call

    async def timed(operation: str, payload: dict[str, Any], /, *, timeout: float) -> dict[str, Any]:  # noqa: ASYNC109
        if operation == "GetRecords":
            asked_at.append(asyncio.get_running_loop().time())
        return await call(operation, payload, timeout=timeout)

    monkeypatch.setattr(script, "call", timed)
    found = await read(Backfill(script, empty_seconds=0), numbers[0], lambda: numbers[2])

    assert found is not None
    assert [number_of(change) for change in found] == numbers[1:2]
    shortest = [FIRST_INTERVAL_SECONDS * (1 - JITTER), 2 * FIRST_INTERVAL_SECONDS * (1 - JITTER)]
    assert [later - earlier >= least for (earlier, later), least in zip(pairwise(asked_at), shortest, strict=True)] == [
        True,
        True,
    ]


FAULTS = [Throttled("busy"), Unavailable("gone"), Timeout("late"), RequestRefused("AccessDenied", "not yet")]


async def test_an_outage_while_older_changes_are_read_is_waited_out() -> None:
    script = Script(a=Shard())
    numbers = [script.write("a", "x") for _ in range(3)]
    script.fail("GetShardIterator", *FAULTS)
    script.fail("GetRecords", *FAULTS)
    older = Backfill(script, seconds=0.3, empty_seconds=0)  # less than the outage takes
    found = await read(older, numbers[0], lambda: numbers[2])
    assert found is not None
    assert [number_of(change) for change in found] == numbers[1:2]


async def test_an_outage_that_goes_on_is_no_reason_to_start_over() -> None:
    script = Script(a=Shard())
    number = script.write("a", "x")
    script.fail("GetRecords", *FAULTS * 1000)
    with pytest.raises(Unavailable) as told:
        await read(Backfill(script, patience=0.15), number, lambda: None)
    assert told.value.extensions == {"code": "UNAVAILABLE", "retryable": True}
    assert "GetRecords" in script.calls


@pytest.mark.parametrize(("name", "is_refused"), [("ValidationException", True), ("TrimmedDataAccessException", False)])
async def test_what_the_stream_says_of_a_place_is_final(name: str, is_refused: bool) -> None:
    script = Script(a=Shard())
    script.fail("GetShardIterator", RequestRefused(name, "no"))
    reading = read(Backfill(script), 5, lambda: None)
    if is_refused:
        with pytest.raises(ResumeTokenRefused):
            await reading
    else:
        assert await reading is None
