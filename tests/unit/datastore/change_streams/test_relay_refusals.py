"""A Redis that answers with refusals: it is full, takes no writes, or the user may not run a command."""

import logging
import re
from contextlib import AsyncExitStack
from typing import Any

import pytest

import datastore.change_streams.shards.stream_reader as module
from datastore.change_streams.change_subscription import ChangeSubscription
from datastore.change_streams.relay.commands import RelayCommands
from datastore.change_streams.shards.checkpoints import Reached
from datastore.dynamodb.retry.backoff import Backoff
from datastore.errors import Unavailable
from tests.support.bus_hosts import BusProcess, Hosts, direct, hosts, on_bus, take_numbers
from tests.support.bus_pages import Line
from tests.support.redis_server import RedisServer, redis
from tests.support.scripted_stream import Script, Shard
from tests.support.store_engines import ROOT
from tests.support.until import until

__all__ = ["hosts", "redis"]


@pytest.fixture
def script() -> Script:
    return Script(a=Shard())


class Two:
    """Two processes that follow a table through the bus."""

    def __init__(self, script: Script, processes: list[BusProcess], following: list[ChangeSubscription[int]]) -> None:
        self.script = script
        self.processes = processes
        self.following = following

    async def deliver_next(self) -> None:
        written = self.script.write("a", "x")
        for events in self.following:
            assert await take_numbers(events, 1) == [written]

    async def go_away(self) -> None:
        """Check that changes are delivered soon during the outage, and that it is one outage without flapping."""
        self.script.write("a", "x")
        await until(lambda: direct(*self.processes) and all(process.bus.is_away for process in self.processes))
        for events in self.following:
            await take_numbers(events, 1)
        probed = [await probes(process) for process in self.processes]
        await self.deliver_next()
        await until(lambda: all(next_probe() > 2 for next_probe in probed))
        assert direct(*self.processes)
        assert [process.bus._outages for process in self.processes] == [1, 1]

    async def come_back(self) -> None:
        await until(lambda: on_bus(*self.processes))
        await self.deliver_next()
        # A probe may still have reached the previous Redis.
        await until(lambda: on_bus(*self.processes) and not any(process.bus.is_away for process in self.processes))


async def probes(process: BusProcess) -> Any:
    """Count the process's probes of Redis from now on. Return a function that returns the count."""
    probe, many = process.bus.commands.probe, 0

    async def counted() -> None:
        nonlocal many
        many += 1
        await probe()

    process.bus.commands.probe = counted  # type: ignore[method-assign]
    return lambda: many


@pytest.fixture
async def two(hosts: Hosts, script: Script, monkeypatch: pytest.MonkeyPatch) -> Two:
    monkeypatch.setattr("datastore.change_streams.relay.bus.RETRY_SECONDS", 0.05)
    processes = [hosts.process() for _ in range(2)]
    two = Two(script, processes, [await hosts.follow(process) for process in processes])
    await two.deliver_next()
    return two


async def test_processes_read_directly_while_redis_is_full(two: Two, redis: RedisServer) -> None:
    redis.client.config_set("maxmemory-policy", "noeviction")
    redis.client.config_set("maxmemory", 1)
    await two.go_away()
    redis.client.config_set("maxmemory", 0)
    await two.come_back()


async def test_processes_read_directly_while_redis_takes_no_writes(two: Two, redis: RedisServer) -> None:
    redis.client.replicaof("127.0.0.1", "1")
    await two.go_away()
    redis.client.replicaof("NO", "ONE")
    await two.come_back()


@pytest.mark.parametrize("command", ["xadd", "xread", "hset", "evalsha"])
async def test_processes_read_directly_until_redis_grants_the_missing_right(
    two: Two, redis: RedisServer, command: str
) -> None:
    allow(redis, f"-{command}")
    await two.go_away()
    allow(redis, f"+{command}")
    await two.come_back()


