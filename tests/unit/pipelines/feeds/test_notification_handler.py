"""Notifications: one for each action of another user, and only of posts that the recipient may see."""

import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from datastore.change_streams.change import Change
from datastore.database import Database
from datastore.dynamodb.calls import Call
from datastore.dynamodb.client import Client, RequestRefused
from datastore.dynamodb.codec import Item
from datastore.feeds.notifications import LIFETIME, Notification
from datastore.keyspace.feeds.table import FEED
from datastore.model.timestamps import to_seconds
from pipelines.feeds.notifications import NotificationHandler
from tests.support.fault_proxy import Proxy, apply_and_refuse, client_of, forward, refuse
from tests.support.feed_changes import delete_feed_records, feed_changes, items_of, put_feed_records, store_of
from tests.support.feed_items import (
    comment_item,
    following_item,
    inserted,
    like_item,
    modified,
    post_item,
    removed,
    tombstone,
    user_item,
)
from tests.support.served import NOON, Clock

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)


def handler(database: Database, client: Client | None = None, clock: Clock | None = None) -> NotificationHandler:
    return NotificationHandler(lambda: store_of(database, client), clock or Clock())


async def handle_insertions(database: Database, *items: Item) -> None:
    await handler(database).handle([inserted(item) for item in items])


async def notifications(database: Database) -> list[Notification]:
    """Return all notifications, sorted by user and time."""
    return [Notification.decoder(item) for item in await unread_items(database)]


async def unread_items(database: Database) -> list[Item]:
    items = [item for item in await items_of(database, FEED) if item["PK"].endswith("#UNREAD")]
    return sorted(items, key=lambda item: (item["PK"], item["SK"]))


async def notification_summary(database: Database) -> list[tuple[str, str, str, int]]:
    """Return the recipient, the kind, the last actor and the number of actors of each notification."""
    return sorted(
        (one.user_id, one.kind or "", one.actor_id or "", one.actor_count) for one in await notifications(database)
    )


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_second_follow_on_a_day_keeps_the_first_notification(database: Database, at_once: bool) -> None:
    first, again = following_item("bob", "ada"), following_item("bob", "ada", NOON + 5 * MINUTE)
    changes = [inserted(first), removed(first), inserted(again)]

    for batch in [changes] if at_once else [[change] for change in changes]:
        await handler(database).handle(batch)

    assert [one.created_at for one in await notifications(database)] == [NOON]


async def test_likes_comments_follows_and_mentions_are_notified(database: Database) -> None:
    await put_feed_records(database, user_item("cleo"), user_item("dan"))
    post = post_item("p1", mentions=["cleo"])

    await handle_insertions(
        database,
        post,
        like_item(post, "bob", NOON + MINUTE),
        comment_item(post, "c1", "bob", NOON + 2 * MINUTE, mentions=["dan"]),
        following_item("bob", "ada", NOON + 3 * MINUTE),
    )

    found = await notifications(database)
    assert [(one.user_id, one.kind, one.actor_id, one.post_id, one.comment_id) for one in found] == [
        ("ada", "like", "bob", "p1", None),
        ("ada", "comment", "bob", "p1", "c1"),
        ("ada", "follow", "bob", None, None),
        ("cleo", "mention", "ada", "p1", None),
        ("dan", "mention", "bob", "p1", "c1"),
    ]
    assert [one.created_at for one in found] == [NOON + minutes * MINUTE for minutes in (1, 2, 3, 0, 2)]
    assert all(one.expires_at == one.created_at + LIFETIME and one.actor_count == 1 for one in found)


async def test_a_notification_is_found_in_the_index_and_has_a_short_key(database: Database) -> None:
    post = post_item("p" * 64)

    await handle_insertions(database, like_item(post), comment_item(post, "c" * 36))

    for item in await unread_items(database):
        assert (item["GSI_NOTIFPK"], item["GSI_NOTIFSK"]) == (item["PK"], item["SK"])
        assert len(item["SK"]) < 64


async def test_own_actions_are_not_notified(database: Database) -> None:
    await put_feed_records(database, user_item("ada"), user_item("bob"))
    post = post_item("p1", mentions=["ada"])

    await handle_insertions(database, post, like_item(post, "ada"), comment_item(post, "c1", "ada", mentions=["ada"]))
    await handle_insertions(database, comment_item(post, "c2", "bob", mentions=["bob"]))

    assert await notification_summary(database) == [("ada", "comment", "bob", 1)]


async def test_an_author_mentioned_in_a_comment_gets_only_the_comments_notification(database: Database) -> None:
    await put_feed_records(database, user_item("ada"))

    await handle_insertions(database, comment_item(post_item("p1"), "c1", "bob", mentions=["ada"]))

    assert await notification_summary(database) == [("ada", "comment", "bob", 1)]


