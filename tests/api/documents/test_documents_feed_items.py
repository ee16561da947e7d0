"""Users, notifications and feed entries that consist of their keys alone, as the document of `feed` lists them."""

from datetime import timedelta
from typing import Any

import pytest

from datastore.keyspace.feeds.table import FEED
from datastore.model.identity import Role
from tests.support.answers import data_of
from tests.support.feed_documents import (
    Pipeline,
    bare_user,
    comment_document,
    edge_document,
    entry_document,
    like_document,
    notification,
    post_document,
    user_document,
    write_feed_items,
)
from tests.support.feed_steps import create_profiles, mutate
from tests.support.pattern_coverage import covers
from tests.support.served import NOON, Served

SECOND = timedelta(seconds=1)
USER = '{ user(id: "u009") { id userId name bio createdAt postCount followerCount followingCount version } }'
NODE = "query ($id: ID!) { node(id: $id) { id __typename } }"
HOME = """{ homeFeed(userId: "u002") { nodes { postId authorId createdAt author { name } post { postId text } } } }"""
UNREAD = """{ notifications(userId: "u001") {
  nodes { id notificationId kind createdAt expiresAt actorId actor { name } actorCount postId commentId } } }"""


async def test_a_user_of_keys_alone_has_the_id_as_name(served: Served) -> None:
    write_feed_items(served, bare_user("u009"))

    found = data_of(await served.ask(USER))["user"]

    assert {name: value for name, value in found.items() if name != "id"} == {
        "userId": "u009",
        "name": "u009",
        "bio": None,
        "createdAt": None,
        "postCount": 0,
        "followerCount": 0,
        "followingCount": 0,
        "version": 0,
    }
    assert data_of(await served.ask(NODE, {"id": found["id"]}))["node"] == {"id": found["id"], "__typename": "User"}


async def test_a_user_of_keys_alone_posts_follows_and_sets_a_name(served: Served) -> None:
    write_feed_items(served, bare_user("u009"), user_document("u001"))
    pipeline = Pipeline(served)

    await mutate(served, 'mutation { createPost(input: {postId: "p", text: "Hi"}) { postId } }', "u009")
    await mutate(served, 'mutation { follow(userId: "u001") { userId } }', "u009")
    await pipeline.run()
    counted = data_of(await served.ask(USER))["user"]
    renamed = await mutate(served, 'mutation { updateUser(input: {name: "Nine"}) { name createdAt } }', "u009")

    assert (counted["postCount"], counted["followingCount"], counted["name"]) == (1, 1, "u009")
    assert renamed == {"name": "Nine", "createdAt": None}


@covers("FEED-009", "FEED-N4", "FEED-W5")
@pytest.mark.parametrize("mixed", [False, True])
async def test_notifications_of_keys_alone_are_listed_and_read(served: Served, mixed: bool) -> None:
    write_feed_items(
        served, user_document("u001"), notification("u001", "n1"), notification("u001", "n2", NOON - SECOND)
    )
    if mixed:
        await create_profiles(served, "ada")
        await mutate(served, 'mutation { follow(userId: "u001") { userId } }', "ada")
        await Pipeline(served).run()
    ours = [("FOLLOW", "ada")] if mixed else []

    nodes = data_of(await served.ask(UNREAD, user="u001"))["notifications"]["nodes"]
    documented = [node for node in nodes if node["kind"] is None]
    first = documented[0]
    again = data_of(await served.ask(NODE, {"id": first["id"]}, user="u001"))["node"]
    read = await mutate(
        served,
        "mutation ($id: ID!) { markNotificationRead(id: $id) { notificationId kind } }",
        "u001",
        id=first["notificationId"],
    )
    left = data_of(await served.ask(UNREAD, user="u001"))["notifications"]["nodes"]

    assert [(node["kind"], node["actorId"]) for node in nodes if node["kind"]] == ours
    assert [node["notificationId"] for node in documented] == ["2026-06-25T12:00:00Z#n1", "2026-06-25T11:59:59Z#n2"]
    assert {name: value for name, value in first.items() if name not in ("id", "notificationId")} == {
        "kind": None,
        "createdAt": "2026-06-25T12:00:00.000Z",
        "expiresAt": None,
        "actorId": None,
        "actor": None,
        "actorCount": 0,
        "postId": None,
        "commentId": None,
    }
    assert again == {"id": first["id"], "__typename": "Notification"}
    assert read == {"notificationId": "2026-06-25T12:00:00Z#n1", "kind": None}
    assert len(left) == len(nodes) - 1


