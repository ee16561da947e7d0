"""Posts reach the feeds of followers and leave them again, even if handlers are repeated and interrupted."""

import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import count
from typing import Any

import pytest

from datastore.change_streams.change import Change
from datastore.database import Database
from datastore.feeds.visibility import Visibility
from pipelines.feeds.fan_out import FanOut
from pipelines.feeds.follow_backfill import FollowBackfill
from tests.support.feed_world import FeedWorld, Happening, Killed, ProcessWire, once, operation_counts

FANS = [f"fan{number}" for number in range(7)]


@pytest.fixture
async def world(database: Database) -> FeedWorld:
    """An author `ada` with followers that fill more than two pages."""
    world = FeedWorld(database)
    await world.users("ada", *FANS)
    for fan in FANS:
        await world.follow(fan, "ada")
    await handle_posts(world)
    return world


async def handle_posts(
    world: FeedWorld, changes: Sequence[Change] | None = None, wire: ProcessWire | None = None
) -> ProcessWire:
    """Handle the changes, or all new ones, as a separate process. Return the wire it used."""
    wire = wire or ProcessWire(world.database.client)
    changes = await world.changes() if changes is None else changes
    try:
        for handler in (
            FanOut(lambda: world.store(wire), world.clock, page=3),
            FollowBackfill(lambda: world.store(wire), world.clock, page=3),
        ):
            await handler.handle(changes)
    finally:
        await wire.quiet()
    return wire


async def is_killed_after(
    world: FeedWorld, calls: int, changes: Sequence[Change], before: Callable[..., Awaitable[None]] | None = None
) -> bool:
    """Handle the changes as a process that is killed after `calls` calls. Return whether it was killed."""
    try:
        await handle_posts(world, changes, ProcessWire(world.database.client, last=calls, before=before))
    except Killed:
        return True
    return False


def delete_and_handle(world: FeedWorld, post_id: str) -> Happening:
    """Return a function that deletes a post and lets another process handle the delete_and_handle."""

    async def delete() -> None:
        await world.delete(post_id, "ada")
        await handle_posts(world)

    return delete


def unfollow_and_handle(world: FeedWorld, follower: str) -> Happening:
    """Return a function that unfollows `ada` and lets another process handle the change."""

    async def leave() -> None:
        await world.unfollow(follower, "ada")
        await handle_posts(world)

    return leave


async def follow_before_a_fanned_out_post(world: FeedWorld, follower: str, post_id: str) -> Sequence[Change]:
    """Return the change of a follow whose time is before a post, but which is written after the post's fan-out."""
    late = world.clock()
    await world.write(post_id, "ada")
    await handle_posts(world)
    world.clock.now = late
    await world.follow(follower, "ada")
    return await world.changes()


def is_entry_write(operation: str, _payload: Mapping[str, Any]) -> bool:
    return operation == "BatchWriteItem"


async def test_a_post_reaches_the_feeds_of_all_followers(world: FeedWorld) -> None:
    await world.write("p1", "ada")
    await world.follow("ada", "fan0")
    await world.write("p2", "fan0", Visibility.FOLLOWERS)
    await handle_posts(world)

    assert await world.entries() == {*((fan, "p1") for fan in FANS), ("ada", "p2")}
    await world.assert_right()


async def test_a_private_post_reaches_no_feed(world: FeedWorld) -> None:
    await world.write("p", "ada", Visibility.PRIVATE)
    wire = await handle_posts(world)

    assert await world.entries() == set()
    assert wire.sent == 0


async def test_a_repeated_fan_out_costs_one_read(world: FeedWorld) -> None:
    await world.write("p", "ada")
    changes = await world.changes()
    await handle_posts(world, changes)

    assert operation_counts((await handle_posts(world, changes)).meter.calls) == {"BatchGetItem": 1}


