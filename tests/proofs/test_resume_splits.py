"""Clients that resume across shard splits, at processes without a bus: each event once, and in order per item.

The streams are scripted, so that shards split, end and are listed when the test says so.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest

import datastore.change_streams.replay.replay_log as log_module
from datastore.change_streams.change import Change
from datastore.change_streams.change_subscription import ChangeSubscription
from datastore.change_streams.replay.resume_token import MAX_SHARDS, ResumeToken, decode
from datastore.dynamodb.client import RequestRefused
from datastore.errors import Unavailable
from tests.support.bus_hosts import take_numbers
from tests.support.changes import number_of
from tests.support.resume_splits import KEYS, TABLE, SplitFeeds, Splitting
from tests.support.scripted_stream import Script, Shard
from tests.support.until import until

SEEDS = range(12)


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.mark.parametrize("seed", SEEDS)
async def test_each_event_comes_once_and_in_order_however_often_shards_split_and_one_reconnects(
    stack: AsyncExitStack, seed: int
) -> None:
    rng = random.Random(seed)
    script = Splitting(rng.choice([1, 1, 3]))
    client = SplitFeeds(script, stack)
    feeds = [client.feed(linger=rng.choice([0, 30])) for _ in range(2)]
    written: list[tuple[str, int]] = []
    async with client.following(feeds[0]) as events:
        for key in script.of:  # so that each shard has shown a record
            written.append((key, script.put(key)))
        client.had = [await anext(events) for _ in written]
        client.place = decode(events.token.encode())
    for _ in range(25):
        for _ in range(rng.randrange(6)):
            key = rng.choice([*script.of])
            written.append((key, script.put(key)))
            if rng.random() < 0.15:
                script.split(rng.choice(script.open))
        left = len(written) - len(client.had)
        await client.read(rng.choice(feeds), rng.randint(0, left))
    await client.read(feeds[0], len(written) - len(client.had))
    await client.read(feeds[1], 0)

    assert sorted(client.numbers) == sorted(number for _, number in written)
    for key in script.of:
        had = [number_of(change) for change in client.had if change.keys["pk"] == key]
        assert had == [number for of, number in written if of == key]


@pytest.mark.parametrize("seed", [3, 11, *range(20, 26)])
async def test_each_event_comes_once_though_iterators_expire_and_shards_have_shown_no_record(
    stack: AsyncExitStack, seed: int
) -> None:
    rng = random.Random(seed)
    script = Splitting(3)
    client = SplitFeeds(script, stack)
    feeds = [client.feed(linger=rng.choice([0, 0.05, 30]), poll_interval=rng.choice([0.001, 0.02])) for _ in range(3)]
    written: list[tuple[str, int]] = []
    async with client.following(feeds[0]) as events:
        written.append(("k0", script.put("k0")))
        client.had.append(await anext(events))
        client.place = decode(events.token.encode())
    for _ in range(15):
        for _ in range(rng.randrange(4)):
            key = rng.choice([*script.of])
            written.append((key, script.put(key)))
            if rng.random() < 0.2:
                script.split(rng.choice(script.open))
        script.generation += rng.random() < 0.1
        await client.read(rng.choice(feeds), rng.randint(0, len(written) - len(client.had)))
    await client.read(feeds[2], len(written) - len(client.had))

    for key in script.of:
        had = [number_of(change) for change in client.had if change.keys["pk"] == key]
        assert had == [number for of, number in written if of == key]


async def test_a_client_resumes_at_another_process_after_the_shard_and_its_children_have_ended(
    stack: AsyncExitStack,
) -> None:
    script = Splitting()
    client = SplitFeeds(script, stack)
    async with client.following(client.feed()) as events:
        first = script.put("k0")
        assert number_of(await anext(events)) == first
        client.place = events.token
    numbers = [script.put(f"k{number}") for number in range(3)]
    for shard in ("s0", "s1"):
        script.split(shard)
        numbers += [script.put(f"k{number}") for number in range(KEYS)]
    await client.read(client.feed(), len(numbers))
    assert sorted(client.numbers) == numbers


async def test_the_position_in_an_idle_shard_stays_valid_through_repeated_splits(
    stack: AsyncExitStack,
) -> None:
    """AWS splits shards of tables without changes, and after a day no longer lists the ancestors."""
    script = Splitting()
    client = SplitFeeds(script, stack)
    feed = client.feed()
    async with client.following(feed) as events:
        first = script.put("k0")
        assert number_of(await anext(events)) == first
        for shard in ("s0", "s1", "s2"):
            script.split(shard)
        await until(lambda: len(events.last_token.positions) == len(script.open))
        client.place = decode(events.last_token.encode())
    for shard in [shard for shard in script.shards if shard not in script.open]:
        del script.shards[shard]
    numbers = [script.put(key) for key in script.of]
    await client.read(client.feed(), len(numbers))
    assert sorted(client.numbers) == sorted(numbers)


async def test_a_position_in_a_shard_that_is_no_longer_listed_is_too_old(stack: AsyncExitStack) -> None:
    script = Splitting()
    client = SplitFeeds(script, stack)
    async with client.following(client.feed()) as events:
        script.put("k0")
        await anext(events)
        client.place = events.token
    script.split("s0")
    del script.shards["s0"]
    async with client.following(client.feed()) as events:
        assert events.is_too_old


async def test_a_trimmed_position_is_too_old(stack: AsyncExitStack) -> None:
    script = Splitting()
    client = SplitFeeds(script, stack)
    async with client.following(client.feed()) as events:
        script.put("k0")
        await anext(events)
        client.place = events.token
    script.put("k0")
    script.fail("GetRecords", *[RequestRefused("TrimmedDataAccessException", "trimmed")] * 3)
    client_feed = client.feed(poll_interval=10)
    async with client.following(client_feed) as events:
        assert events.is_too_old


async def test_a_client_without_a_record_of_a_shard_misses_none_and_gets_none_twice(stack: AsyncExitStack) -> None:
    script = Splitting(2)
    client = SplitFeeds(script, stack)
    old = script.write("s1", "k1", age=timedelta(minutes=20))
    async with client.following(client.feed()) as events:
        numbers = [script.put("k0")]
        client.had.append(await anext(events))
        client.place = decode(events.token.encode())
    for _ in range(3):
        numbers += [script.put("k0"), script.put("k1")]
        await client.read(client.feed(), 2)
    assert old not in client.numbers
    assert sorted(client.numbers) == numbers


async def test_a_process_that_is_behind_waits_until_it_reaches_the_position(stack: AsyncExitStack) -> None:
    script = Splitting()
    client = SplitFeeds(script, stack)
    ahead, behind = client.feed(), client.feed(poll_interval=0.2)
    async with client.following(behind) as stays:
        first = script.put("k0")
        await take_numbers(_numbers(stays), 1)
        async with client.following(ahead) as events:
            second = script.put("k0")
            assert number_of(await anext(events)) == second
            client.place = decode(events.token.encode())
        third = script.put("k0")
        await client.read(behind, 1)
    assert client.numbers == [third]
    assert first < second < third


async def test_a_position_is_not_too_old_because_this_process_reads_the_stream_late(
    stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As during an outage of the store: the position is ahead of this process, but not of the stream."""
    monkeypatch.setattr(log_module, "AHEAD_SECONDS", 0.0)
    script = Splitting()
    client = SplitFeeds(script, stack)
    ahead, behind = client.feed(), client.feed(poll_interval=0.3)
    async with client.following(behind) as stays:
        script.put("k0")
        await take_numbers(_numbers(stays), 1)
        async with client.following(ahead) as events:
            script.put("k0")
            await anext(events)
            client.place = decode(events.token.encode())
        script.fail("GetRecords", *[Unavailable("The store is away.")] * 3)
        third = script.put("k0")
        await client.read(behind, 1)
    assert client.numbers == [third]


