"""Change feeds on the real engine."""

import asyncio
import random
import socket
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Self

import aiohttp
import boto3
import orjson
import pytest

from datastore.change_streams import change_feed as changes_module
from datastore.change_streams.change_feed import ChangeFeed
from datastore.change_streams.shards import stream_reader as module
from datastore.change_streams.shards.shard_reader import StreamMissing
from datastore.change_streams.shards.stream_reader import ChangesLost, StreamReader
from datastore.dynamodb.client import RequestRefused
from datastore.dynamodb.retry.backoff import Backoff
from datastore.engine.programs import EngineMissing, find_binary
from datastore.errors import SlowSubscriber, TableMissing, Unavailable
from datastore.model.access_patterns import Table
from datastore.queues import OverflowPolicy, QueueLimits
from tests.support.change_feeds import BLIP, every, reader_tasks, scripted, take_changes
from tests.support.changes import Numbers, number_of
from tests.support.scripted_stream import Script, Shard
from tests.support.store_engines import ROOT
from tests.support.until import until

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
    """An engine that can be killed. Without a file it then loses all its data."""

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


async def test_writes_of_other_clients_are_seen(engine: Engine, session: aiohttp.ClientSession) -> None:
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
        insert, modify, remove = await take_changes(events, 3)
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


async def test_earlier_writes_are_not_seen(engine: Engine, session: aiohttp.ClientSession) -> None:
    engine.put(1)
    async with feed_of(engine, session).follow(BLIP, number_of) as events:
        engine.put(2)
        assert await take_changes(events, 1) == [2]


class EngineWriter:
    """A context manager that writes 1, 2, 3… as fast as possible in a thread of its own."""

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
    feed, writer, written = feed_of(engine, session), EngineWriter(engine), asyncio.Event()
    joined: list[int] = []

    async def follow() -> list[int]:
        async with feed.follow(BLIP, number_of, limits=QueueLimits(max_events=100_000)) as events:
            joined.append(bound := writer.begun + 1)
            await written.wait()
            seen = await take_changes(events, 1)
            while seen[-1] < writer.begun:
                seen += await take_changes(events, 1)
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
    async with EngineWriter(engine) as writer:
        for _ in range(20):
            async with feed_of(engine, session).follow(BLIP, number_of) as events:
                bound = writer.begun + 1
                seen = await take_changes(events, 10)
            assert seen == list(range(seen[0], seen[0] + 10))
            assert seen[0] <= bound


async def test_each_key_comes_in_order(engine: Engine, session: aiohttp.ClientSession) -> None:
    def write(key: str) -> None:
        for number in range(40):
            engine.put(number, key)

    async with feed_of(engine, session).follow(BLIP, every, limits=QueueLimits(max_events=1000)) as events:
        await asyncio.gather(*(asyncio.to_thread(write, key) for key in "abcd"))
        seen = await take_changes(events, 160)
    for key in "abcd":
        assert [number_of(change) for change in seen if change.keys["pk"] == key] == list(range(40))


async def test_a_follower_that_stops_reading_is_disconnected(engine: Engine, session: aiohttp.ClientSession) -> None:
    feed = feed_of(engine, session)
    async with (
        feed.follow(BLIP, number_of, limits=QueueLimits(max_events=5)) as stuck,
        feed.follow(BLIP, number_of) as sound,
        feed.follow(BLIP, number_of, limits=QueueLimits(OverflowPolicy.LATEST, 1)) as newest,
    ):
        for number in range(30):
            await asyncio.to_thread(engine.put, number)
        assert await take_changes(sound, 30) == list(range(30))
        with pytest.raises(SlowSubscriber):
            await anext(stuck)
        assert await take_changes(newest, 1) == [29]
        assert newest.dropped == 29


async def test_the_last_follower_stops_the_reader(engine: Engine, session: aiohttp.ClientSession) -> None:
    feed = feed_of(engine, session)
    for _ in range(3):
        async with feed.follow(BLIP, every):
            async with feed.follow(BLIP, every):
                assert len(reader_tasks()) == 2  # of the table and its one shard, shared by both followers
            assert len(reader_tasks()) == 2
        assert not reader_tasks()


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
        assert not reader_tasks()


async def test_closing_the_feed_ends_the_iterations(engine: Engine, session: aiohttp.ClientSession) -> None:
    feed = feed_of(engine, session)
    async with feed.follow(BLIP, every) as events:
        await feed.aclose()
        assert not reader_tasks()
        assert [event async for event in events] == []


