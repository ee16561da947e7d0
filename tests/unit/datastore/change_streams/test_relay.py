"""The relay in Redis: which process holds a table's lease, and which changes it appends."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from datastore.change_streams.relay.commands import (
    BusRefused,
    BusUnavailable,
    RelayCommands,
    Relayed,
    RelayLeaseLost,
    RelayState,
    UnexpectedPosition,
)
from datastore.change_streams.relay.lua import ENTRY_BYTES, MAX_BYTES, MAX_CHANGES
from datastore.change_streams.shards.checkpoints import Reached, joined, lacking
from tests.support.redis_server import RedisServer

HERE = joined("o", "iterator")


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    server = RedisServer()
    yield server
    server.close()


@pytest.fixture
async def bus(redis: RedisServer) -> AsyncIterator[RelayCommands]:
    async with relay_commands(redis) as connection:
        yield connection


@asynccontextmanager
async def relay_commands(redis: RedisServer, lease_seconds: float = 60.0) -> AsyncIterator[RelayCommands]:
    redis.client.flushall()
    connection = RelayCommands(redis.url, "t__", timeout_seconds=5.0, lease_seconds=lease_seconds)
    try:
        yield connection
    finally:
        await connection.aclose()


async def begin_epoch(bus: RelayCommands, instance: str = "one", **shards: str) -> RelayState:
    """Start an epoch and return the resulting state."""
    lease = (await bus.claim("Blip", instance)).lease
    await bus.begin("Blip", lease, "e1", Reached("arn", shards or {"s": HERE}))
    return await bus.claim("Blip", instance)


async def relayed_numbers(bus: RelayCommands) -> list[str]:
    return [number for entry in await entries(bus) for number in record_numbers(entry)]


async def entries(bus: RelayCommands) -> list[Relayed]:
    return [entry for _, entry in (await bus.read({"Blip": "0-0"})).get("Blip", []) if isinstance(entry, Relayed)]


def record_numbers(entry: Relayed) -> list[str]:
    return [str(record["n"]) for record in json.loads(entry.records)]


def relay_page(*numbers: str) -> list[tuple[str, bytes]]:
    return [(number, b'{"n":%s}' % number.encode()) for number in numbers]


async def test_one_process_holds_a_table_until_it_releases_it(bus: RelayCommands) -> None:
    one = await bus.claim("Blip", "one")
    assert one.is_held_by("one")
    assert (await bus.claim("Blip", "other")).is_held_by("one")
    assert (await bus.claim("Other", "other")).is_held_by("other")

    await bus.release("Blip", one.lease)

    assert (await bus.claim("Blip", "other", may_claim=False)).lease == ""
    other = await bus.claim("Blip", "other")
    assert other.is_held_by("other")
    assert fence(other) > fence(one)


def fence(state: RelayState) -> int:
    return int(state.lease.partition(":")[0])


async def test_fencing_tokens_grow_although_redis_loses_its_data(bus: RelayCommands, redis: RedisServer) -> None:
    fences = []
    for _ in range(5):
        fences.append(fence(await bus.claim("Blip", "one")))
        redis.client.flushall()
    assert fences == sorted(set(fences))


@pytest.mark.proof
async def test_a_holder_that_was_paused_past_its_lease_appends_nothing(redis: RedisServer) -> None:
    async with relay_commands(redis, lease_seconds=2.5) as bus:
        paused = await begin_epoch(bus)
        async with asyncio.timeout(50):
            while (await bus.claim("Blip", "other")).is_held_by("one"):  # noqa: ASYNC110 - it is Redis's time
                await asyncio.sleep(0.01)

        with pytest.raises(RelayLeaseLost):
            await bus.append("Blip", paused.lease, "e1", "s", HERE, relay_page("1"))
        with pytest.raises(RelayLeaseLost):
            await bus.begin("Blip", paused.lease, "e2", Reached("arn", {}))
        with pytest.raises(RelayLeaseLost):
            await bus.continue_epoch("Blip", paused.lease, "e1")
        await bus.release("Blip", paused.lease)
        assert (await bus.claim("Blip", "other")).epoch == "e1"
        assert await relayed_numbers(bus) == []


@pytest.mark.proof
async def test_a_lease_expires_although_no_other_process_claims_it(redis: RedisServer) -> None:
    async with relay_commands(redis, lease_seconds=2.5) as bus:
        paused = await begin_epoch(bus)
        async with asyncio.timeout(50):
            while (await bus.claim("Blip", "other", may_claim=False)).lease:  # noqa: ASYNC110 - it is Redis's time
                await asyncio.sleep(0.01)

        with pytest.raises(RelayLeaseLost):
            await bus.append("Blip", paused.lease, "e1", "s", HERE, relay_page("1"))


async def test_numbers_of_forty_digits_are_distinguished(bus: RelayCommands) -> None:
    state = await begin_epoch(bus)
    all_ = ["9", "10", "9" * 39, "1" + "0" * 39, "1" + "0" * 38 + "1"]
    for number, follows in zip(all_, [HERE, *all_], strict=False):
        assert await bus.append("Blip", state.lease, "e1", "s", follows, relay_page(number)) == 1
        assert await bus.append("Blip", state.lease, "e1", "s", number, relay_page(number)) == 0
    assert await relayed_numbers(bus) == all_


async def test_a_page_that_does_not_follow_the_noted_position_is_not_appended(bus: RelayCommands) -> None:
    state = await begin_epoch(bus)
    for follows in ("5", joined("another", "iterator")):
        with pytest.raises(UnexpectedPosition):
            await bus.append("Blip", state.lease, "e1", "s", follows, relay_page("6"))
    with pytest.raises(UnexpectedPosition):
        await bus.append("Blip", state.lease, "e2", "s", HERE, relay_page("6"))
    assert await bus.append("Blip", state.lease, "e1", "s", joined("o", "a later iterator"), relay_page("6")) == 1
    with pytest.raises(UnexpectedPosition):
        await bus.append("Blip", state.lease, "e1", "s", HERE, relay_page("7"))
    assert await relayed_numbers(bus) == ["6"]


async def test_changes_of_a_page_share_entries_up_to_a_size(bus: RelayCommands) -> None:
    state = await begin_epoch(bus)
    await bus.append("Blip", state.lease, "e1", "s", HERE, relay_page("1", "2", "3"))
    large = [(number, b'{"n":%s,"x":"%s"}' % (number.encode(), b"x" * (ENTRY_BYTES // 2 - 20))) for number in "345678"]
    assert await bus.append("Blip", state.lease, "e1", "s", "2", large) == 5

    found = await entries(bus)
    assert [record_numbers(entry) for entry in found] == [["1", "2", "3"], ["4", "5"], ["6", "7"], ["8"]]
    assert [entry.follows_position for entry in found] == [HERE, "3", "5", "7"]


@pytest.mark.parametrize(
    ("size", "many", "kept"), [(10, 1000, MAX_CHANGES), (100_000, 1, MAX_BYTES // 100_000)], ids=["many", "large"]
)
async def test_the_oldest_entries_are_trimmed_beyond_a_number_or_size(
    bus: RelayCommands, redis: RedisServer, size: int, many: int, kept: int
) -> None:
    state = await begin_epoch(bus, s="0")
    key = "{gateway:bus:t__}Blip:changes"
    redis.client.xadd(key, {"what": "ever"})
    redis.client.xadd(key, {"c": "e1\ns\n\n999999999 9\n[]"})
    for first in range(1, kept * 3 // 2, many):
        read = [(str(number), b"%*d" % (size, number)) for number in range(first, first + many)]
        await bus.append("Blip", state.lease, "e1", "s", str(first - 1), read)

    stored = [entry["c"].split("\n", 4)[4] for _, entry in redis.client.xrange(key)]
    numbers = [int(number) for records in stored for number in records[1:-1].split(",")]
    assert numbers == [*range(numbers[0], first + many)]
    assert kept - many < len(numbers) <= kept


async def test_everything_expires_when_no_process_holds_the_table(bus: RelayCommands, redis: RedisServer) -> None:
    state = await begin_epoch(bus)
    await bus.append("Blip", state.lease, "e1", "s", HERE, relay_page("1"))
    for key in redis.client.scan_iter():
        assert 0 < redis.client.pttl(key) <= 300_000
        redis.client.pexpire(key, 10_000)

    await bus.claim("Blip", "other")
    assert max(redis.client.pttl(key) for key in redis.client.scan_iter()) <= 10_000
    await bus.claim("Blip", "one")
    assert min(redis.client.pttl(key) for key in redis.client.scan_iter()) > 10_000


async def test_iterators_advance_until_the_first_record(bus: RelayCommands) -> None:
    await begin_epoch(bus)
    later = joined("o", "later")
    await bus.claim("Blip", "one", idle=Reached("arn", {"s": later}))
    state = await bus.claim("Blip", "other", idle=Reached("arn", {"s": "what another says"}))
    assert state.positions == {"s": later}

    await bus.append("Blip", state.lease, "e1", "s", later, relay_page("1"))
    await bus.claim("Blip", "one", idle=Reached("arn", {"s": later}))
    assert (await bus.claim("Blip", "one")).positions == {"s": "1"}


async def test_shards_that_are_no_longer_listed_are_forgotten(bus: RelayCommands) -> None:
    await begin_epoch(bus, s=HERE, gone="5")
    await bus.forget("Blip", ["gone"])
    assert (await bus.claim("Blip", "one")).positions == {"s": HERE}


@pytest.mark.parametrize("instance", ["one", "other"])
async def test_a_full_redis_is_noticed_by_the_leader_and_the_others(
    bus: RelayCommands, redis: RedisServer, instance: str
) -> None:
    await begin_epoch(bus)
    redis.client.config_set("maxmemory", 1)
    try:
        with pytest.raises(BusRefused, match="OutOfMemory"):
            await bus.claim("Blip", instance)
    finally:
        redis.client.config_set("maxmemory", 0)
    assert (await bus.claim("Blip", "other")).is_held_by("one")


async def test_an_address_without_redis_is_reported_without_its_password() -> None:
    connection = RelayCommands("redis://user:hidden-word@127.0.0.1:1", "t__")
    with pytest.raises(BusUnavailable) as refused:
        await connection.probe()
    assert "hidden-word" not in repr(refused.value) + repr(refused.value.__cause__)
    await connection.aclose()


# --- Two processes that believe they hold the table -------------------------------------------------------------------

Step = tuple[str, str, int]
steps = st.lists(
    st.one_of(
        st.tuples(st.just("claim"), st.sampled_from("ab"), st.just(0)),
        st.tuples(st.just("lapse"), st.just(""), st.just(0)),
        st.tuples(st.just("append"), st.sampled_from("ab"), st.integers(1, 4)),
        st.tuples(st.just("repeat"), st.sampled_from("ab"), st.integers(1, 4)),
    ),
    max_size=30,
)


class Holder:
    """A process that reads records 1, 2, 3… and appends them while it believes that it holds the lease."""

    def __init__(self, bus: RelayCommands, name: str) -> None:
        self.bus = bus
        self.name = name
        self.lease = ""
        self.at = 0

    async def claim(self) -> None:
        state = await self.bus.claim("Blip", self.name)
        if not state.is_held_by(self.name) or state.lease == self.lease:
            return
        self.lease = state.lease
        if state.epoch:
            self.at = int(state.positions["s"])
            await self.bus.continue_epoch("Blip", self.lease, "e")
        else:
            self.at = 0
            await self.bus.begin("Blip", self.lease, "e", Reached("arn", {"s": "0"}))

    async def append(self, many: int, *, moves: bool) -> int:
        read = relay_page(*[str(self.at + number) for number in range(1, many + 1)])
        appended = await self.bus.append("Blip", self.lease, "e", "s", str(self.at), read)
        self.at += many if moves else 0
        return appended


@pytest.mark.proof
@given(steps)
@hypothesis_settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_only_the_newest_holder_appends_and_each_change_once(redis: RedisServer, taken: list[Step]) -> None:
    asyncio.run(holders_in_turn(redis, taken))


async def holders_in_turn(redis: RedisServer, taken: list[Step]) -> None:
    async with relay_commands(redis) as bus:
        holders = {name: Holder(bus, name) for name in "ab"}
        newest, expected = "", 0
        for kind, name, many in taken:
            if kind == "lapse":
                for key in redis.client.scan_iter("*:lease"):
                    redis.client.delete(key)
                newest = ""
            elif kind == "claim":
                await holders[name].claim()
                newest = newest or name
            else:
                holder = holders[name]
                if not holder.lease:
                    continue
                if name != newest:
                    with pytest.raises(RelayLeaseLost):
                        await holder.append(many, moves=True)
                    continue
                reached = holder.at + many
                assert await holder.append(many, moves=kind == "append") == max(0, reached - expected)
                expected = max(expected, reached)
        assert await relayed_numbers(bus) == [str(number) for number in range(1, expected + 1)]


# --- Missing changes --------------------------------------------------------------------------------------------------


def test_noted_positions_are_compared_with_known_ones() -> None:
    for known, noted, lacks in (
        ({}, {}, False),
        ({"s": "5"}, {}, False),
        ({}, {"s": "5"}, True),
        ({"s": "10"}, {"s": "9"}, False),
        ({"s": "9"}, {"s": "10"}, True),
        ({"s": "9", "t": "1"}, {"s": "9", "t": "2"}, True),
        ({"s": HERE}, {"s": joined("o", "another place")}, False),
        ({"s": HERE}, {"s": joined("another", "iterator")}, True),
        ({"s": "5"}, {"s": HERE}, True),
        ({"s": HERE}, {"s": "5"}, True),
        ({}, {"s": ""}, False),
        ({"s": ""}, {"s": HERE}, True),
    ):
        assert lacking(known, noted) == lacks, (known, noted)
