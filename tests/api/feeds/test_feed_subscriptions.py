"""Subscriptions of the feed over WebSockets (FEED-S1): home feeds, notifications and the counts of a post."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import pytest

from datastore.dynamodb.calls import Call
from datastore.dynamodb.codec import Item
from datastore.feeds.home_feeds import HomeFeeds, MergedAuthor
from datastore.feeds.posts import Post, Posts
from datastore.keyspace.feeds.table import FEED
from datastore.model.identity import Role
from datastore.model.timestamps import iso, to_seconds
from resolvers.feeds import home_feeds
from tests.support.contract import every_call
from tests.support.feed_items import comment_item, following_item, post_item, tombstone, user_item
from tests.support.feed_subscriptions import delete_one_by_one, put_one_by_one
from tests.support.home_feeds import feed_entry, source_item
from tests.support.moments import seconds_after_noon
from tests.support.notifications import notification_item
from tests.support.served import NOON, Listener, Served

ARRIVALS = 'subscription { homeFeedUpdated(userId: "ada"%s) { postId authorId createdAt post { text } } }'
RECEIVED = 'subscription { notificationReceived(userId: "ada"%s) { notificationId actorCount actor { name } } }'
ENGAGEMENT = 'subscription { postEngagement(postId: "p"%s) { postId likeCount commentCount } }'


async def attached_listener(
    served: Served, query: str, user: str | None = "ada", role: Role = Role.USER, *, beside: int = 0
) -> Listener:
    """Return a listener whose subscription follows the stream, as do `beside` others."""
    listener = await served.listen(query, user=user, role=role)
    await served.settle(FEED, beside + 1)
    return listener


# --- Home feeds -------------------------------------------------------------------------------------------------------


async def arrived(listener: Listener, many: int) -> list[str]:
    return [(await listener.event())["homeFeedUpdated"]["postId"] for _ in range(many)]


async def test_entries_are_delivered_to_the_feed_that_they_are_written_to(served: Served) -> None:
    listener = await attached_listener(served, ARRIVALS % "")
    posts = [post_item(f"p{number}", "bob", seconds_after_noon(number), "followers") for number in range(3)]

    await put_one_by_one(
        served,
        following_item("ada", "bob"),
        *posts,
        feed_entry(posts[0], "eve"),
        feed_entry(posts[1]),
        feed_entry(posts[2]),
    )

    first, second = await listener.event(), await listener.event()
    assert first["homeFeedUpdated"] == {
        "postId": "p1",
        "authorId": "bob",
        "createdAt": "2026-06-25T12:00:01.000Z",
        "post": {"text": "Hello"},
    }
    assert second["homeFeedUpdated"]["postId"] == "p2"


async def test_posts_of_merged_authors_are_delivered_as_these_are_added_and_removed(served: Served) -> None:
    big, huge = source_item("ada", "big", iso(NOON)), source_item("ada", "huge", iso(seconds_after_noon(5)))
    await put_one_by_one(served, big, source_item("eve", "other", iso(NOON)))
    listener = await attached_listener(served, ARRIVALS % "")

    def post(id: str, author: str, seconds: int = 10, visibility: str = "public") -> Item:
        return post_item(id, author, seconds_after_noon(seconds), visibility)

    await put_one_by_one(
        served, post("a", "big"), post("x1", "other"), post("x2", "big", 10, "private"), post("x3", "huge", 4)
    )
    # This post is older than the source item of its author, but not than the follow.
    await put_one_by_one(served, post("b1", "huge"), post("x4", "huge", visibility="private"))
    await put_one_by_one(served, huge, post("b2", "huge", 11, "followers"), post("x5", "huge", 4))
    await delete_one_by_one(served, big)
    await put_one_by_one(served, post("x6", "big"), post("c", "huge", 12))

    assert await arrived(listener, 4) == ["a", "b1", "b2", "c"]


async def test_earlier_posts_of_a_new_source_do_not_arrive(served: Served) -> None:
    await put_one_by_one(served, post_item("old", "big", seconds_after_noon(1)))
    served.clock.forward(seconds=2)
    listener = await attached_listener(served, ARRIVALS % "")

    await put_one_by_one(served, source_item("ada", "big", iso(NOON)), post_item("new", "big", seconds_after_noon(3)))

    assert await arrived(listener, 1) == ["new"]


async def test_a_post_with_a_feed_entry_arrives_once(served: Served) -> None:
    await put_one_by_one(served, source_item("ada", "big", iso(NOON)))
    listener = await attached_listener(served, ARRIVALS % "")
    both, again, last = [post_item(name, "big", seconds_after_noon(1)) for name in ("both", "again", "last")]

    await put_one_by_one(served, both, feed_entry(both), feed_entry(again))
    await delete_one_by_one(served, feed_entry(again))
    await put_one_by_one(served, feed_entry(again), again, last)

    assert await arrived(listener, 3) == ["both", "again", "last"]


async def test_posts_with_equal_digests_in_event_ids_are_both_delivered(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(home_feeds, "_digest", lambda _: "0" * home_feeds.DIGEST_LENGTH)
    listener = await attached_listener(served, ARRIVALS % "")
    await put_one_by_one(served, *[feed_entry(post_item(name, "bob", seconds_after_noon(1))) for name in ("p1", "p2")])
    assert await arrived(listener, 2) == ["p1", "p2"]


async def test_changes_during_the_read_of_the_sources_count(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Posts are written, and sources change, before the read of the sources returns."""
    gone, new = source_item("ada", "gone", iso(NOON)), source_item("ada", "new", iso(NOON))
    await put_one_by_one(served, source_item("ada", "big", iso(NOON)), gone)
    read = HomeFeeds.sources_at_start

    async def slowly(feeds: HomeFeeds, user_id: str) -> list[MergedAuthor]:
        found = await read(feeds, user_id)
        marker = await attached_listener(served, RECEIVED % "", beside=1)
        await delete_one_by_one(served, gone)
        posts = [post_item(author, author, seconds_after_noon(1)) for author in ("stranger", "gone", "big", "new")]
        await put_one_by_one(served, new, *posts, notification_item("done"))
        await marker.event()  # so that the stream has delivered all changes
        return found

    monkeypatch.setattr(HomeFeeds, "sources_at_start", slowly)
    listener = await attached_listener(served, ARRIVALS % "")

    assert await arrived(listener, 2) == ["new", "big"]
    await put_one_by_one(
        served, post_item("x", "gone", seconds_after_noon(2)), post_item("later", "new", seconds_after_noon(2))
    )
    assert await arrived(listener, 1) == ["later"]