async def test_likes_within_five_minutes_are_one_notification_with_the_last_actor(database: Database) -> None:
    post, other = post_item("p1"), post_item("p2")
    moments = (0, 1, 2.5, 4.999, 5, 7)
    likes = [like_item(post, f"fan{number}", NOON + minutes * MINUTE) for number, minutes in enumerate(moments)]

    await handle_insertions(database, *likes[:2])
    await handle_insertions(database, *likes[2:], like_item(other, "fan0", NOON + MINUTE))

    found = {(one.post_id, one.created_at): (one.actor_id, one.actor_count) for one in await notifications(database)}
    assert found == {
        ("p1", NOON + 4.999 * MINUTE): ("fan3", 4),
        ("p2", NOON + MINUTE): ("fan0", 1),
        ("p1", NOON + 7 * MINUTE): ("fan5", 2),
    }


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_notification_is_positioned_by_its_last_like_in_any_order_of_handling(
    database: Database, at_once: bool
) -> None:
    post = post_item("p1")
    likes = [like_item(post, f"fan{minutes}", NOON + minutes * MINUTE) for minutes in (1, 4, 2)]
    batches = [likes] if at_once else [[like] for like in likes]
    await handle_insertions(database, comment_item(post, "c1", at=NOON + 3 * MINUTE))

    for batch in batches:
        await handle_insertions(database, *batch)

    (item,) = [item for item in await unread_items(database) if item["kind"] == "like"]
    assert item["SK"].startswith("2026-06-25T12:00:00.000Z#")
    assert item["GSI_NOTIFSK"] == item["SK"].replace("12:00:00.000Z", "12:04:00.000Z")
    assert (item["actor_id"], item["actor_count"]) == ("fan4", 3)
    assert item["expiresAt"] == to_seconds(NOON + 4 * MINUTE + LIFETIME)


async def test_a_late_like_after_the_notification_was_read_creates_a_complete_one(database: Database) -> None:
    post = post_item("p1")
    await handle_insertions(database, like_item(post, "bob", NOON + 4 * MINUTE))
    await delete_feed_records(database, *await unread_items(database))

    await handle_insertions(database, like_item(post, "cleo", NOON + MINUTE))

    assert await notification_summary(database) == [("ada", "like", "cleo", 1)]


async def test_a_repeated_like_within_the_window_counts_one_actor(database: Database) -> None:
    post = post_item("p1")
    await put_feed_records(database, post)
    first, second = (like_item(post, "bob", NOON + seconds * MINUTE / 60) for seconds in (1, 50))

    await handler(database).handle([inserted(first), removed(first)])
    await handler(database).handle([inserted(second), removed(second)])
    await handle_insertions(database, like_item(post, "cleo", NOON + MINUTE))

    assert await notification_summary(database) == [("ada", "like", "cleo", 2)]


async def test_likes_after_a_notification_was_read_create_a_new_one(database: Database) -> None:
    post = post_item("p1")
    likes = [inserted(like_item(post, fan)) for fan in ("bob", "cleo", "dan")]
    await handler(database).handle(likes[:2])
    await delete_feed_records(database, *await unread_items(database))

    await handler(database).handle(likes)

    assert await notification_summary(database) == [("ada", "like", "dan", 1)]


async def test_a_repeated_record_does_not_restore_a_read_notification(database: Database) -> None:
    changes = [inserted(comment_item(post_item("p1"), "c1")), inserted(following_item("bob", "ada"))]
    await handler(database).handle(changes)
    await delete_feed_records(database, *await unread_items(database))

    await handler(database).handle(changes)

    assert await notification_summary(database) == []


async def test_repeated_follows_notify_once_a_day(database: Database) -> None:
    for since in (NOON, NOON + MINUTE, NOON + DAY, NOON + DAY + MINUTE):
        await handle_insertions(database, following_item("bob", "ada", since))

    assert [one.created_at for one in await notifications(database)] == [NOON, NOON + DAY]


@pytest.mark.parametrize(
    ("visibility", "recipients"),
    [("public", ["follower", "stranger"]), ("followers", ["follower"]), ("private", [])],
)
async def test_mentions_notify_only_users_who_may_see_the_post(
    database: Database, visibility: str, recipients: list[str]
) -> None:
    mentioned = ["follower", "nobody", "stranger"]
    await put_feed_records(database, user_item("follower"), user_item("stranger"))
    await put_feed_records(database, following_item("follower", "ada"), following_item("nobody", "ada"))
    post = post_item("p1", visibility=visibility, mentions=mentioned)

    await handle_insertions(database, post)
    await handle_insertions(database, comment_item(post, "c1", "ada", mentions=mentioned))

    found = await notifications(database)
    assert sorted(one.user_id for one in found if one.comment_id is None) == recipients
    assert sorted(one.user_id for one in found if one.comment_id) == recipients


