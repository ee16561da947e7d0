"""Change feeds of several processes on one bus: real Redis, real engine, and whatever may happen to either."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from redis_server import RedisServer

from datastore.bus.host import Bus
from datastore.changes import ChangeFeed, Following
from datastore.database import Database
from datastore.declarations import Table
from datastore.errors import TableMissing
from datastore.keyspace.sightings import BLIP
from datastore.shards import Wire
from datastore.streams import Change


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    server = RedisServer()
    yield server
    server.close()


class Counting:
    """The wire, and how often streams were read over it."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self.reads = 0

    async def call(self, operation: str, payload: dict[str, Any], /, *, timeout: float) -> dict[str, Any]:  # noqa: ASYNC109
        self.reads += operation == "GetRecords"
        return await self._wire.call(operation, payload, timeout=timeout)


class Process:
    """What a process has of its own: a wire, a bus, and a feed."""

    def __init__(self, wire: Wire, prefix: str, url: str, patience: float, lease_seconds: float) -> None:
        self.wire = Counting(wire)
        self.bus = Bus(url, prefix, patience=patience, lease_seconds=lease_seconds)
        self.problems: list[Exception] = []
        self.feed = ChangeFeed(
            self.wire,
            prefix=prefix,
            poll_interval=0.01,
            discover_interval=0.2,
            bus=self.bus,
            linger=0,
            on_error=lambda _, problem: self.problems.append(problem),
        )

    @property
    def source(self) -> Any:
        (source,) = self.bus._sources
        return source

    async def close(self) -> None:
        await self.feed.aclose()
        await self.bus.aclose()

    async def vanish(self) -> None:
        """As a process does that is killed: nothing is given up, nothing said."""
        self.bus.is_away = True
        await self.close()


class Hosts:
    """Processes, and a table that they follow."""

    def __init__(self, database: Database, redis: RedisServer, stack: AsyncExitStack) -> None:
        self.database = database
        self._redis = redis
        self._stack = stack
        self._written = 0

    def process(self, *, wire: Wire | None = None, patience: float = 5.0, lease_seconds: float = 60.0) -> Process:
        process = Process(wire or self.database.client, self.database.prefix, self._redis.url, patience, lease_seconds)
        self._stack.push_async_callback(process.close)
        return process

    async def follow(self, process: Process) -> Following[int]:
        return await self._stack.enter_async_context(process.feed.follow(BLIP, number_of, capacity=100_000))

    async def write(self, many: int = 1) -> list[int]:
        """The numbers of changes that were acknowledged."""
        numbers = [*range(self._written, self._written + many)]
        self._written += many
        for number in numbers:
            item = {"PK": {"S": f"k{number % 3}"}, "SK": {"S": "x"}, "n": {"N": str(number)}}
            await self.database.client.call("PutItem", {"TableName": self.database.prefix + BLIP.name, "Item": item})
        return numbers


@pytest.fixture
async def hosts(database: Database, redis: RedisServer) -> AsyncIterator[Hosts]:
    async with AsyncExitStack() as stack:
        yield Hosts(database, redis, stack)


def number_of(change: Change) -> int:
    assert change.new is not None
    number: int = change.new["n"]
    return number


async def take(events: Following[int], many: int) -> list[int]:
    async with asyncio.timeout(20):
        return [await anext(events) for _ in range(many)]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - plain values
            await asyncio.sleep(0.01)


def direct(*processes: Process) -> bool:
    return all(process.source.is_direct for process in processes)


def on_bus(*processes: Process) -> bool:
    """Whether all of them read the bus, and one relays."""
    sources = [process.source for process in processes]
    return all(one.place is not None for one in sources) and sum(one.is_relaying for one in sources) == 1


async def reads_settle(*processes: Process) -> None:
    """Wait until only one of them reads the table's stream."""
    await until(lambda: on_bus(*processes))
    before = [process.wire.reads for process in processes]
    await until(lambda: sum(one.wire.reads - was for one, was in zip(processes, before, strict=True)) > 20)
    assert sum(one.wire.reads > was for one, was in zip(processes, before, strict=True)) == 1


