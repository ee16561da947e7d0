"""Streams of many shards over the bus: a scripted stream (the embedded engine has one shard) and real Redis."""

from datetime import timedelta

import pytest

from datastore.change_streams.shards.stream_reader import ChangesLost
from tests.support.bus_hosts import Hosts, direct, hosts, on_bus, reads_settle, take_numbers
from tests.support.redis_server import RedisServer, redis
from tests.support.scripted_stream import Script, Shard
from tests.support.until import until

__all__ = ["hosts", "redis"]


@pytest.fixture
def script() -> Script:
    return Script(a=Shard(), b=Shard())


async def test_processes_deliver_the_same_order_and_the_same_positions(hosts: Hosts, script: Script) -> None:
    processes = [hosts.process() for _ in range(2)]
    first, second = [await hosts.follow(process) for process in processes]
    for number in range(20):
        script.write("ab"[number % 2], "x")

    for _ in range(20):
        assert await take_numbers(first, 1) == await take_numbers(second, 1)
        assert first.token == second.token


async def test_children_come_after_their_parents_whichever_process_reads(hosts: Hosts, script: Script) -> None:
    holder, other = hosts.process(lease_seconds=1), hosts.process(lease_seconds=1)
    await hosts.follow(holder)
    events = await hosts.follow(other)
    written = [script.write("a", "x") for _ in range(3)]
    assert await take_numbers(events, 3) == written

    await holder.vanish()
    written = [script.write("a", "x")]
    script.shards["a"].closed = True
    script.shards |= {"c": Shard("a"), "d": Shard("a")}
    written += [script.write("c", "x"), script.write("c", "x")]
    assert await take_numbers(events, 3) == written

    third = hosts.process()
    late = await hosts.follow(third)
    more = [script.write("d", "x"), script.write("b", "x")]
    assert set(await take_numbers(events, 2)) == set(await take_numbers(late, 2)) == set(more)


async def test_a_new_process_that_starts_a_new_epoch_leaves_no_gap_to_others(
    hosts: Hosts, script: Script, redis: RedisServer
) -> None:
    """It does not know which changes the others delivered. They read on until they see that nothing is missing."""
    old = hosts.process(lease_seconds=0.2)
    events = await hosts.follow(old)
    first = [script.write("a", "x"), script.write("b", "x")]
    assert set(await take_numbers(events, 2)) == set(first)
    redis.kill()
    await until(lambda: direct(old))
    old.bus.is_away = True
    old.bus._tasks[1].cancel()  # it does not probe Redis for a while
    redis.start()
    fresh = hosts.process()
    others = await hosts.follow(fresh)
    between = [script.write("a", "x")]
    assert await take_numbers(events, 1) == await take_numbers(others, 1) == between

    old.bus.is_away = False
    last = [script.write("a", "x"), script.write("b", "x")]
    assert set(await take_numbers(events, 2)) == set(await take_numbers(others, 2)) == set(last)
    await reads_settle(old, fresh)


@pytest.mark.proof
async def test_trimmed_shards_are_forgotten(hosts: Hosts, script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datastore.change_streams.shards.stream_reader.RETENTION", timedelta(0))
    one, other = hosts.process(), hosts.process()
    await hosts.follow(one)
    events = await hosts.follow(other)
    script.write("a", "x")
    script.shards["a"].closed = True
    script.shards["c"] = Shard("a")
    written = script.write("c", "x")
    assert (await take_numbers(events, 2))[1] == written

    del script.shards["a"]
    await until(lambda: "a" not in other.source._delivered.shards)
    await one.close()
    await until(lambda: on_bus(other))

    more = script.write("c", "x")
    assert await take_numbers(events, 1) == [more]


async def test_a_loss_of_the_stream_is_reported_to_all(hosts: Hosts, script: Script, redis: RedisServer) -> None:
    processes = [hosts.process() for _ in range(2)]
    following = [await hosts.follow(process) for process in processes]
    written = [script.write("a", "x")]
    for events in following:
        assert await take_numbers(events, 1) == written

    redis.kill()
    script.write("a", "x")
    script.shards["a"].trimmed = 5

    for events in following:
        with pytest.raises(ChangesLost):
            await take_numbers(events, 2)


async def test_a_replaced_stream_is_reported_to_all_and_read_again(hosts: Hosts, script: Script) -> None:
    processes = [hosts.process() for _ in range(2)]
    following = [await hosts.follow(process) for process in processes]
    script.write("a", "x")
    for events in following:
        await take_numbers(events, 1)

    script.arn = "arn:2"

    for events in following:
        with pytest.raises(ChangesLost):
            await take_numbers(events, 1)
    again = [await hosts.follow(process) for process in processes]
    written = script.write("a", "x")
    for events in again:
        assert await take_numbers(events, 1) == [written]
