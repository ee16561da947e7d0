"""Change feeds of several processes on one bus, with real Redis, the real engine, and failures of either."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from datastore.database import Database
from datastore.errors import TableMissing
from datastore.model.access_patterns import Table
from tests.support.bus_hosts import BusProcess, Hosts, direct, reads_settle, take_numbers
from tests.support.changes import number_of
from tests.support.redis_server import RedisServer, redis
from tests.support.until import until

__all__ = ["redis"]


@pytest.fixture
async def hosts(database: Database, redis: RedisServer) -> AsyncIterator[Hosts]:
    async with AsyncExitStack() as stack:
        yield Hosts(database.client, database.prefix, redis, stack)


async def test_one_process_reads_for_all_and_each_delivers_all_changes_in_order(hosts: Hosts) -> None:
    processes = [hosts.process() for _ in range(3)]
    following = [await hosts.follow(process) for process in processes]

    written = await hosts.write(30)

    for events in following:
        assert await take_numbers(events, 30) == written
    assert sorted(process.wire.reads > 0 for process in processes) == [False, False, True]


async def test_a_late_subscriber_sees_the_writes_from_then_on(hosts: Hosts) -> None:
    one, other = hosts.process(), hosts.process()
    first = await hosts.follow(one)
    written = await hosts.write(5)
    assert await take_numbers(first, 5) == written

    second = await hosts.follow(other)
    more = await hosts.write(5)

    assert await take_numbers(second, 5) == await take_numbers(first, 5) == more


async def test_another_process_takes_over_at_once_when_the_holder_leaves(hosts: Hosts) -> None:
    holder, other = hosts.process(), hosts.process()
    await hosts.follow(holder)
    events = await hosts.follow(other)
    first = await hosts.write(3)

    await holder.close()
    second = await hosts.write(3)

    assert await take_numbers(events, 6) == first + second
    assert other.source.is_relaying


@pytest.mark.parametrize("before", [0, 3], ids=["before any change", "after some changes"])
async def test_another_process_takes_over_from_a_holder_that_is_gone(hosts: Hosts, before: int) -> None:
    holder, other = hosts.process(lease_seconds=1), hosts.process(lease_seconds=1)
    await hosts.follow(holder)
    events = await hosts.follow(other)
    first = await hosts.write(before)

    await holder.vanish()
    second = await hosts.write(3)

    assert await take_numbers(events, before + 3) == first + second
    assert other.source.is_relaying
    third = await hosts.write()
    assert await take_numbers(events, 1) == third


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
        assert await take_numbers(events, 25) == written


async def test_a_redis_that_comes_back_empty_before_any_change_is_used_again(hosts: Hosts, redis: RedisServer) -> None:
    processes = [hosts.process() for _ in range(2)]
    following = [await hosts.follow(process) for process in processes]

    redis.kill()
    await until(lambda: direct(*processes))
    redis.start()
    await reads_settle(*processes)
    written = await hosts.write(5)

    for events in following:
        assert await take_numbers(events, 5) == written


async def test_processes_read_directly_while_redis_hangs(hosts: Hosts, redis: RedisServer) -> None:
    processes = [hosts.process(timeout_seconds=0.5) for _ in range(2)]
    following = [await hosts.follow(process) for process in processes]
    written = await hosts.write(5)

    redis.pause()
    written += await hosts.write(5)
    for events in following:
        assert await take_numbers(events, 10) == written
    await until(lambda: direct(*processes))
    redis.go_on()
    await reads_settle(*processes)
    more = await hosts.write(5)

    for events in following:
        assert await take_numbers(events, 5) == more


async def test_no_change_is_lost_when_redis_loses_its_data(hosts: Hosts, redis: RedisServer) -> None:
    processes = [hosts.process() for _ in range(3)]
    following = [await hosts.follow(process) for process in processes]
    written = await hosts.write(5)

    for _ in range(3):
        redis.client.flushall()
        written += await hosts.write(5)
    await reads_settle(*processes)
    written += await hosts.write(5)

    for events in following:
        assert await take_numbers(events, 25) == written


async def test_no_change_is_lost_when_redis_returns_to_an_older_copy(hosts: Hosts, redis: RedisServer) -> None:
    """This holds even for a process that had not read the changes missing in the copy, without a later write."""
    holder, slow = hosts.process(), hosts.process()
    first, second = await hosts.follow(holder), await hosts.follow(slow)
    written = await hosts.write(5)
    assert await take_numbers(first, 5) == await take_numbers(second, 5) == written
    copy = redis.copy()
    go_on = await held_up(slow)
    more = await hosts.write(5)
    assert await take_numbers(first, 5) == more

    redis.go_back(copy)
    go_on.set()

    assert await take_numbers(second, 5) == more
    last = await hosts.write(5)
    assert await take_numbers(first, 5) == await take_numbers(second, 5) == last
    await reads_settle(holder, slow)


async def test_a_failure_to_receive_changes_loses_none_and_delays_nothing(hosts: Hosts) -> None:
    holder, other = hosts.process(), hosts.process()
    await hosts.follow(holder)
    events = await hosts.follow(other)
    receive = other.source.receive

    async def broken(*_: Any) -> None:
        other.source.receive = receive
        raise ValueError("a fault")

    other.source.receive = broken
    written = await hosts.write(5)

    assert await take_numbers(events, 5) == written
    assert [str(problem) for problem in other.problems] == ["a fault"]


async def held_up(process: BusProcess) -> asyncio.Event:
    """Pause the process's reads of the bus until the returned event is set. The read in progress is completed first."""
    go_on, waiting, read = asyncio.Event(), asyncio.Event(), process.bus.commands.read

    async def slowly(after: Any) -> Any:
        waiting.set()
        await go_on.wait()
        return await read(after)

    process.bus.commands.read = slowly  # type: ignore[method-assign]
    await waiting.wait()
    return go_on