async def test_a_repeated_record_does_not_notify_users_who_joined_later(database: Database) -> None:
    changes = [inserted(post_item("p1", mentions=["late"]))]
    await handler(database).handle(changes)
    await put_feed_records(database, user_item("late"))

    await handler(database).handle(changes)

    assert await notification_summary(database) == []


async def test_actions_older_than_the_lifetime_are_not_notified(database: Database) -> None:
    clock = Clock()
    clock.forward(days=90)
    post = post_item("p1")
    items = [like_item(post, at=NOON), following_item("bob", "ada"), comment_item(post, "c1", at=NOON)]

    await handler(database, clock=clock).handle([inserted(item) for item in items])
    assert await notification_summary(database) == []
    await handler(database, clock=clock).handle([inserted(comment_item(post, "c2", at=NOON + MINUTE))])

    assert await notification_summary(database) == [("ada", "comment", "bob", 1)]


async def mixed_changes(database: Database) -> list[Change]:
    """Write many actions to the table, and return their changes from the stream."""
    users = [f"user{number}" for number in range(6)]
    posts = [post_item(f"p{number}", users[number], NOON, mentions=users[:3]) for number in range(3)]
    await put_feed_records(database, *map(user_item, users), *posts)
    for post in posts:
        await put_feed_records(database, *[like_item(post, user, NOON + MINUTE) for user in users])
        await put_feed_records(
            database, *[like_item(post, user, NOON + 6 * MINUTE) for user in users]
        )  # no INSERT: the likes exist
        await put_feed_records(database, comment_item(post, "c1", "user4", mentions=users))
    await put_feed_records(database, *[following_item(user, "user0") for user in users[1:]])
    return await feed_changes(database)


LIVELY = sorted(
    [(f"user{number}", "like", "user5", 5) for number in range(3)]
    + [(f"user{number}", "comment", "user4", 1) for number in range(3)]
    + [("user0", "follow", f"user{number}", 1) for number in range(1, 6)]
    + [(f"user{of}", "mention", f"user{by}", 1) for of in range(3) for by in range(3) if of != by]
    + [(f"user{of}", "mention", "user4", 1) for of in (0, 1, 2, 3, 5) for post in range(3) if of != post]
)


@pytest.mark.parametrize("seed", range(4))
async def test_repeated_records_in_any_batches_add_no_notification(database: Database, seed: int) -> None:
    rng = random.Random(seed)
    changes = await mixed_changes(database)
    handled = 0

    while handled < len(changes):
        start = rng.randint(max(0, handled - 8), handled)
        handled = min(len(changes), handled + rng.randint(1, 9))
        await handler(database).handle([*changes[start:handled], *changes[start:handled]])
    await handler(database).handle(changes)

    assert await notification_summary(database) == LIVELY


async def test_the_handlers_own_writes_are_not_notified(database: Database) -> None:
    changes = await mixed_changes(database)
    await handler(database).handle(changes)

    await handler(database).handle(await feed_changes(database, since=len(changes)))

    assert await notification_summary(database) == LIVELY


@pytest.mark.parametrize("fault", [refuse(400, "AccessDeniedException"), apply_and_refuse], ids=["before", "after"])
async def test_a_failure_at_any_call_notifies_once_after_a_retry(database: Database, proxy: Proxy, fault: Any) -> None:
    await put_feed_records(database, *[user_item(f"user{number}") for number in range(20)])
    async with client_of(proxy) as client:
        for number in range(3):
            post = post_item(f"p{number}", mentions=[f"user{of}" for of in range(20)])
            fans = [like_item(post, f"fan{of}") for of in range(110)]
            changes = [inserted(item) for item in (post, *fans)]
            proxy.faults.extend([*[forward] * number, fault])

            with pytest.raises(RequestRefused):
                await handler(database, client).handle(changes)
            proxy.faults.clear()
            await handler(database, client).handle(changes)

            found = [one for one in await notifications(database) if one.post_id == f"p{number}"]
            assert sorted(one.user_id for one in found if one.kind == "mention") == sorted(
                f"user{of}" for of in range(20)
            )
            assert [one.actor_count for one in found if one.kind == "like"] == [110]


