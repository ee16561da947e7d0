"""Leaderboard snapshots: always the top of all counts once everything is quiet, in any order of refreshes."""

import asyncio
import random
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta

import pytest

from datastore.change_streams import exactly_once as effects
from datastore.change_streams.exactly_once import Effect, Write
from datastore.database import Database
from datastore.dynamodb.client import Client
from datastore.errors import Throttled
from datastore.feeds.leaderboards import LeaderboardMember, LeaderboardSnapshot, LeaderboardSnapshots
from datastore.keyspace.feeds import leaderboards as keys
from datastore.keyspace.feeds.leaderboards import FEED_METRICS
from datastore.keyspace.feeds.pipeline import CONSUMER_TABLE
from datastore.model.timestamps import to_seconds
from pipelines.feeds.leaderboard_refresh import CONFLICTS, SHOWN, STORED_FACTOR, LeaderboardRefresh, Period, merge
from tests.support.fault_proxy import Proxy, forward, lose_answer
from tests.support.feed_changes import items_of, store_of
from tests.support.served import NOON

DAY: Period = (keys.TAGS, "2026-06-25")
MONTH: Period = (keys.AUTHORS, "2026-06")

numbers = iter(range(10**9))


async def renew_boards(
    boards: LeaderboardSnapshots,
    touched: Mapping[Period, Iterable[str]],
    *,
    shown: int = SHOWN,
    uniform: Callable[[], float] = random.random,
) -> None:
    """Refresh like a separate process, without its locks."""
    await LeaderboardRefresh(shown=shown, uniform=uniform).refresh(boards, touched)


async def add(database: Database, steps: Iterable[tuple[str, int]], period: Period = DAY) -> None:
    """Change counts, as a handler does before it refreshes the snapshot."""
    writes = [
        Write(FEED_METRICS, keys.counters_of(*period, name), add={"posts": step, "score": step}) for name, step in steps
    ]
    made = [Effect(f"{next(numbers)}", (write,)) for write in writes]
    await effects.apply(store_of(database), CONSUMER_TABLE, made, NOON)


async def board_item(database: Database, period: Period = DAY) -> dict[str, object]:
    key = keys.board(*period)
    (item,) = [item for item in await items_of(database, FEED_METRICS) if (item["PK"], item["SK"]) == key]
    return item


async def shown(database: Database, most: int = SHOWN) -> list[tuple[str, int]]:
    """Return the shown members of the snapshot."""
    board = await LeaderboardSnapshots(store_of(database)).snapshot(*DAY)
    assert board is not None
    return [(member.name, member.score) for member in board.members[:most]]


async def top(database: Database, size: int) -> list[tuple[str, int]]:
    """Return the members of a snapshot that is built from all counts."""
    counts = [
        (item["SK"].removeprefix("TAG#"), item["posts"])
        for item in await items_of(database, FEED_METRICS)
        if item["SK"] != keys.BOARD and item["posts"] > 0
    ]
    return sorted(counts, key=lambda count: (-count[1], count[0]))[:size]


def hashtag_member(name: str, posts: int) -> LeaderboardMember:
    return LeaderboardMember(name, posts, {"posts": posts})


@pytest.mark.parametrize("seed", range(40))
def test_a_merged_snapshot_equals_one_built_from_all_counts(seed: int) -> None:
    rng = random.Random(seed)
    size, names = 5, [f"t{number:02}" for number in range(rng.choice((4, 12, 30)))]
    counts = dict.fromkeys(names, 0)
    board = LeaderboardSnapshot(*DAY, 0, (), None)
    anew = 0

    for version in range(1, 200):
        touched = rng.sample(names, rng.randint(1, 4))
        for name in touched:
            counts[name] = max(0, counts[name] + rng.choice((-2, -1, 1, 1)))
        ranked = sorted(
            (hashtag_member(name, posts) for name, posts in counts.items() if posts > 0), key=lambda one: one.rank
        )
        merged = merge(board, [hashtag_member(name, counts[name]) for name in touched], size)
        if merged is None:
            anew += 1
            bound = ranked[STORED_FACTOR * size].rank if len(ranked) > STORED_FACTOR * size else None
            merged = LeaderboardSnapshot(*DAY, version, tuple(ranked[: STORED_FACTOR * size]), bound)
        board = merged

        listed = len(board.members)
        assert board.members == tuple(ranked[:listed])
        assert listed >= min(size, len(ranked))
        assert board.bound is None or all(member.rank >= board.bound for member in ranked[listed:])
        assert board.bound is not None or len(ranked) == listed

    assert anew < 25
    assert anew == 0 or len(names) > STORED_FACTOR * size