async def test_a_feed_begins_with_the_posts_since_the_follow(world: FeedWorld) -> None:
    await world.users("eve")
    await world.write("before", "ada")
    await handle_posts(world)
    await world.follow("eve", "ada")
    await world.write("after", "ada")
    await world.write("hidden", "ada", Visibility.PRIVATE)
    follow_and_posts = await world.changes()
    # The follow is handled last: the fan-out finds the edge, and the backfill the posts.
    await handle_posts(world, follow_and_posts[::-1])

    assert await world.home("eve") == ["after"]
    await world.assert_right()


async def test_a_follow_adds_posts_that_were_fanned_out_before_it_was_written(world: FeedWorld) -> None:
    await world.users("eve")
    await handle_posts(world, await follow_before_a_fanned_out_post(world, "eve", "p"))

    assert await world.home("eve") == ["p"]
    await world.assert_right()


async def test_unfollowing_removes_all_posts_of_the_author(world: FeedWorld) -> None:
    await world.users("bob")
    await world.follow("fan0", "bob")
    for number in range(5):
        await world.write(f"a{number}", "ada")
        await world.write(f"b{number}", "bob")
    await handle_posts(world)
    await world.unfollow("fan0", "ada")
    await handle_posts(world)

    assert await world.home("fan0") == ["b4", "b3", "b2", "b1", "b0"]
    await world.assert_right()


async def test_following_again_adds_only_later_posts(world: FeedWorld) -> None:
    await world.write("old", "ada")
    await handle_posts(world)
    await world.unfollow("fan0", "ada")
    await world.write("missed", "ada")
    await world.follow("fan0", "ada")
    await world.write("new", "ada")
    await handle_posts(world)

    assert await world.home("fan0") == ["new"]
    await world.assert_right()


async def test_a_deleted_post_is_removed_from_the_feeds(world: FeedWorld) -> None:
    await world.write("p", "ada")
    await world.write("kept", "ada")
    await handle_posts(world)
    await world.delete("p", "ada")
    changes = await world.changes()
    await handle_posts(world, changes)

    assert await world.entries() == {(fan, "kept") for fan in FANS}
    assert operation_counts((await handle_posts(world, changes)).meter.calls) == {"BatchGetItem": 1}


async def mixed_post_changes(world: FeedWorld) -> None:
    await world.users("eve")
    await world.write("p1", "ada")
    await world.unfollow("fan1", "ada")
    await world.write("p2", "ada", Visibility.FOLLOWERS)
    await world.unfollow("fan2", "ada")
    await world.follow("fan2", "ada")
    await world.follow("eve", "ada")
    await world.write("p3", "ada")
    await world.delete("p2", "ada")
    await world.follow("fan3", "eve")
    await world.write("e1", "eve")
    await world.unfollow("fan3", "ada")
    await world.write("p4", "ada", Visibility.PRIVATE)
    await world.delete("p1", "ada")
    await world.follow("fan1", "ada")


@pytest.mark.parametrize("seed", range(3))
async def test_reordered_and_repeated_changes_lead_to_the_same_feeds(world: FeedWorld, seed: int) -> None:
    rng = random.Random(seed)
    await mixed_post_changes(world)
    changes = [change for change in await world.changes() if not change.keys["PK"].startswith("FEED#")]
    for _ in range(2):
        rng.shuffle(changes)
        for at in range(0, len(changes), 6):
            await handle_posts(world, changes[at : at + 6])

    await world.assert_right()


async def test_the_feeds_are_right_after_kills_at_every_call(world: FeedWorld) -> None:
    """Each process is killed one call later than the previous one, until one completes."""
    await world.write("before", "ada")
    await handle_posts(world)
    await mixed_post_changes(world)
    changes = await world.changes()
    calls = 1
    while await is_killed_after(world, calls, changes):
        calls += 1

    assert calls > 20
    await world.assert_right()


async def test_unfollows_between_a_kill_and_the_next_process_are_seen(world: FeedWorld) -> None:
    """Two users unfollow, and their changes are handled, between the kill of a process and the next process."""
    for calls in count(1):
        await world.write(f"p{calls}", "ada")
        changes = await world.changes()
        died = await is_killed_after(world, calls, changes)
        await world.unfollow("fan1", "ada")
        await world.unfollow("fan5", "ada")
        await handle_posts(world)
        await handle_posts(world, changes)
        await world.assert_right()
        if not died:
            break
        await world.follow("fan1", "ada")
        await world.follow("fan5", "ada")
        await handle_posts(world)

    assert calls > 10