async def test_trimmed_entries_are_read_from_the_stream_by_a_slow_process(hosts: Hosts, redis: RedisServer) -> None:
    holder, slow = hosts.process(), hosts.process()
    first, second = await hosts.follow(holder), await hosts.follow(slow)
    go_on = await held_up(slow)
    written = await hosts.write(5)
    assert await take_numbers(first, 5) == written
    written += await hosts.write(5)
    assert await take_numbers(first, 5) == written[5:]
    assert redis.client.xtrim(changes_key(redis), maxlen=1, approximate=False)
    go_on.set()

    assert await take_numbers(second, 10) == written
    await reads_settle(holder, slow)


def changes_key(redis: RedisServer) -> str:
    (key,) = [key for key in redis.client.scan_iter() if key.endswith("changes")]
    return str(key)


async def test_foreign_entries_on_the_bus_are_reported_and_skipped(hosts: Hosts, redis: RedisServer) -> None:
    one, other = hosts.process(), hosts.process()
    following = [await hosts.follow(one), await hosts.follow(other)]
    written = await hosts.write(2)
    for events in following:
        assert await take_numbers(events, 2) == written
    key = changes_key(redis)
    (_, last) = redis.client.xrange(key)[-1]
    epoch, shard, follows, counts, records = last["c"].split("\n", 4)
    body = json.loads(records)[-1]["dynamodb"]
    nameless = json.dumps([{"dynamodb": {**body, "SequenceNumber": "none"}}])

    for damaged in (
        {"what": "ever"},
        {"c": "ever"},
        {"c": "\n".join(["another", shard, follows, counts, records])},
        {"c": "\n".join([epoch, shard, follows, counts, nameless])},
        {"c": "\n".join([epoch, shard, follows, "none", "{"])},
        {"c": "\n".join([epoch, shard, follows, counts, "5"])},
        {"c": "\n".join([epoch, "unknown", "", counts, json.dumps([{"dynamodb": {"SequenceNumber": "7"}}])])},
        {"c": "\n".join([epoch, "another", body["SequenceNumber"], counts, records])},
    ):
        reported = len(one.problems)
        redis.client.xadd(key, damaged)
        await until(lambda reported=reported: len(one.problems) > reported)  # type: ignore[misc]
        written = await hosts.write(2)
        for events in following:
            assert await take_numbers(events, 2) == written
    assert one.source._epoch == epoch


async def test_keys_of_another_type_are_replaced(hosts: Hosts, redis: RedisServer) -> None:
    processes = [hosts.process() for _ in range(2)]
    following = [await hosts.follow(process) for process in processes]
    written = await hosts.write(2)

    for key in [*redis.client.scan_iter()]:
        redis.client.set(key, "something else")
        written += await hosts.write(2)
    await reads_settle(*processes)

    for events in following:
        assert await take_numbers(events, len(written)) == written


async def test_a_process_that_starts_without_redis_reads_directly_until_redis_is_up(
    hosts: Hosts, redis: RedisServer
) -> None:
    redis.kill()
    process = hosts.process()
    events = await hosts.follow(process)
    written = await hosts.write(3)
    assert await take_numbers(events, 3) == written

    redis.start()
    await reads_settle(process)

    more = await hosts.write(2)
    assert await take_numbers(events, 2) == more


async def test_a_missing_table_is_reported_to_its_subscribers(hosts: Hosts) -> None:
    process = hosts.process()

    with pytest.raises(TableMissing):
        async with process.feed.follow(Table("Missing", "PK"), number_of):
            pass