async def test_a_hundred_likes_of_a_post_are_one_write_and_their_marks(database: Database) -> None:
    post = post_item("p1")
    calls = await calls_for(database, [inserted(like_item(post, f"fan{number}")) for number in range(100)])

    assert [call.operation for call in calls] == ["TransactWriteItems"] * 2
    assert [len(call.request["TransactItems"]) for call in calls] == [100, 2]


async def test_the_recipients_of_a_batch_are_read_in_one_call(database: Database) -> None:
    await put_feed_records(database, *[user_item(f"user{number}") for number in range(10)])
    posts = [
        post_item(f"p{number}", visibility="followers", mentions=[f"user{of}" for of in range(10)])
        for number in range(4)
    ]

    calls = await calls_for(database, [inserted(post) for post in posts])

    assert [call.operation for call in calls] == ["BatchGetItem", "TransactWriteItems"]


async def test_irrelevant_changes_cost_no_call(database: Database) -> None:
    assert await calls_for(database, [inserted(user_item("ada")), removed(user_item("bob"))]) == []


async def test_removed_likes_cost_one_read_of_their_posts(database: Database) -> None:
    posts = [post_item(f"p{number}") for number in range(3)]
    await put_feed_records(database, *posts)

    calls = await calls_for(database, [removed(like_item(post, user)) for post in posts for user in ("bob", "cleo")])

    assert [(call.operation, call.units) for call in calls] == [("BatchGetItem", 3)]


async def test_notifications_of_deleted_items_are_deleted_and_stay_deleted(database: Database) -> None:
    await put_feed_records(database, user_item("cleo"), user_item("dan"))
    gone, stays = post_item("gone", mentions=["cleo"]), post_item("stays")
    await put_feed_records(database, stays, tombstone(gone))
    insertions_of_deleted = [
        gone,
        like_item(gone, "bob"),
        like_item(gone, "dan"),
        comment_item(gone, "c1", mentions=["dan"]),
    ]
    insertions_of_kept = [like_item(stays), comment_item(stays, "c2", mentions=["dan"]), comment_item(stays, "c3")]
    await handle_insertions(database, *insertions_of_deleted, *insertions_of_kept)
    taken_back = [
        modified(gone, tombstone(gone)),
        *[removed(item) for item in insertions_of_deleted[1:]],
        removed(insertions_of_kept[0]),
        modified(insertions_of_kept[1], deleted_comment(insertions_of_kept[1])),
    ]

    await handler(database).handle(taken_back)
    left = await notification_summary(database)
    await handle_insertions(
        database, *insertions_of_deleted, *insertions_of_kept
    )  # a record that was kept as a dead letter is replayed
    await handler(database).handle(taken_back)

    assert left == [("ada", "comment", "bob", 1), ("ada", "like", "bob", 1)]
    assert await notification_summary(database) == left


async def test_notifications_of_removed_likes_are_deleted_with_the_post(database: Database) -> None:
    gone, stays, others = post_item("gone"), post_item("stays"), post_item("others", "eve")
    await put_feed_records(database, gone, stays, others)
    likes = [like_item(post, "bob", NOON + MINUTE) for post in (gone, stays, others)]
    again = like_item(gone, "bob", NOON + 7 * MINUTE)
    for changes in ([*map(inserted, likes)], [*map(removed, likes)], [inserted(again)], [removed(again)]):
        await handler(database).handle(changes)
    assert len(await notifications(database)) == 4

    await put_feed_records(database, tombstone(gone))
    await handler(database).handle([modified(gone, tombstone(gone))])

    assert [one.post_id for one in await notifications(database)] == ["stays", "others"]


async def test_a_deleted_post_costs_one_query_of_its_authors_notifications(database: Database) -> None:
    public, private = post_item("p1"), post_item("p2", visibility="private")

    of_public = await calls_for(database, [removed(public)])
    of_private = await calls_for(database, [removed(private)])

    assert [call.operation for call in of_public] == ["Query"]
    assert of_private == []


def deleted_comment(comment: Item) -> Item:
    """Return the tombstone of a deleted comment."""
    kept = {name: value for name, value in comment.items() if name not in ("text", "text_len", "mentions")}
    return {**kept, "deleted_at": "2026-06-25T12:00:00.000Z", "expiresAt": 1}


async def calls_for(database: Database, changes: Sequence[Change]) -> list[Call]:
    store = store_of(database)
    await NotificationHandler(lambda: store, Clock()).handle(changes)
    return store.meter.calls


async def test_ids_with_key_separators_reach_their_user(database: Database) -> None:
    post = post_item("p#1", "a#da")

    await handle_insertions(database, like_item(post, "b%ob"))

    assert await notification_summary(database) == [("a#da", "like", "b%ob", 1)]