@pytest.mark.parametrize("killed", [False, True])
async def test_an_unfollow_during_the_fan_out_keeps_the_post_out_of_the_feed(world: FeedWorld, killed: bool) -> None:
    """The unfollow is written after the page was read, and is handled before the entries are written."""
    await world.write("p", "ada")
    changes = await world.changes()
    # The calls: post and author, page, progress, entries, page again.
    last = 4 if killed else None
    wire = ProcessWire(world.database.client, last, before=once(unfollow_and_handle(world, "fan1"), is_entry_write))
    if killed:
        with pytest.raises(Killed):
            await handle_posts(world, changes, wire)
        assert ("fan1", "p") in await world.entries()
        wire = ProcessWire(world.database.client)
    await handle_posts(world, changes, wire)

    assert await world.entries() == {(fan, "p") for fan in FANS if fan != "fan1"}


@pytest.mark.parametrize("first", ["the post", "its deletion"])
async def test_a_post_deleted_after_its_fan_out_was_killed_is_removed_from_all_feeds(
    world: FeedWorld, first: str
) -> None:
    """This includes the feed of a user who unfollowed just before the entries were written and is in no list."""
    await world.write("p", "ada")
    changes = await world.changes()
    with pytest.raises(Killed):
        await handle_posts(
            world,
            changes,
            ProcessWire(world.database.client, 4, before=once(unfollow_and_handle(world, "fan1"), is_entry_write)),
        )
    await world.delete("p", "ada")
    await handle_posts(world, changes if first == "the post" else None)

    assert await world.entries() == set()


async def test_a_post_deleted_before_its_fan_out_costs_one_read(world: FeedWorld) -> None:
    await world.write("p", "ada")
    written = await world.changes()
    await world.delete("p", "ada")

    assert operation_counts((await handle_posts(world, written)).meter.calls) == {"BatchGetItem": 1}


async def test_unfollowing_and_following_during_the_fan_out_keeps_the_post_out(world: FeedWorld) -> None:
    async def leave_and_come_back() -> None:
        await world.unfollow("fan1", "ada")
        await world.follow("fan1", "ada")
        await handle_posts(world)

    await world.write("p", "ada")
    wire = ProcessWire(world.database.client, before=once(leave_and_come_back, is_entry_write))
    await handle_posts(world, await world.changes(), wire)

    assert await world.entries() == {(fan, "p") for fan in FANS if fan != "fan1"}
    await world.assert_right()


async def test_a_post_deleted_during_its_fan_out_is_removed_from_all_feeds(world: FeedWorld) -> None:
    """Another process handles the deletion before the entries are written. The fan-out is killed after each call."""
    for calls in count(1):
        delete = delete_and_handle(world, f"p{calls}")
        await world.write(f"p{calls}", "ada")
        changes = await world.changes()
        died = await is_killed_after(world, calls, changes, before=once(delete, is_entry_write))
        if not died:
            break
        await handle_posts(world, changes)
        await delete()  # for kills before the post was deleted

    assert calls > 20
    assert await world.entries() == set()


async def test_a_killed_withdrawal_is_continued_by_the_next_process(world: FeedWorld) -> None:
    """The first process writes three pages, finds the post deleted, and is killed in the second page of the removal."""
    await world.write("p", "ada")
    written = await world.changes()
    gone = once(lambda: world.delete("p", "ada"), is_entry_write)
    cleared = 0

    async def die(operation: str, payload: Mapping[str, Any]) -> None:
        nonlocal cleared
        await gone(operation, payload)
        if operation == "BatchWriteItem" and "DeleteRequest" in str(payload):
            cleared += 1
            if cleared == 2:
                raise Killed

    with pytest.raises(Killed):
        await handle_posts(world, written, ProcessWire(world.database.client, before=die))
    assert {fan for fan, _ in await world.entries()} == set(FANS[3:])

    second = await handle_posts(world, written)
    assert await world.entries() == set()
    # The second and the third page; the first is complete.
    assert operation_counts(second.meter.calls)["BatchWriteItem"] == 2
    assert operation_counts((await handle_posts(world)).meter.calls) == {"BatchGetItem": 1}