def test_all_counts_are_read_seldom() -> None:
    """There are a thousand tags and three thousand changes, of which a fifth are decrements."""
    rng = random.Random(1)
    names = [f"t{number:04}" for number in range(1000)]
    counts = dict.fromkeys(names, 0)
    board, anew = LeaderboardSnapshot(*DAY, 0, (), None), 0
    for name in rng.choices(names, [(place + 1) ** -0.5 for place in range(1000)], k=3000):
        counts[name] = max(0, counts[name] + rng.choice((-1, 1, 1, 1, 1)))
        merged = merge(board, [hashtag_member(name, counts[name])], SHOWN)
        if merged is None:
            anew += 1
            ranked = sorted(
                (hashtag_member(name, posts) for name, posts in counts.items() if posts), key=lambda one: one.rank
            )
            merged = LeaderboardSnapshot(
                *DAY, 0, tuple(ranked[: STORED_FACTOR * SHOWN]), ranked[STORED_FACTOR * SHOWN].rank
            )
        board = merged

    assert anew < 10


async def test_concurrent_refreshes_end_with_the_top_of_all_counts(database: Database) -> None:
    rng = random.Random(7)
    size, names = 10, [f"t{number:03}" for number in range(130)]

    async def work(rounds: int) -> None:
        for _ in range(rounds):
            touched = [rng.choice(names[: rng.choice((15, 130))]) for _ in range(12)]
            await add(database, [(name, rng.choice((-1, 1, 1))) for name in touched])
            await renew_boards(LeaderboardSnapshots(store_of(database)), {DAY: touched}, shown=size, uniform=rng.random)

    for _ in range(6):
        await asyncio.gather(work(6), work(6))

        assert await shown(database, size) == await top(database, size)


async def test_an_intermediate_count_is_not_written(database: Database) -> None:
    reads, goes_on = asyncio.Event(), asyncio.Event()

    class Slow(LeaderboardSnapshots):
        async def put(self, board: LeaderboardSnapshot) -> bool:
            reads.set()
            await goes_on.wait()
            return await super().put(board)

    await add(database, [("tea", 6), ("cake", 5)])
    await renew_boards(LeaderboardSnapshots(store_of(database)), {DAY: ["tea", "cake"]})

    await add(database, [("tea", -2)])
    slow = asyncio.create_task(renew_boards(Slow(store_of(database)), {DAY: ["tea"]}))
    await reads.wait()
    await add(database, [("tea", 2)])
    await renew_boards(LeaderboardSnapshots(store_of(database)), {DAY: ["tea"]})
    goes_on.set()
    await slow

    assert await shown(database) == [("tea", 6), ("cake", 5)]


async def test_a_snapshot_that_lost_too_many_members_is_built_from_all_counts(database: Database) -> None:
    """The snapshot stores six members and shows three."""
    await add(database, [(f"t{number}", 10 - number) for number in range(9)])
    await renew_boards(LeaderboardSnapshots(store_of(database)), {DAY: [f"t{number}" for number in range(9)]}, shown=3)
    fallen = ["t0", "t1", "t4"]
    await add(database, [(name, -9 + int(name[1])) for name in fallen])
    store = store_of(database)
    await renew_boards(LeaderboardSnapshots(store), {DAY: fallen}, shown=3)

    assert await shown(database) == [("t2", 8), ("t3", 7), ("t5", 5)]
    assert "Query" not in [call.operation for call in store.meter.calls]
    assert (await board_item(database))["floor"] == 4

    await add(database, [("t3", -7)])
    store = store_of(database)
    await renew_boards(LeaderboardSnapshots(store), {DAY: ["t3"]}, shown=3)

    assert await shown(database, 3) == [("t2", 8), ("t5", 5), ("t6", 4)]
    assert [call.operation for call in store.meter.calls] == ["GetItem"] * 2 + ["Query"] * keys.SHARDS + ["PutItem"]
    assert (await board_item(database))["floor"] == 1