async def test_a_damaged_source_or_entry_is_skipped(served: Served) -> None:
    damaged = {name: value for name, value in source_item("ada", "bad", iso(NOON)).items() if name != "since"}
    await put_one_by_one(served, damaged, source_item("ada", "big", iso(NOON)))
    listener = await attached_listener(served, ARRIVALS % "")
    post = post_item("good", "big", seconds_after_noon(1))

    await put_one_by_one(
        served, damaged | {"SK": "SOURCE#worse"}, feed_entry(post_item("bad")) | {"SK": "nonsense"}, post
    )

    assert await arrived(listener, 1) == ["good"]


# --- Notifications ----------------------------------------------------------------------------------------------------


async def received_notifications(listener: Listener, many: int) -> list[tuple[str, int]]:
    events = [(await listener.event())["notificationReceived"] for _ in range(many)]
    return [(event["notificationId"].partition("#")[2], event["actorCount"]) for event in events]


async def test_a_notification_is_sent_when_it_is_created_and_when_actors_join(served: Served) -> None:
    listener = await attached_listener(served, RECEIVED % "")
    likes = notification_item("likes", post_id="p")

    await put_one_by_one(served, user_item("bob"), notification_item("others", "eve"), likes)
    await put_one_by_one(
        served, likes | {"expiresAt": to_seconds(seconds_after_noon(9_000_000))}, likes | {"actor_count": 3}
    )
    await put_one_by_one(served, likes | {"actor_count": 2}, likes | {"actor_count": 4})
    await delete_one_by_one(served, likes)
    await put_one_by_one(served, notification_item("last"))

    assert await received_notifications(listener, 4) == [("likes", 1), ("likes", 3), ("likes", 4), ("last", 1)]


