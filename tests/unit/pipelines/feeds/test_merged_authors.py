"""The promotion of authors with too many followers: no reader misses a post, and no entry is left over."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from itertools import count

import pytest

from datastore.change_streams.change import Change
from datastore.database import Database
from datastore.model.timestamps import iso
from pipelines.feeds.fan_out import FanOut
from pipelines.feeds.follow_backfill import FollowBackfill
from tests.support.feed_world import FeedWorld, Killed, ProcessWire, once, operation_counts

FANS = [f"fan{number}" for number in range(5)]
MOST = 3


@pytest.fixture
async def world(database: Database) -> FeedWorld:
    """An author `ada` with a fanned-out post and more followers than the bound, which are not counted yet."""
    world = FeedWorld(database)
    await world.users("eve", *FANS)
    await famous(world, "ada")
    return world


async def famous(world: FeedWorld, author: str) -> None:
    await world.users(author)
    for fan in FANS:
        await world.follow(fan, author)
    await world.write(f"before-{author}", author)
    await handle_followers(world)
    await world.counted(author, len(FANS))


async def handle_followers(
    world: FeedWorld, changes: Sequence[Change] | None = None, wire: ProcessWire | None = None
) -> ProcessWire:
    """Handle the changes, or all new ones, as a separate process. Return the wire it used."""
    wire = wire or ProcessWire(world.database.client)
    changes = await world.changes() if changes is None else changes
    try:
        for handler in (
            FanOut(lambda: world.store(wire), world.clock, max_followers=MOST, page=2),
            FollowBackfill(lambda: world.store(wire), world.clock, page=2),
        ):
            await handler.handle(changes)
    finally:
        await wire.quiet()
    return wire


def before_the_sources(happens: Callable[[], Awaitable[object]]) -> Callable[..., Awaitable[None]]:
    return once(happens, lambda operation, _payload: operation == "BatchWriteItem")


async def merging_since(world: FeedWorld, author: str = "ada") -> str:
    item = await world.author(author)
    return str(item["merging_since"])


async def test_posts_are_merged_above_the_bound_of_followers(world: FeedWorld) -> None:
    await world.write("p1", "ada")
    await handle_followers(world)
    await world.write("p2", "ada")
    changes = await world.changes()

    assert operation_counts((await handle_followers(world, changes)).meter.calls) == {"BatchGetItem": 1}
    assert await world.entries() == {(fan, "before-ada") for fan in FANS}
    assert await world.home("fan0") == ["p2", "p1", "before-ada"]
    await world.assert_right(merged=["ada"])


async def test_an_author_at_the_bound_is_not_merged(world: FeedWorld) -> None:
    await world.counted("ada", MOST)
    await world.write("p1", "ada")
    await handle_followers(world)

    assert await world.entries() == {(fan, post) for fan in FANS for post in ("before-ada", "p1")}
    await world.assert_right()


async def test_follows_and_unfollows_after_the_promotion(world: FeedWorld) -> None:
    await world.write("p1", "ada")
    await handle_followers(world)
    await world.unfollow("fan0", "ada")
    await world.unfollow("fan1", "ada")
    await world.follow("fan1", "ada")
    await world.follow("eve", "ada")
    await world.write("p2", "ada")
    await handle_followers(world)

    assert [await world.home(name) for name in ("fan0", "fan1", "eve")] == [[], ["p2"], ["p2"]]
    assert await world.entries() == {(fan, "before-ada") for fan in FANS[2:]}
    await world.assert_right(merged=["ada"])


async def test_unfollowing_a_merged_author_does_not_search_the_feed(world: FeedWorld) -> None:
    await world.write("p1", "ada")
    await handle_followers(world)
    world.clock.forward(minutes=6)
    await world.follow("eve", "ada")
    await handle_followers(world)
    await world.unfollow("eve", "ada")
    calls = (await handle_followers(world)).meter.calls

    assert operation_counts(calls) == {"BatchGetItem": 2, "BatchWriteItem": 1}
    await world.assert_right(merged=["ada"])


@pytest.mark.proof
async def test_a_promotion_survives_kills_at_every_call(world: FeedWorld) -> None:
    """Follows, unfollows, posts and deletions are written and handled between a kill and the next process."""
    for calls in count(1):
        author = f"ada{calls}"
        await famous(world, author)
        await world.write(f"p1-{author}", author)
        changes = await world.changes()
        died = await killed_after(world, calls, changes)
        await world.unfollow("fan1", author)
        await world.unfollow("fan3", author)
        await world.follow("fan3", author)
        await world.follow("eve", author)
        await handle_followers(world)
        await world.write(f"p2-{author}", author)
        await world.delete(f"before-{author}", author)
        await handle_followers(world, changes)
        await handle_followers(world)
        if not died:
            break

    assert calls > 15
    await world.assert_right(merged=[f"ada{number}" for number in range(1, calls + 1)])


async def killed_after(world: FeedWorld, calls: int, changes: Sequence[Change]) -> bool:
    try:
        await handle_followers(world, changes, ProcessWire(world.database.client, last=calls))
    except Killed:
        return True
    return False


@pytest.mark.parametrize("killed", [False, True])
async def test_follows_and_unfollows_while_sources_are_written(world: FeedWorld, killed: bool) -> None:
    """The changes are written after the page of followers was read, and handled before its sources are written."""

    async def come_and_go() -> None:
        await world.unfollow("fan0", "ada")
        await world.unfollow("fan1", "ada")
        await world.follow("fan1", "ada")
        await world.follow("eve", "ada")
        await handle_followers(world)

    await world.write("p1", "ada")
    changes = await world.changes()
    before = before_the_sources(come_and_go)
    # The calls: post and author, mark and progress, page, progress, sources.
    wire = ProcessWire(world.database.client, last=6 if killed else None, before=before)
    if killed:
        with pytest.raises(Killed):
            await handle_followers(world, changes, wire)
        assert "fan0" in {user for user, *_ in await world.sources()}
        wire = ProcessWire(world.database.client)
    await handle_followers(world, changes, wire)

    await world.assert_right(merged=["ada"])


async def test_no_reader_misses_a_post_written_during_a_promotion(world: FeedWorld) -> None:
    async def write_more() -> None:
        await world.write("p2", "ada")
        await world.follow("eve", "ada")
        await world.write("p3", "ada")
        await handle_followers(world)

    await world.write("p1", "ada")
    wire = ProcessWire(world.database.client, before=before_the_sources(write_more))
    await handle_followers(world, await world.changes(), wire)

    assert await world.home("fan4") == ["p3", "p2", "p1", "before-ada"]
    assert await world.home("eve") == ["p3"]
    await world.assert_right(merged=["ada"])


async def test_a_fan_out_interrupted_before_the_promotion_is_completed(world: FeedWorld) -> None:
    """A user unfollows after the fan-out read the page of followers and before it writes the entry."""
    await world.counted("ada", MOST)
    await world.write("p1", "ada")
    changes = await world.changes()

    async def promoted() -> None:
        await world.unfollow("fan1", "ada")
        await world.counted("ada", MOST + 1)
        await world.write("p2", "ada")
        await handle_followers(world)

    with pytest.raises(Killed):
        await handle_followers(
            world, changes, ProcessWire(world.database.client, last=4, before=before_the_sources(promoted))
        )
    await handle_followers(world, changes)

    assert await world.home("fan0") == ["p2", "p1", "before-ada"]
    await world.assert_right(merged=["ada"])


async def test_a_started_promotion_is_finished_below_the_bound(world: FeedWorld) -> None:
    await world.write("p1", "ada")
    changes = await world.changes()
    assert await killed_after(world, 4, changes)
    await world.counted("ada", MOST)
    await handle_followers(world, changes)

    assert await world.entries() == {(fan, "before-ada") for fan in FANS}
    assert "merged_since" in await world.author("ada")
    await world.assert_right(merged=["ada"])


async def test_concurrent_promotions_of_an_author(world: FeedWorld) -> None:
    await world.write("p1", "ada")
    changes = await world.changes()
    await asyncio.gather(*[handle_followers(world, changes) for _ in range(3)])

    await world.assert_right(merged=["ada"])


async def test_deleted_posts_from_before_the_promotion_are_removed_from_the_feeds(world: FeedWorld) -> None:
    await world.write("p1", "ada")
    await handle_followers(world)
    world.clock.forward(minutes=6)
    await world.write("p2", "ada")
    await handle_followers(world)
    await world.delete("before-ada", "ada")
    await handle_followers(world)
    assert await world.entries() == set()

    await world.delete("p2", "ada")
    assert operation_counts((await handle_followers(world)).meter.calls) == {"BatchGetItem": 1}
    assert await world.home("fan0") == ["p1"]


async def test_a_post_fanned_out_by_a_fast_clock_is_removed_when_deleted(world: FeedWorld) -> None:
    """By its time the post was written after the promotion."""
    await world.counted("ada", MOST)
    now = world.clock()
    world.clock.forward(minutes=4)
    ahead = await world.write("ahead", "ada")
    await handle_followers(world)
    world.clock.now = now
    await world.counted("ada", MOST + 1)
    await world.write("p1", "ada")
    await handle_followers(world)
    assert await merging_since(world) < iso(ahead.created_at - timedelta(minutes=3))
    await world.forget_progress()
    await world.delete("ahead", "ada")
    await handle_followers(world)

    assert await world.entries() == {(fan, "before-ada") for fan in FANS}
    await world.assert_right(merged=["ada"])
