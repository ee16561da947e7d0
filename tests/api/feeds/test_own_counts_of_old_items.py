"""Counts in the responses of mutations, of items without a mark: old ones, and those of other programs (FEED-N7)."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from datastore.feeds.count_marks import REQUIRED, VALIDITY
from datastore.keyspace.feeds import follows
from datastore.keyspace.feeds.pipeline import FEED_PIPELINE
from datastore.model.composite_keys import key_of
from tests.support.feed_changes import put_feed_records
from tests.support.feed_items import comment_item, following_item, like_item, post_item, user_item
from tests.support.feed_steps import mutate
from tests.support.moments import utc_now
from tests.support.own_counts import (
    DELETE,
    FOLLOW,
    LIKE,
    UNFOLLOW,
    UNLIKE,
    CountingConsumer,
    consumer,
    likes_after,
    stored_post,
)
from tests.support.served import Served

__all__ = ["consumer"]  # fixtures


# Items of earlier releases, which the stored counts contain, and of which there are no marks.
STORED_BEFORE = datetime(2026, 6, 1, tzinfo=UTC)


@pytest.mark.parametrize("is_counted_later", [False, True])
async def test_a_like_of_an_earlier_release_is_in_the_count_already(
    served: Served, consumer: CountingConsumer, is_counted_later: bool
) -> None:
    await stored_post(served, likes=6)
    assert served.gateway.database is not None
    await put_feed_records(served.gateway.database, like_item(post_item("p"), "eve", STORED_BEFORE))
    written_before = await consumer.pending()

    async def count() -> None:
        if is_counted_later:
            await consumer.count_where(lambda change: change not in written_before)

    shown = [await likes_after(served, LIKE)]
    for mutation in (UNLIKE, LIKE, LIKE, UNLIKE, LIKE):
        shown.append(await likes_after(served, mutation))
        await count()

    assert shown == [(6, True), (5, False), (6, True), (6, True), (5, False), (6, True)]


async def test_a_comment_of_an_earlier_release_is_in_the_count_already(served: Served) -> None:
    await stored_post(served, comments=2)
    assert served.gateway.database is not None
    await put_feed_records(served.gateway.database, comment_item(post_item("p"), "c1", "eve", STORED_BEFORE))

    deleted = await mutate(served, DELETE, "eve", post="p", id="c1")

    assert deleted["post"]["commentCount"] == 1


async def test_a_follow_of_an_earlier_release_is_in_the_counts_already(served: Served) -> None:
    assert served.gateway.database is not None
    users = [user_item("ada") | {"followers": 3}, user_item("eve") | {"following": 5}]
    edge = follows.edge.item("ada", "eve", STORED_BEFORE) | {"since": "2026-06-01T00:00:00.000Z"}
    await put_feed_records(served.gateway.database, *users, following_item("eve", "ada", STORED_BEFORE), edge)

    shown = [
        (await mutate(served, mutation, "eve", id="ada"))["user"]["followerCount"]
        for mutation in (FOLLOW, UNFOLLOW, FOLLOW, FOLLOW, UNFOLLOW)
    ]

    assert shown == [3, 2, 3, 3, 2]


async def test_an_edge_of_another_program_that_is_not_counted_is_adopted_and_removed(
    served: Served, consumer: CountingConsumer
) -> None:
    assert served.gateway.database is not None
    edge = follows.edge.item("ada", "eve", STORED_BEFORE)
    await put_feed_records(served.gateway.database, user_item("ada"), user_item("eve"), edge)

    shown = [
        (await mutate(served, mutation, "eve", id="ada"))["user"]["followerCount"]
        for mutation in (FOLLOW, FOLLOW, UNFOLLOW)
    ]
    await put_feed_records(served.gateway.database, edge)
    shown.append((await mutate(served, UNFOLLOW, "eve", id="ada"))["user"]["followerCount"])
    await consumer.count()

    assert shown == [1, 1, 0, 0]


@pytest.mark.parametrize("are_deleted", [False, True], ids=["marks remain", "marks are deleted"])
async def test_an_old_like_is_counted_after_its_mark_has_expired(
    served: Served, consumer: CountingConsumer, are_deleted: bool
) -> None:
    now = utc_now()
    served.clock.now = now - VALIDITY - timedelta(hours=1)
    await stored_post(served, likes=6)
    await mutate(served, LIKE, "eve", post="p")
    await consumer.count([replace(change, time=served.clock.now) for change in await consumer.pending()])
    served.clock.now = now
    if are_deleted:
        marks = [key_of(FEED_PIPELINE, mark) for mark in await consumer.marks()]
        await served.store().write_all(FEED_PIPELINE, deletes=marks)

    shown = [await likes_after(served, mutation) for mutation in (LIKE, UNLIKE, LIKE, UNLIKE)]
    await consumer.count()
    shown.append(await likes_after(served, LIKE))

    assert shown == [(7, True), (6, False), (7, True), (6, False), (7, True)]


async def test_an_expired_mark_that_outlives_a_later_one_does_not_matter(
    served: Served, consumer: CountingConsumer
) -> None:
    now = utc_now()
    served.clock.now = now - VALIDITY - timedelta(hours=1)
    await stored_post(served, likes=6)
    for mutation in (LIKE, UNLIKE):
        await mutate(served, mutation, "eve", post="p")
    await consumer.count([replace(change, time=served.clock.now) for change in await consumer.pending()])
    removed = [key_of(FEED_PIPELINE, mark) for mark in await consumer.marks() if not mark["is_counted"]]
    await served.store().write_all(FEED_PIPELINE, deletes=removed)
    served.clock.now = now

    assert len(removed) == 1
    assert await likes_after(served, LIKE) == (7, True)


async def test_only_an_old_like_is_marked_before_it_is_deleted(served: Served, consumer: CountingConsumer) -> None:
    await stored_post(served)
    await mutate(served, LIKE, "eve", post="p")
    unlike = 'mutation { unlikePost(postId: "p") { createdAt } }'
    new = await served.ask(unlike, user="eve")
    await mutate(served, LIKE, "eve", post="p")
    served.clock.now += REQUIRED
    old = await served.ask(unlike, user="eve")

    assert [call.operation for call in new.calls] == ["DeleteItem"]
    assert [call.operation for call in old.calls] == ["DeleteItem", "Query", "PutItem", "DeleteItem"]
    assert [mark["is_counted"] for mark in await consumer.marks()] == [True]