async def test_an_expired_notification_is_not_sent(served: Served) -> None:
    listener = await attached_listener(served, RECEIVED % "")
    expired, alive = [to_seconds(seconds_after_noon(seconds)) for seconds in (0, 1)]

    await put_one_by_one(
        served, notification_item("expired", expiresAt=expired), notification_item("alive", expiresAt=alive)
    )

    assert await received_notifications(listener, 1) == [("alive", 1)]


# --- The fields of an event -------------------------------------------------------------------------------------------


def consistency_of_point_reads(calls: Sequence[Call]) -> set[bool]:
    """Return the values of `ConsistentRead` in GetItem and BatchGetItem calls."""
    requests = [call.request for call in calls if call.operation == "GetItem"]
    batches = [call.request["RequestItems"].values() for call in calls if call.operation == "BatchGetItem"]
    entries = [*requests, *chain.from_iterable(batches)]
    assert entries
    return {entry.get("ConsistentRead", False) for entry in entries}


async def test_the_data_of_an_event_is_read_consistently(served: Served) -> None:
    post = post_item("p", "bob", visibility="followers")
    notification = notification_item("comment", kind="comment", post_id="p", comment_id="c")
    await put_one_by_one(served, following_item("ada", "bob"), post, comment_item(post, "c"))
    arrivals = await attached_listener(served, ARRIVALS % "")
    received = await attached_listener(
        served,
        'subscription { notificationReceived(userId: "ada") { post { text } comment { text } } }',
        beside=1,
    )

    with every_call(served) as calls:
        await put_one_by_one(served, feed_entry(post), notification)
        events = [await arrivals.event(), await received.event()]

    shown = {"post": {"text": "Hello"}}
    assert events[0]["homeFeedUpdated"]["post"] == shown["post"]
    assert events[1] == {"notificationReceived": shown | {"comment": {"text": "Hi"}}}
    assert consistency_of_point_reads(calls) == {True}
    lists = """{ homeFeed(userId: "ada") { nodes { post { text } } }
      notifications(userId: "ada") { nodes { post { text } comment { text } } } }"""
    answer = await served.ask(lists, user="ada")
    assert answer.data == {
        "homeFeed": {"nodes": [shown]},
        "notifications": {"nodes": [shown | {"comment": {"text": "Hi"}}]},
    }
    assert consistency_of_point_reads(answer.calls) == {False}


# --- The counts of a post ---------------------------------------------------------------------------------------------


async def engagement_counts(listener: Listener, many: int) -> list[tuple[int, int]]:
    events = [(await listener.event())["postEngagement"] for _ in range(many)]
    assert {event["postId"] for event in events} <= {"p"}
    return [(event["likeCount"], event["commentCount"]) for event in events]


async def error_codes(listener: Listener) -> list[str]:
    """Return the codes of the error that ends a subscription, whether it is an event or an error message."""
    payload = (await listener.message())["payload"]
    errors: Sequence[Any] = payload if isinstance(payload, list) else payload["errors"]
    return [error["extensions"]["code"] for error in errors]


async def test_the_counts_of_a_post_are_sent_until_it_is_deleted(served: Served) -> None:
    post = post_item("p", "bob") | {"likes": 2}
    await put_one_by_one(served, post)
    listener = await attached_listener(served, ENGAGEMENT % ", whenSlow: CLOSE", user=None)

    assert await engagement_counts(listener, 1) == [(2, 0)]
    await put_one_by_one(
        served, post | {"likes": 3}, post | {"likes": 3, "seen": 1}, post | {"likes": 3, "comments": 1}
    )
    await put_one_by_one(
        served, post_item("q", "bob") | {"likes": 9}, post | {"likes": 2, "comments": 1}, tombstone(post)
    )
    assert await engagement_counts(listener, 3) == [(3, 0), (3, 1), (2, 1)]
    assert (await listener.message())["type"] == "complete"