async def test_a_member_that_falls_to_the_bound_is_replaced_by_an_earlier_name(database: Database) -> None:
    await add(database, [("zoe", 2), ("amy", 1), ("bob", 1)])
    await renew_boards(LeaderboardSnapshots(store_of(database)), {DAY: ["zoe", "amy", "bob"]}, shown=1)
    await add(database, [("zoe", -1)])

    await renew_boards(LeaderboardSnapshots(store_of(database)), {DAY: ["zoe"]}, shown=1)

    assert await shown(database) == [("amy", 1)]
    await add(database, [("amy", -1)])

    await renew_boards(LeaderboardSnapshots(store_of(database)), {DAY: ["amy"]}, shown=1)

    assert await shown(database, 1) == [("bob", 1)]


async def test_a_usual_refresh_is_two_reads_and_a_put(database: Database) -> None:
    names = [f"t{number}" for number in range(20)]
    await add(database, [(name, 1) for name in names])
    await renew_boards(LeaderboardSnapshots(store_of(database)), {DAY: names})
    await add(database, [(name, 1) for name in names])
    store = store_of(database)

    await renew_boards(LeaderboardSnapshots(store), {DAY: names})

    assert [call.operation for call in store.meter.calls] == ["GetItem", "BatchGetItem", "PutItem"]


async def test_the_snapshots_of_a_batch_are_read_in_one_call(database: Database) -> None:
    periods = [(keys.TAGS, f"2026-06-25T{hour:02}") for hour in range(5)]
    for period in periods:
        await add(database, [("tea", 1), ("cake", 1)], period)
    await renew_boards(LeaderboardSnapshots(store_of(database)), dict.fromkeys(periods, ("tea", "cake")))
    store = store_of(database)

    await renew_boards(LeaderboardSnapshots(store), dict.fromkeys(periods, ("tea", "cake")))

    assert sorted(call.operation for call in store.meter.calls) == ["BatchGetItem"] * 2 + ["PutItem"] * 5


async def test_snapshots_have_the_shown_counts_and_those_of_tags_expire(database: Database) -> None:
    hour: Period = (keys.TAGS, "2026-06-25T14")
    for period in (MONTH, DAY, hour):
        await add(database, [("ada", 2), ("gone", 0)], period)
        await renew_boards(LeaderboardSnapshots(store_of(database)), {period: ["ada", "gone"]})

    month = await board_item(database, MONTH)
    assert month["members"] == [{"name": "ada", "posts": 2, "likes": 0, "comments": 0, "score": 2}]
    assert (month["version"], month["floor"], "expiresAt" in month) == (1, 0, False)
    midnight = NOON.replace(hour=0)
    assert (await board_item(database))["members"] == [{"name": "ada", "posts": 2}]
    assert (await board_item(database))["expiresAt"] == to_seconds(midnight + timedelta(days=61))
    assert (await board_item(database, hour))["expiresAt"] == to_seconds(midnight + timedelta(days=3, hours=15))


async def test_a_refresh_that_always_conflicts_is_throttled(database: Database) -> None:
    class TooLate(LeaderboardSnapshots):
        tries = 0

        async def put(self, board: LeaderboardSnapshot) -> bool:
            self.tries += 1
            return False

    boards = TooLate(store_of(database))

    with pytest.raises(Throttled) as caught:
        await renew_boards(boards, {DAY: ["tea"]}, uniform=lambda: 0)

    assert caught.value.retryable
    assert boards.tries == CONFLICTS.attempts - 1


async def test_an_ambiguous_put_is_recognized_as_its_own(database: Database, client: Client, proxy: Proxy) -> None:
    await add(database, [("tea", 1)])
    await renew_boards(LeaderboardSnapshots(store_of(database)), {DAY: ["tea"]})
    await add(database, [("tea", 1)])
    proxy.faults.extend([forward, forward, lose_answer])

    await renew_boards(LeaderboardSnapshots(store_of(database, client)), {DAY: ["tea"]})

    assert proxy.operations() == ["GetItem", "GetItem", "PutItem", "PutItem"]
    assert (await board_item(database))["version"] == 2


async def test_refreshes_of_one_process_are_serial(database: Database) -> None:
    renewal = LeaderboardRefresh()
    stores = [store_of(database) for _ in range(8)]
    await add(database, [(f"t{number}", 1) for number in range(8)])

    await asyncio.gather(
        *[renewal.refresh(LeaderboardSnapshots(store), {DAY: [f"t{number}"]}) for number, store in enumerate(stores)]
    )

    assert await shown(database) == await top(database, SHOWN)
    assert [call.operation for store in stores for call in store.meter.calls].count("PutItem") == 8
