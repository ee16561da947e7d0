"""What people did with a post goes when the post is deleted, and what comes too late goes as well."""

from collections.abc import Sequence
from itertools import count

import pytest
from msgspec.structs import replace

from datastore.change_streams.shards.stream_reader import Change
from datastore.database import Database
from datastore.feeds.comments import Comments
from datastore.feeds.likes import Likes
from datastore.feeds.posts import Post
from datastore.keyspace.feeds.posts import partition
from datastore.keyspace.feeds.table import FEED
from pipelines.feeds.cleanup import CascadeDelete
from tests.support.feed_changes import items_of, remove
from tests.support.feed_world import Killed, Wire, World, made

READERS = [f"reader{number}" for number in range(5)]


@pytest.fixture
async def world(database: Database) -> World:
    world = World(database)
    await world.users("ada")
    return world


async def react(world: World, post: Post, *readers: str) -> None:
    """Each likes the post, and says so."""
    for reader in readers:
        await Likes(world.store(), world.clock()).like(post, reader)
        await Comments(world.store(), world.clock()).add(post, f"{post.post_id}-{reader}", reader, "Nice", ())


async def left(world: World, post_id: str) -> list[str]:
    """The sort keys of what there is of a post."""
    return sorted(item["SK"] for item in await items_of(world.database, FEED) if item["PK"] == partition(post_id))


async def handle(world: World, changes: Sequence[Change] | None = None, wire: Wire | None = None) -> Wire:
    wire = wire or Wire(world.database.client)
    changes = await world.changes() if changes is None else changes
    try:
        await CascadeDelete(lambda: world.store(wire), page=4).handle(changes)
    finally:
        await wire.quiet()
    return wire


async def test_likes_and_comments_go_with_their_post(world: World) -> None:
    gone, kept = await world.write("gone", "ada"), await world.write("kept", "ada")
    await react(world, gone, *READERS)
    await react(world, kept, "reader0")
    await handle(world)
    await world.delete("gone", "ada")
    await handle(world)

    assert await left(world, "gone") == ["META"]
    assert await left(world, "kept") == ["COMMENT#kept-reader0", "LIKE#reader0", "META", "TAG#world"]


async def test_what_comes_after_its_post_was_deleted_goes_too(world: World) -> None:
    post = await world.write("p", "ada")
    kept = await world.write("kept", "ada")
    await world.delete("p", "ada")
    await handle(world)
    await react(world, post, *READERS)
    await react(world, kept, "reader0")
    calls = (await handle(world)).meter.calls

    assert await left(world, "p") == ["META"]
    assert len(await left(world, "kept")) == 4
    assert made(calls) == {"BatchGetItem": 1, "BatchWriteItem": 1}


async def test_likes_and_comments_of_a_post_that_was_never_stored_stay(world: World) -> None:
    """Another program may store the post after its likes and comments."""
    ours = await world.write("p", "ada")
    await world.changes()
    later = replace(ours, post_id="later")
    await react(world, later, "reader0")
    await handle(world)

    assert await left(world, "later") == ["COMMENT#later-reader0", "LIKE#reader0"]


async def test_likes_of_a_post_that_was_removed_without_a_tombstone_go_with_it(world: World) -> None:
    post = await world.write("p", "ada")
    await react(world, post, "reader0")
    await handle(world)
    await remove(world.database, {"PK": partition("p"), "SK": "META"})
    await handle(world)

    assert await left(world, "p") == []


async def test_what_was_said_of_posts_that_are_there_costs_one_read(world: World) -> None:
    post = await world.write("p", "ada")
    await react(world, post, *READERS)

    assert made((await handle(world)).meter.calls) == {"GetItem": 1}
    assert len(await left(world, "p")) == 12


async def test_changes_that_are_none_of_its_concern_cost_nothing(world: World) -> None:
    await world.users("eve")
    await world.follow("eve", "ada")
    await world.write("p", "ada")

    assert (await handle(world)).sent == 0


async def test_a_post_of_the_same_id_that_came_later_keeps_what_it_has(world: World) -> None:
    """Its deletion comes again after its tombstone has expired, and the id was taken anew."""
    await world.write("p", "ada")
    await world.delete("p", "ada")
    changes = await world.changes()
    await remove(world.database, {"PK": partition("p"), "SK": "META"})
    await react(world, await world.write("p", "ada"), "reader0")
    await handle(world, changes)

    assert len(await left(world, "p")) == 4


async def test_a_leftover_tag_goes_too(world: World) -> None:
    await world.write("p", "ada")
    tag = next(item for item in await items_of(world.database, FEED) if item["SK"] == "TAG#world")
    await world.delete("p", "ada")
    await world.store().write_all(FEED, puts=[tag])
    await handle(world)

    assert await left(world, "p") == ["META"]


async def test_a_process_may_die_after_any_call(world: World) -> None:
    for calls in count(1):
        post = await world.write(f"p{calls}", "ada")
        await react(world, post, *READERS)
        await world.delete(post.post_id, "ada")
        changes = await world.changes()
        try:
            await handle(world, changes, Wire(world.database.client, last=calls))
            break
        except Killed:
            await handle(world, changes)
            assert await left(world, post.post_id) == ["META"]

    assert calls > 5
    await handle(world, changes)
    assert await left(world, f"p{calls}") == ["META"]
