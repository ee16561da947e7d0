"""The size of the pages read from the bus: over a slow connection, and with large entries."""

import time
from collections.abc import Iterator

import pytest

from datastore.change_streams.relay.commands import (
    ENTRIES,
    PAGE_BYTES,
    PAST_BYTES,
    BusSlow,
    RelayCommands,
    Relayed,
)
from datastore.change_streams.relay.lua import ENTRY_BYTES
from tests.support.bus_pages import Line
from tests.support.redis_server import RedisServer

KEY = "{gateway:bus:t__}Blip:changes"


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    server = RedisServer()
    yield server
    server.close()


def fill_relay(redis: RedisServer, entries: int, size: int) -> None:
    redis.client.flushall()
    with redis.client.pipeline() as pipe:
        for number in range(entries):
            pipe.xadd(KEY, {"c": f"e\ns\n\n{number} 0\n[{'x' * size}]"})
        pipe.execute()


async def test_slow_pages_become_smaller_and_grow_again(redis: RedisServer) -> None:
    fill_relay(redis, 2 * ENTRIES, 10_000)
    line = Line(redis.port)
    async with line.open() as url:
        bus = RelayCommands(url, "t__", timeout_seconds=40)
        assert len((await bus.read({"Blip": "0-0"}))["Blip"]) == ENTRIES
        line.bytes_per_second, bus._timeout_seconds = 1, 0.2
        for _ in range(2):
            with pytest.raises(BusSlow):
                await bus.read({"Blip": "0-0"})
        line.bytes_per_second, bus._timeout_seconds = float("inf"), 40
        slow = (await bus.read({"Blip": "0-0"}))["Blip"]
        assert len(slow) == ENTRIES // 4

        sizes = [len((await bus.read({"Blip": "0-0"}))["Blip"]) for _ in range(ENTRIES)]
        assert sizes == [min(ENTRIES, len(slow) + 1 + number) for number in range(ENTRIES)]
        await bus.aclose()


async def test_a_page_has_one_entry_at_least(redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datastore.change_streams.relay.commands.BLOCK_SECONDS", 0.01)
    line = Line(redis.port)
    line.bytes_per_second = 1
    async with line.open() as url:
        bus = RelayCommands(url, "t__", timeout_seconds=1)
        bus._timeout_seconds = 0.01
        for _ in range(8):
            with pytest.raises(BusSlow):
                await bus.read({"Blip": "0-0"})
        assert bus._count == 1
        await bus.aclose()


async def test_pages_of_large_entries_become_smaller(redis: RedisServer) -> None:
    fill_relay(redis, ENTRIES, ENTRY_BYTES)
    bus = RelayCommands(redis.url, "t__", timeout_seconds=5)
    sizes = []
    for _ in range(4):
        page = (await bus.read({"Blip": "0-0"}))["Blip"]
        sizes.append(sum(len(entry.records) for _, entry in page if isinstance(entry, Relayed)))
    await bus.aclose()
    assert sizes[0] > PAGE_BYTES > max(sizes[1:])


async def test_older_changes_are_buffered_up_to_a_limit_of_bytes(redis: RedisServer) -> None:
    """The limit holds even for entries of a writer that kept more than it should."""
    fill_relay(redis, 40, 1_000_000)
    bus = RelayCommands(redis.url, "t__", timeout_seconds=5)
    past = await bus.past("Blip", round(time.time() * 1000) - 60_000, redis.client.xrevrange(KEY, count=1)[0][0])
    await bus.aclose()
    held = [len(entry.records) for entry in past if isinstance(entry, Relayed)]
    assert PAST_BYTES - 1_000_010 < sum(held) <= PAST_BYTES
    last = past[-1]
    assert isinstance(last, Relayed)
    assert last.id == redis.client.xrevrange(KEY, count=1)[0][0]