async def test_a_post_deleted_during_a_backfill_is_removed(world: FeedWorld) -> None:
    """The backfill is killed after each call."""
    await world.users("eve")
    for calls in count(1):
        changes = await follow_before_a_fanned_out_post(world, "eve", f"p{calls}")
        delete = delete_and_handle(world, f"p{calls}")
        died = await is_killed_after(world, calls, changes, before=once(delete, is_entry_write))
        if not died:
            break
        await handle_posts(world, changes)
        await delete()
        await unfollow_and_handle(world, "eve")()

    assert calls > 4
    assert await world.entries() == set()


async def test_an_unfollow_during_the_backfill_leaves_no_entry(world: FeedWorld) -> None:
    """The backfill is killed after each call."""
    await world.users("eve")
    for calls in count(1):
        changes = await follow_before_a_fanned_out_post(world, "eve", f"p{calls}")
        leave = unfollow_and_handle(world, "eve")
        died = await is_killed_after(world, calls, changes, before=once(leave, is_entry_write))
        if not died:
            break
        await handle_posts(world, changes)
        await leave()

    assert calls > 4
    assert await world.home("eve") == []
    await world.assert_right()


async def test_an_unfollow_after_a_second_follow_by_a_slow_clock_leaves_no_entry(world: FeedWorld) -> None:
    await world.users("eve")
    early = world.clock()
    await world.write("p", "ada")
    await world.follow("eve", "ada")
    changes = await world.changes()
    await world.unfollow("eve", "ada")
    world.clock.now = early
    await world.follow("eve", "ada")
    await world.changes()
    leave = once(unfollow_and_handle(world, "eve"), is_entry_write)
    await FollowBackfill(lambda: world.store(ProcessWire(world.database.client, before=leave)), world.clock).handle(
        changes
    )

    assert await world.entries() == set()


async def test_a_failed_fan_out_delays_no_other_author(world: FeedWorld) -> None:
    async def refuse(_operation: str, payload: Mapping[str, Any]) -> None:
        if "FOLLOWEE#bob" in str(payload):
            raise OSError("the line is dead")

    await world.users("bob")
    await world.follow("fan1", "bob")
    await handle_posts(world)
    await world.write("b", "bob")
    await world.write("a", "ada")
    changes = await world.changes()
    with pytest.raises(OSError, match="dead"):
        await handle_posts(world, changes, ProcessWire(world.database.client, before=refuse))
    assert await world.entries() == {(fan, "a") for fan in FANS}

    await handle_posts(world, changes)
    await world.assert_right()


async def test_a_thousand_followers_take_few_calls(world: FeedWorld) -> None:
    fans = [f"reader-{number:04d}" for number in range(1000)]
    await world.users("bob")
    await world.followed_by("bob", fans)
    await world.write("p", "bob")
    changes = [change for change in await world.changes() if change.keys["PK"] == "POST#p"]
    wire = ProcessWire(world.database.client)
    began = time.perf_counter()
    await FanOut(lambda: world.store(wire), world.clock).handle(changes)
    seconds = time.perf_counter() - began

    assert await world.entries() == {(fan, "p") for fan in fans}
    calls = wire.meter.calls
    # Two pages of followers, each read before and after its entries, and an empty page; the post, and the progress.
    assert operation_counts(calls) == {"BatchGetItem": 1, "BatchWriteItem": 40, "GetItem": 1, "PutItem": 3, "Query": 5}
    writes = sum(call.units for call in calls if call.operation in ("BatchWriteItem", "PutItem"))
    reads = sum(call.units for call in calls) - writes
    print(f"{len(calls)} calls, {writes} write units, {reads} read units, {seconds:.2f} s")
    assert writes <= 2100  # an entry and its index entry in GSI3 for each follower
    assert reads <= 100