async def test_a_position_that_stays_ahead_of_the_stream_is_too_old(
    stack: AsyncExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table was restored, so its stream is behind the position or begins from the start."""
    monkeypatch.setattr(log_module, "AHEAD_SECONDS", 0.05)
    script = Splitting()
    client = SplitFeeds(script, stack)
    async with client.following(client.feed()) as stays:
        script.put("k0")
        await anext(stays)
        here = stays.token
        (key,) = here.positions
        client.place = ResumeToken.at(here.stream, here.time, {key: "9" * 21})
        async with client.following(client.feed()) as events:
            assert events.is_too_old


async def test_positions_of_a_previous_stream_of_the_table_are_unknown(stack: AsyncExitStack) -> None:
    script = Splitting()
    client = SplitFeeds(script, stack)
    async with client.following(client.feed()) as events:
        script.put("k0")
        await anext(events)
        client.place = decode(events.token.encode())
    script.arn = "arn:2"
    async with client.following(client.feed()) as events:
        assert events.is_too_old


async def test_no_position_is_sent_for_more_shards_than_fit(stack: AsyncExitStack) -> None:
    script = Script(**{f"s{number}": Shard() for number in range(MAX_SHARDS + 1)})
    script.page = MAX_SHARDS * 2
    client = SplitFeeds(script, stack)
    async with client.following(client.feed()) as events:
        assert decode(events.token.encode()).positions == {}
        client.place = decode(events.token.encode())
    async with client.following(client.feed()) as events:
        assert events.is_too_old


async def test_many_clients_that_resume_from_different_positions_share_one_read_of_the_stream(
    stack: AsyncExitStack,
) -> None:
    script = Splitting(3)
    client = SplitFeeds(script, stack)
    places = []
    async with client.following(client.feed()) as events:
        for _ in range(4):
            for key in script.of:
                script.put(key)
        for _ in range(4 * KEYS):
            await anext(events)
            places.append(decode(events.token.encode()))
    script.split("s0")
    script.put("k0")
    feed = client.feed(linger=30, discover_interval=30)
    async with feed.follow(TABLE, lambda change: change):
        script.calls.clear()

        async def resumed(place: ResumeToken) -> int:
            async with feed.follow(TABLE, lambda change: change, after=place) as events:
                await anext(events)
                return len(await _rest(events))

        found = await asyncio.gather(*map(resumed, places))
    assert found == [4 * KEYS - 1 - index for index in range(len(places))]
    assert script.calls.count("DescribeStream") <= 2 * len(script.shards)  # each listing has pages
    assert script.calls.count("GetShardIterator") <= 8


async def _rest(events: ChangeSubscription[Change]) -> list[Change]:
    found = []
    while (change := await events.next_replayed()) is not None:
        found.append(change)
    return found


def _numbers(events: ChangeSubscription[Change]) -> Any:
    class Numbers:
        async def __anext__(self) -> int:
            return number_of(await anext(events))

    return Numbers()