async def test_a_table_without_a_stream_is_refused(engine: Engine, session: aiohttp.ClientSession) -> None:
    engine.create(MUTE)
    feed = feed_of(engine, session)
    with pytest.raises(StreamMissing, match=f"{PREFIX}Mute has no stream"):
        async with feed.follow(MUTE, every):
            pass
    with pytest.raises(TableMissing, match=f"{PREFIX}Nowhere does not exist"):
        async with feed.follow(Table("Nowhere", "pk", "sk"), every):
            pass
    assert not reader_tasks()


async def test_nothing_is_lost_when_the_engine_is_killed(durable: Engine, session: aiohttp.ClientSession) -> None:
    async with feed_of(durable, session).follow(BLIP, number_of, limits=QueueLimits(max_events=1000)) as events:
        expected: list[int] = []
        for round_ in range(2):
            for number in range(round_ * 40, round_ * 40 + 40):
                await asyncio.to_thread(durable.put, number)
                expected.append(number)
            durable.kill()
            await asyncio.to_thread(durable.start)
        durable.put(80)
        assert await take_changes(events, 81) == [*expected, 80]


async def test_a_replaced_store_is_reported(engine: Engine, session: aiohttp.ClientSession) -> None:
    feed = feed_of(engine, session)
    async with feed.follow(BLIP, number_of) as events:
        engine.put(1)
        assert await take_changes(events, 1) == [1]
        engine.kill()
        await asyncio.to_thread(engine.start)
        engine.create(BLIP)
        with pytest.raises(ChangesLost):
            await take_changes(events, 2)  # one may come from the new store before the feed notices the replacement
        async with feed.follow(BLIP, number_of) as again:
            engine.put(2)
            assert await take_changes(again, 1) == [2]
    assert not reader_tasks()


@pytest.fixture(autouse=True)
def _short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRIES", Backoff(0.005, 0.05))


# Resuming


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


async def test_a_subscriber_that_returns_within_the_linger_shares_the_same_reader(
    engine: Engine, session: aiohttp.ClientSession
) -> None:
    feed = ChangeFeed(HttpWire(engine.port, session), prefix=PREFIX, poll_interval=POLL, linger=30)
    async with feed.follow(BLIP, number_of) as events:
        engine.put(1)
        assert await take_changes(events, 1) == [1]
        place = events.token
    for number in range(2, 5):
        engine.put(number)
    async with feed.follow(BLIP, number_of, after=place) as events:
        assert not events.is_too_old
        assert await take_changes(events, 3) == [2, 3, 4]
        engine.put(5)
        assert await take_changes(events, 1) == [5]
    assert reader_tasks()
    await feed.aclose()
    assert not reader_tasks()


async def test_a_subscriber_that_joins_as_the_linger_ends_has_a_reader() -> None:
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
            return await take_changes(events, 1)

    # A timer of the same turn of the loop wakes the task before the work that the linger's timer starts.
    coming = asyncio.create_task(come())
    asyncio.get_running_loop().call_at(followed.stop_timer.when() - 1e-7, comes.set_result, None)
    assert await coming == [99]
    assert feed._tables[BLIP.name] is not followed
    await feed.aclose()


async def test_an_idle_table_keeps_no_old_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes_module, "DROP_SECONDS", 0.01)
    script = Script(a=Shard())
    feed = scripted(script)
    async with feed.follow(BLIP, number_of) as events:
        for _ in range(3):
            script.write("a", "x")
        await take_changes(events, 3)
        log = feed._tables[BLIP.name].log
        assert len(log._recent.entries) == 3
        log._kept = 0.0
        await until(lambda: len(log._recent.entries) == 1)  # the last one holds the position of all shards


@pytest.mark.proof
async def test_changes_before_the_log_are_read_from_the_stream(engine: Engine, session: aiohttp.ClientSession) -> None:
    async with feed_of(engine, session).follow(BLIP, number_of) as events:
        engine.put(1)
        await take_changes(events, 1)
        place = events.token
    for number in range(2, 1500):
        engine.put(number)
    async with feed_of(engine, session).follow(BLIP, number_of, after=place) as events:
        engine.put(1500)
        assert await take_changes(events, 1499) == [*range(2, 1501)]