async def test_one_process_reads_for_all_and_each_tells_all_in_order(hosts: Hosts) -> None:
    processes = [hosts.process() for _ in range(3)]
    following = [await hosts.follow(process) for process in processes]

    written = await hosts.write(30)

    for events in following:
        assert await take(events, 30) == written
    assert sorted(process.wire.reads > 0 for process in processes) == [False, False, True]


async def test_who_comes_later_sees_what_is_written_from_then_on(hosts: Hosts) -> None:
    one, other = hosts.process(), hosts.process()
    first = await hosts.follow(one)
    written = await hosts.write(5)
    assert await take(first, 5) == written

    second = await hosts.follow(other)
    more = await hosts.write(5)

    assert await take(second, 5) == await take(first, 5) == more


async def test_another_takes_over_at_once_when_the_holder_leaves(hosts: Hosts) -> None:
    holder, other = hosts.process(), hosts.process()
    await hosts.follow(holder)
    events = await hosts.follow(other)
    first = await hosts.write(3)

    await holder.close()
    second = await hosts.write(3)

    assert await take(events, 6) == first + second
    assert other.source.is_relaying


@pytest.mark.parametrize("before", [0, 3], ids=["before any change", "after some changes"])
async def test_another_takes_over_from_a_holder_that_is_gone(hosts: Hosts, before: int) -> None:
    holder, other = hosts.process(lease_seconds=1), hosts.process(lease_seconds=1)
    await hosts.follow(holder)
    events = await hosts.follow(other)
    first = await hosts.write(before)

    await holder.vanish()
    second = await hosts.write(3)

    assert await take(events, before + 3) == first + second
    assert other.source.is_relaying
    third = await hosts.write()
    assert await take(events, 1) == third


async def test_processes_read_directly_while_redis_is_gone_and_come_back_when_it_is_empty(
    hosts: Hosts, redis: RedisServer
) -> None:
    processes = [hosts.process() for _ in range(2)]
    following = [await hosts.follow(process) for process in processes]
    written = await hosts.write(5)

    redis.kill()
    written += await hosts.write(5)
    await until(lambda: direct(*processes))
    written += await hosts.write(5)
    redis.start()
    written += await hosts.write(5)
    await reads_settle(*processes)
    written += await hosts.write(5)

    for events in following:
        assert await take(events, 25) == written


async def test_a_redis_that_comes_back_empty_before_any_change_is_used_again(hosts: Hosts, redis: RedisServer) -> None:
    processes = [hosts.process() for _ in range(2)]
    following = [await hosts.follow(process) for process in processes]

    redis.kill()
    await until(lambda: direct(*processes))
    redis.start()
    await reads_settle(*processes)
    written = await hosts.write(5)

    for events in following:
        assert await take(events, 5) == written


async def test_processes_read_directly_while_redis_hangs(hosts: Hosts, redis: RedisServer) -> None:
    processes = [hosts.process(patience=0.5) for _ in range(2)]
    following = [await hosts.follow(process) for process in processes]
    written = await hosts.write(5)

    redis.pause()
    written += await hosts.write(5)
    for events in following:
        assert await take(events, 10) == written
    assert direct(*processes)
    redis.go_on()
    await reads_settle(*processes)
    more = await hosts.write(5)

    for events in following:
        assert await take(events, 5) == more


async def test_a_redis_that_forgets_everything_loses_nothing(hosts: Hosts, redis: RedisServer) -> None:
    processes = [hosts.process() for _ in range(3)]
    following = [await hosts.follow(process) for process in processes]
    written = await hosts.write(5)

    for _ in range(3):
        redis.client.flushall()
        written += await hosts.write(5)
    await reads_settle(*processes)
    written += await hosts.write(5)

    for events in following:
        assert await take(events, 25) == written