async def test_a_slow_subscriber_of_counts_gets_the_latest(served: Served) -> None:
    post = post_item("p", "bob")
    await put_one_by_one(served, post)
    listener = await attached_listener(served, ENGAGEMENT % "")

    assert await engagement_counts(listener, 1) == [(0, 0)]
    await put_one_by_one(served, *[post | {"likes": number} for number in range(1, 31)])
    last = 0
    while last < 30:
        ((likes, _),) = await engagement_counts(listener, 1)
        assert likes > last
        last = likes


async def test_a_change_without_new_counts_is_not_reported_as_dropped(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    post = post_item("p", "bob")
    await put_one_by_one(served, post)
    read = Posts.visible

    async def slowly(posts: Posts, *arguments: Any) -> Post | None:
        found = await read(posts, *arguments)
        marker = await attached_listener(served, RECEIVED % "", beside=1)
        await put_one_by_one(served, *[post | {"likes": 1 + number // 3, "seen": number} for number in range(9)])
        await put_one_by_one(served, notification_item("done"))
        await marker.event()  # so that the stream has delivered all changes, and they wait
        return found

    monkeypatch.setattr(Posts, "visible", slowly)
    listener = await attached_listener(served, ENGAGEMENT % "")

    assert await engagement_counts(listener, 1) == [(0, 0)]
    payload = (await listener.message())["payload"]
    assert payload["data"]["postEngagement"]["likeCount"] == 3
    assert payload["extensions"]["conflated"] == 2


async def test_a_former_follower_receives_no_more_posts(served: Served) -> None:
    post, follow = post_item("p", "bob", visibility="followers"), following_item("ada", "bob")
    await put_one_by_one(served, post, follow)
    listener = await attached_listener(served, ENGAGEMENT % ", whenSlow: CLOSE")
    own = await attached_listener(served, ENGAGEMENT % ", whenSlow: CLOSE", "bob", beside=1)
    operators = await attached_listener(served, ENGAGEMENT % ", whenSlow: CLOSE", "root", Role.ADMIN, beside=2)

    assert (
        await engagement_counts(listener, 1)
        == await engagement_counts(own, 1)
        == await engagement_counts(operators, 1)
        == [(0, 0)]
    )
    await put_one_by_one(served, post | {"likes": 1})
    assert await engagement_counts(listener, 1) == [(1, 0)]
    await delete_one_by_one(served, follow)
    await put_one_by_one(served, post | {"likes": 2})
    assert await error_codes(listener) == ["FORBIDDEN"]
    assert (await engagement_counts(own, 2))[-1] == (await engagement_counts(operators, 2))[-1] == (2, 0)


@pytest.mark.parametrize("visibility", ["private", "followers", None])
async def test_the_counts_of_an_invisible_post_are_not_found(served: Served, visibility: str | None) -> None:
    if visibility is not None:
        await put_one_by_one(served, post_item("p", "bob", visibility=visibility))

    answers = [await error_codes(await served.listen(ENGAGEMENT % "", user=user)) for user in ("ada", None)]

    assert answers == [["NOT_FOUND"]] * 2


# --- Authorization ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("query", [ARRIVALS % "", RECEIVED % ""])
async def test_personal_subscriptions_are_for_their_user_and_operators(served: Served, query: str) -> None:
    refused = [await error_codes(await served.listen(query, user=user)) for user in (None, "eve")]

    operators = [await attached_listener(served, query, "root", role) for role in (Role.ADMIN, Role.SYSTEM)]
    await served.settle(FEED, len(operators))
    assert refused == [["UNAUTHENTICATED"], ["FORBIDDEN"]]


@pytest.mark.parametrize(
    "field", ['homeFeedUpdated(userId: "") { postId }', 'notificationReceived(userId: " ") { id }']
)
async def test_bad_input_ends_the_subscription(served: Served, field: str) -> None:
    assert await error_codes(await served.listen(f"subscription {{ {field} }}", user="ada")) == ["BAD_USER_INPUT"]