async def test_a_host_name_that_now_leads_to_another_redis_is_followed(
    script: Script, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old server lives on as a replica, so that only a new connection leaves it."""
    monkeypatch.setattr("datastore.change_streams.relay.bus.RETRY_SECONDS", 0.05)
    line, new = Line(redis.port), RedisServer()
    async with line.open() as url, AsyncExitStack() as stack:
        stack.callback(new.close)
        hosts = Hosts(script, "t__", redis, stack)
        redis.url = url
        process = hosts.process()
        two = Two(script, [process], [await hosts.follow(process)])
        await two.deliver_next()
        line.port = new.port
        redis.client.replicaof("127.0.0.1", "1")
        await until(lambda: process.bus.is_away)
        await two.come_back()
        assert [*new.client.scan_iter("*:state")]
        await process.close()


def allow(redis: RedisServer, rule: str) -> None:
    redis.client.execute_command("ACL", "SETUSER", "default", rule)


async def test_the_outage_and_its_end_are_reported_once(
    two: Two, redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    redis.client.replicaof("127.0.0.1", "1")
    await two.go_away()
    redis.client.replicaof("NO", "ONE")
    await two.come_back()
    messages = [record.getMessage() for record in caplog.records if record.name == "datastore.change_streams.relay.bus"]
    assert [line.partition(":")[0] for line in sorted(messages)] == [
        *["The bus is away, tables' streams are read directly"] * 2,
        *["The bus is back."] * 2,
    ]


async def test_a_failure_to_read_the_bus_ends_no_task(two: Two) -> None:
    """The task that reads for all tables continues."""
    for process in two.processes:
        read = process.bus.commands.read

        async def broken(*_: Any, process: BusProcess = process, read: Any = read) -> Any:
            process.bus.commands.read = read  # type: ignore[method-assign]
            raise ValueError("a fault")

        process.bus.commands.read = broken  # type: ignore[method-assign,assignment]
    await until(lambda: all(process.bus._outages == 1 for process in two.processes))
    await two.come_back()


# --- A table that one process cannot read -----------------------------------------------------------------------------


class Cut:
    """The wire of a process that can lose its connection to the store."""

    def __init__(self, process: BusProcess) -> None:
        self.is_cut = False
        self.refused = 0
        self._call = process.wire.call
        process.wire.call = self.call  # type: ignore[method-assign]

    async def call(self, *arguments: Any, **options: Any) -> Any:
        if self.is_cut:
            self.refused += 1
            raise Unavailable("no way")
        return await self._call(*arguments, **options)


@pytest.fixture(autouse=True)
def _short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRIES", Backoff(0.01, 0.05))


async def test_a_holder_that_cannot_read_the_table_leaves_it_to_another(two: Two) -> None:
    """Its lease lasts a minute, and it continues to renew it."""
    (holder,) = (process for process in two.processes if process.source.is_relaying)
    (other,) = (process for process in two.processes if process is not holder)
    cut = Cut(holder)
    cut.is_cut = True
    await until(lambda: cut.refused > 0)  # a read that began before could still return the next change
    await two.deliver_next()
    assert other.source.is_relaying
    assert not holder.source.is_direct
    assert [str(problem) for problem in holder.problems] == ["no way"]


async def test_an_unreadable_table_is_reported_once_and_continues(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datastore.change_streams.relay.leader.REFUSED_SECONDS", 0.2)
    cuts = [Cut(process) for process in two.processes]
    for cut in cuts:
        cut.is_cut = True
    await until(lambda: all(process.source.is_direct for process in two.processes))
    assert all(1 <= len(process.problems) <= 2 for process in two.processes)
    many = [cut.refused for cut in cuts]
    await until(lambda: all(cut.refused > before + 20 for cut, before in zip(cuts, many, strict=True)))
    assert all(1 <= len(process.problems) <= 2 for process in two.processes)
    for cut in cuts:
        cut.is_cut = False
    await two.come_back()


async def test_a_process_that_cannot_read_a_table_does_not_claim_it_for_a_while(
    two: Two, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each release appends an entry to the bus, which would push out changes."""
    monkeypatch.setattr("datastore.change_streams.relay.leader.REFUSED_SECONDS", 60)
    (key,) = redis.client.scan_iter("*:changes")
    kept = redis.client.xlen(key)
    cuts = [Cut(process) for process in two.processes]
    for cut in cuts:
        cut.is_cut = True
    await until(lambda: int(redis.client.xlen(key)) == kept + 2)
    for process in two.processes:
        for _ in range(20):
            await process.source._reconcile()
    assert redis.client.xlen(key) == kept + 2


async def test_the_rights_that_the_documentation_names_are_enough(redis: RedisServer) -> None:
    text = (ROOT / "docs" / "resources.md").read_text()
    named = re.search(r"A user of Redis for the bus needs `([^`]*)` and `([^`]*)`", text)
    assert named is not None
    rules = [*named[1].split(), *named[2].split()]
    redis.client.execute_command("ACL", "SETUSER", "bus", "on", ">word", *rules)
    url = redis.url.replace("//", "//bus:word@")
    bus = RelayCommands(url, "t__", timeout_seconds=5)
    await bus.probe()
    lease = (await bus.claim("Blip", "one")).lease
    await bus.begin("Blip", lease, "e", Reached("arn", {"s": "1"}))
    await bus.continue_epoch("Blip", lease, "e")
    await bus.append("Blip", lease, "e", "s", "1", [("2", b"{}")])
    (relayed,) = (await bus.read({"Blip": "0-0"}))["Blip"]
    assert len(await bus.past("Blip", 0, relayed[0])) == 1
    await bus.forget("Blip", ["s"])
    await bus.release("Blip", lease)
    await bus.aclose()


async def test_an_outage_of_both_redis_and_the_store_is_reported_once(two: Two, redis: RedisServer) -> None:
    cuts = [Cut(process) for process in two.processes]
    for cut in cuts:
        cut.is_cut = True
    redis.kill()
    await until(lambda: direct(*two.processes) and all(cut.refused > 10 for cut in cuts))
    for process in two.processes:
        for _ in range(10):
            await process.source._reconcile()
    assert direct(*two.processes)
    assert all(1 <= len(process.problems) <= 2 for process in two.processes)
    redis.start()
    for cut in cuts:
        cut.is_cut = False
    await two.come_back()