async def test_entries_of_keys_alone_name_the_authors_of_posts_that_the_reader_may_see(served: Served) -> None:
    posts = [
        post_document("seen"),
        post_document("fans", at=NOON - SECOND, visibility="followers"),
        post_document("secret", at=NOON - 2 * SECOND, visibility="private"),
    ]
    names = enumerate(["seen", "fans", "secret", "gone"])
    entries = [entry_document("u002", name, NOON - place * SECOND) for place, name in names]
    write_feed_items(served, user_document("u001"), user_document("u002"), *posts, *entries)

    answer = await served.ask(HOME, user="u002")
    found = data_of(answer)["homeFeed"]["nodes"]

    shown = {"authorId": "u001", "author": {"name": "U001"}, "createdAt": "2026-06-25T12:00:00.000Z"}
    assert found[0] == shown | {"postId": "seen", "post": {"postId": "seen", "text": ""}}
    assert [(node["postId"], node["authorId"], node["author"], node["post"]) for node in found[1:]] == [
        (name, None, None, None) for name in ("fans", "secret", "gone")
    ]
    # Three batches: the posts, the reader's follow of the author, the author.
    assert answer.made.count("Query feed.GSI3") == 1
    assert len(answer.made) <= 4


async def test_followers_see_the_authors_of_posts_for_followers_in_entries_of_keys_alone(served: Served) -> None:
    write_feed_items(served, user_document("u001"), user_document("u002"), edge_document("u002", "u001"))
    await Pipeline(served).run()
    write_feed_items(served, post_document("fans", at=NOON, visibility="followers"), entry_document("u002", "fans"))

    found = data_of(await served.ask(HOME, user="u002"))["homeFeed"]["nodes"]

    assert [(node["postId"], node["authorId"], node["post"]) for node in found] == [
        ("fans", "u001", {"postId": "fans", "text": ""})
    ]


async def test_entries_of_ours_read_no_posts_for_their_authors(served: Served) -> None:
    await create_profiles(served, "ada", "u002")
    await mutate(served, 'mutation { follow(userId: "ada") { userId } }', "u002")
    pipeline = Pipeline(served)
    await pipeline.run()
    await mutate(served, 'mutation { createPost(input: {postId: "p", text: "Hi"}) { postId } }', "ada")
    await pipeline.run()

    answer = await served.ask('{ homeFeed(userId: "u002") { nodes { postId authorId } } }', user="u002")

    assert data_of(answer)["homeFeed"]["nodes"] == [{"postId": "p", "authorId": "ada"}]
    assert answer.made == ["Query feed.GSI3"]


# Subscriptions (FEED-S1).


async def arriving(served: Served, query: str, user: str, *items: dict[str, Any]) -> Any:
    """Write items. Return the first event that a subscription then receives."""
    listener = await served.listen(query, user=user, role=Role.USER)
    await served.settle(FEED, 1)
    write_feed_items(served, *items)
    return await listener.event()


@covers("FEED-S1")
@pytest.mark.parametrize("visibility", ["public", "private"])
async def test_an_entry_of_keys_alone_arrives(served: Served, visibility: str) -> None:
    write_feed_items(served, user_document("u001"), user_document("u002"), post_document("p", visibility=visibility))
    query = 'subscription { homeFeedUpdated(userId: "u002") { postId authorId author { name } post { postId } } }'

    event = await arriving(served, query, "u002", entry_document("u002", "p"))

    seen = {"authorId": "u001", "author": {"name": "U001"}, "post": {"postId": "p"}}
    hidden = {"authorId": None, "author": None, "post": None}
    assert event["homeFeedUpdated"] == {"postId": "p"} | (seen if visibility == "public" else hidden)


async def test_a_notification_of_keys_alone_arrives(served: Served) -> None:
    write_feed_items(served, user_document("u001"))
    query = 'subscription { notificationReceived(userId: "u001") { notificationId kind actorCount actor { name } } }'

    event = await arriving(served, query, "u001", notification("u001", "n1"))

    assert event["notificationReceived"] == {
        "notificationId": "2026-06-25T12:00:00Z#n1",
        "kind": None,
        "actorCount": 0,
        "actor": None,
    }


@pytest.mark.parametrize("kind", ["like", "comment"])
async def test_the_counts_of_a_post_arrive(served: Served, kind: str) -> None:
    write_feed_items(served, user_document("u001"), user_document("u002"), post_document("p"))
    query = 'subscription { postEngagement(postId: "p") { postId likeCount commentCount } }'
    listener = await served.listen(query, user="u001", role=Role.USER)
    await served.settle(FEED, 1)

    write_feed_items(served, like_document("p") if kind == "like" else comment_document("p", "c001"))
    await Pipeline(served).run()
    snapshot, event = await listener.event(), await listener.event()

    assert snapshot["postEngagement"] == {"postId": "p", "likeCount": 0, "commentCount": 0}
    counts = {"likeCount": int(kind == "like"), "commentCount": int(kind == "comment")}
    assert event["postEngagement"] == {"postId": "p"} | counts