async def test_a_redis_that_goes_back_to_an_older_copy_loses_nothing(hosts: Hosts, redis: RedisServer) -> None:
    processes = [hosts.process() for _ in range(2)]
    following = [await hosts.follow(process) for process in processes]
    written = await hosts.write(5)
    for events in following:
        assert await take(events, 5) == written
    raw = redis.client
    raw.connection_pool.connection_kwargs["decode_responses"] = False
    raw.connection_pool.disconnect()
    copy = {key: raw.dump(key) for key in raw.scan_iter()}
    more = await hosts.write(5)
    for events in following:
        assert await take(events, 5) == more

    with raw.pipeline(transaction=True) as swap:
        swap.flushall()
        for key, value in copy.items():
            swap.restore(key, 60_000, value)
        swap.execute()
    last = await hosts.write(5)

    for events in following:
        assert await take(events, 5) == last
    await reads_settle(*processes)


async def test_what_was_trimmed_before_a_slow_process_read_it_is_read_from_the_stream(
    hosts: Hosts, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, slow = hosts.process(), hosts.process()
    first, second = await hosts.follow(holder), await hosts.follow(slow)
    go_on, read = asyncio.Event(), slow.bus.connection.read

    async def slowly(places: Any) -> Any:
        await go_on.wait()
        return await read(places)

    monkeypatch.setattr(slow.bus.connection, "read", slowly)
    await asyncio.sleep(0.3)  # what is being read has been read
    written = await hosts.write(10)
    assert await take(first, 10) == written
    redis.client.xtrim(changes_key(redis), maxlen=3, approximate=False)
    go_on.set()

    assert await take(second, 10) == written
    await reads_settle(holder, slow)


def changes_key(redis: RedisServer) -> str:
    (key,) = [key for key in redis.client.scan_iter() if key.endswith("changes")]  # type: ignore[union-attr]
    return str(key)


async def test_what_others_put_on_the_bus_is_told_and_passed_over(hosts: Hosts, redis: RedisServer) -> None:
    one, other = hosts.process(), hosts.process()
    following = [await hosts.follow(one), await hosts.follow(other)]
    written = await hosts.write(2)
    for events in following:
        assert await take(events, 2) == written
    epoch = one.source._epoch
    key = changes_key(redis)
    (_, (_, last)) = redis.client.xrange(key)  # type: ignore[misc]

    for damaged in (
        {"what": "ever"},
        {**last, "e": "another"},
        {**last, "n": "none"},
        {**last, "p": "", "s": "unknown", "r": "{"},
        {**last, "s": "another"},
    ):
        told = len(one.problems)
        redis.client.xadd(key, damaged)
        await until(lambda told=told: len(one.problems) > told)  # type: ignore[misc]
        written = await hosts.write(2)
        for events in following:
            assert await take(events, 2) == written
    assert one.source._epoch == epoch


async def test_keys_that_others_made_something_else_of_are_made_anew(hosts: Hosts, redis: RedisServer) -> None:
    processes = [hosts.process() for _ in range(2)]
    following = [await hosts.follow(process) for process in processes]
    written = await hosts.write(2)

    for key in [*redis.client.scan_iter()]:
        redis.client.set(key, "something else")
        written += await hosts.write(2)
    await reads_settle(*processes)

    for events in following:
        assert await take(events, len(written)) == written


async def test_a_process_that_begins_without_redis_reads_directly_until_it_is_there(
    hosts: Hosts, redis: RedisServer
) -> None:
    redis.kill()
    process = hosts.process()
    events = await hosts.follow(process)
    written = await hosts.write(3)
    assert await take(events, 3) == written

    redis.start()
    await reads_settle(process)

    more = await hosts.write(2)
    assert await take(events, 2) == more


async def test_a_table_that_is_missing_is_told_to_who_follows(hosts: Hosts) -> None:
    process = hosts.process()

    with pytest.raises(TableMissing):
        async with process.feed.follow(Table("Missing", "PK"), number_of):
            pass
