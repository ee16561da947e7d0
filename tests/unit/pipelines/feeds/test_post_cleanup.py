"""Cascade delete: likes and comments are deleted with their post, also those written after the deletion."""

from collections.abc import Sequence
from itertools import count

import pytest
from msgspec.structs import replace

from datastore.change_streams.change import Change
from datastore.database import Database
from datastore.feeds.comments import Comments
from datastore.feeds.likes import Likes
from datastore.feeds.posts import Post
from datastore.keyspace.feeds import posts as keys
from datastore.keyspace.feeds.table import FEED
from pipelines.feeds.cleanup import CascadeDelete
from tests.support.feed_changes import delete_feed_records, items_of
from tests.support.feed_world import FeedWorld, Killed, ProcessWire, operation_counts

READERS = [f"reader{number}" for number in range(5)]


@pytest.fixture
async def world(database: Database) -> FeedWorld:
    world = FeedWorld(database)
    await world.users("ada")
    return world


async def react(world: FeedWorld, post: Post, *readers: str) -> None:
    """Let each reader like the post and comment on it."""
    for reader in readers:
        await Likes(world.store(), world.clock()).like(post, reader)
        await Comments(world.store(), world.clock()).add(post, f"{post.post_id}-{reader}", reader, "Nice", ())


async def remaining(world: FeedWorld, post_id: str) -> list[str]:
    """Return the sort keys of a post's items."""
    return sorted(
        item["SK"] for item in await items_of(world.database, FEED) if item["PK"] == keys.post.partition_of(post_id)
    )


async def handle_deletions(
    world: FeedWorld, changes: Sequence[Change] | None = None, wire: ProcessWire | None = None
) -> ProcessWire:
    wire = wire or ProcessWire(world.database.client)
    changes = await world.changes() if changes is None else changes
    try:
        await CascadeDelete(lambda: world.store(wire), page=4).handle(changes)
    finally:
        await wire.quiet()
    return wire


async def test_likes_and_comments_are_deleted_with_their_post(world: FeedWorld) -> None:
    gone, kept = await world.write("gone", "ada"), await world.write("kept", "ada")
    await react(world, gone, *READERS)
    await react(world, kept, "reader0")
    await handle_deletions(world)
    await world.delete("gone", "ada")
    await handle_deletions(world)

    assert await remaining(world, "gone") == ["META"]
    assert await remaining(world, "kept") == ["COMMENT#kept-reader0", "LIKE#reader0", "META", "TAG#world"]


async def test_items_written_after_the_deletion_are_deleted(world: FeedWorld) -> None:
    post = await world.write("p", "ada")
    kept = await world.write("kept", "ada")
    await world.delete("p", "ada")
    await handle_deletions(world)
    await react(world, post, *READERS)
    await react(world, kept, "reader0")
    calls = (await handle_deletions(world)).meter.calls

    assert await remaining(world, "p") == ["META"]
    assert len(await remaining(world, "kept")) == 4
    assert operation_counts(calls) == {"BatchGetItem": 1, "BatchWriteItem": 1}


async def test_likes_and_comments_of_a_post_that_was_never_stored_remain(world: FeedWorld) -> None:
    """Another program may store the post after its likes and comments."""
    ours = await world.write("p", "ada")
    await world.changes()
    later = replace(ours, post_id="later")
    await react(world, later, "reader0")
    await handle_deletions(world)

    assert await remaining(world, "later") == ["COMMENT#later-reader0", "LIKE#reader0"]


async def test_likes_of_a_post_removed_without_a_tombstone_are_deleted(world: FeedWorld) -> None:
    post = await world.write("p", "ada")
    await react(world, post, "reader0")
    await handle_deletions(world)
    await delete_feed_records(world.database, {"PK": keys.post.partition_of("p"), "SK": "META"})
    await handle_deletions(world)

    assert await remaining(world, "p") == []


async def test_likes_and_comments_of_existing_posts_cost_one_read(world: FeedWorld) -> None:
    post = await world.write("p", "ada")
    await react(world, post, *READERS)

    assert operation_counts((await handle_deletions(world)).meter.calls) == {"GetItem": 1}
    assert len(await remaining(world, "p")) == 12


async def test_irrelevant_changes_cost_nothing(world: FeedWorld) -> None:
    await world.users("eve")
    await world.follow("eve", "ada")
    await world.write("p", "ada")

    assert (await handle_deletions(world)).sent == 0


async def test_a_later_post_of_the_same_id_keeps_its_items(world: FeedWorld) -> None:
    """The change of the deletion is repeated after the tombstone expired and the id was used again."""
    await world.write("p", "ada")
    await world.delete("p", "ada")
    changes = await world.changes()
    await delete_feed_records(world.database, {"PK": keys.post.partition_of("p"), "SK": "META"})
    await react(world, await world.write("p", "ada"), "reader0")
    await handle_deletions(world, changes)

    assert len(await remaining(world, "p")) == 4


async def test_a_leftover_tag_is_deleted(world: FeedWorld) -> None:
    await world.write("p", "ada")
    tag = next(item for item in await items_of(world.database, FEED) if item["SK"] == "TAG#world")
    await world.delete("p", "ada")
    await world.store().write_all(FEED, puts=[tag])
    await handle_deletions(world)

    assert await remaining(world, "p") == ["META"]


async def test_the_cleanup_survives_kills_at_every_call(world: FeedWorld) -> None:
    for calls in count(1):
        post = await world.write(f"p{calls}", "ada")
        await react(world, post, *READERS)
        await world.delete(post.post_id, "ada")
        changes = await world.changes()
        try:
            await handle_deletions(world, changes, ProcessWire(world.database.client, last=calls))
            break
        except Killed:
            await handle_deletions(world, changes)
            assert await remaining(world, post.post_id) == ["META"]

    assert calls > 5
    await handle_deletions(world, changes)
    assert await remaining(world, f"p{calls}") == ["META"]
