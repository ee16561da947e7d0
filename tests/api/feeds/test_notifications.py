"""Notifications (FEED-009, FEED-W5): the list of unread ones, until they are read or expire."""

from typing import Any

import pytest

from datastore.model.identity import Role
from datastore.model.timestamps import to_seconds
from tests.support.feed_items import comment_item, following_item, post_item, user_item
from tests.support.home_feeds import put_feed_items
from tests.support.moments import seconds_after_noon
from tests.support.notifications import notification_item
from tests.support.served import NOON, Served

UNREAD = '{ notifications(userId: "ada"%s) { %s } }'
MARK = "mutation ($id: ID!) { markNotificationRead(id: $id) { notificationId kind postId } }"
NODE = "query ($id: ID!) { node(id: $id) { ... on Notification { notificationId } } }"


async def only_notification(served: Served) -> Any:
    """Return Ada's only notification."""
    answer = await served.ask(UNREAD % ("", "nodes { id notificationId }"), user="ada")
    (node,) = answer.data["notifications"]["nodes"]
    return node


async def test_unread_notifications_are_listed_newest_first_with_their_items(served: Served) -> None:
    post = post_item("p1", "ada")
    await put_feed_items(served, post, comment_item(post, "c1", "bob"), user_item("bob"), user_item("eve"))
    await put_feed_items(
        served,
        notification_item("like-p1", post_id="p1", actor_count=3),
        notification_item("comment-c1", at=seconds_after_noon(1), kind="comment", post_id="p1", comment_id="c1"),
        notification_item("follow-eve", at=seconds_after_noon(2), kind="follow", actor_id="eve"),
        notification_item("elsewhere", "eve"),
    )
    fields = """nodes { notificationId kind createdAt expiresAt actorId actor { name } actorCount postId post { text }
      commentId comment { text } }"""

    answer = await served.ask(UNREAD % ("", fields), user="ada")

    assert answer.errors is None
    likes = {
        "notificationId": "2026-06-25T12:00:00.000Z#like-p1",
        "kind": "LIKE",
        "createdAt": "2026-06-25T12:00:00.000Z",
        "expiresAt": "2026-09-23T12:00:00.000Z",
        "actorId": "bob",
        "actor": {"name": "Bob"},
        "actorCount": 3,
        "postId": "p1",
        "post": {"text": "Hello"},
        "commentId": None,
        "comment": None,
    }
    follow, comment, like = answer.data["notifications"]["nodes"]
    assert like == likes
    assert [follow["kind"], follow["actor"], follow["post"], comment["kind"], comment["comment"]] == [
        "FOLLOW",
        {"name": "Eve"},
        None,
        "COMMENT",
        {"text": "Hi"},
    ]
    # One batch: the users, the post and the comment.
    assert answer.made == ["BatchGetItem feed", "Query feed.GSI_NOTIF"]


async def test_a_list_is_one_query_and_its_pages_skip_expired_notifications(served: Served) -> None:
    await put_feed_items(
        served, *[notification_item(f"n{number}", at=seconds_after_noon(number)) for number in range(7)]
    )
    expired: dict[str, Any] = {"expiresAt": to_seconds(NOON)}
    await put_feed_items(
        served, *[notification_item(f"x{number}", at=seconds_after_noon(number), **expired) for number in range(7)]
    )

    alone = await served.ask(UNREAD % ("", "nodes { notificationId }"), user="ada")
    found, paging = [], ""
    while paging is not None:
        page = (
            await served.ask(UNREAD % (f", first: 3{paging}", "nodes { notificationId } lastEvaluatedKey"), user="ada")
        ).data["notifications"]
        found += [node["notificationId"] for node in page["nodes"]]
        paging = page["lastEvaluatedKey"] and f', after: "{page["lastEvaluatedKey"]}"'

    assert alone.made == ["Query feed.GSI_NOTIF"]
    assert found == [node["notificationId"] for node in alone.data["notifications"]["nodes"]]
    assert [id.partition("#")[2] for id in found] == [f"n{number}" for number in range(6, -1, -1)]


async def test_a_notification_of_an_invisible_post_is_not_shown(served: Served) -> None:
    hidden, gone, seen = [post_item(name, name, visibility="followers") for name in ("hidden", "gone", "seen")]
    await put_feed_items(served, hidden, seen, following_item("ada", "seen"))
    await put_feed_items(served, *[comment_item(post, "c1") for post in (hidden, gone, seen)])
    for number, name in enumerate(("hidden", "gone", "seen")):
        await put_feed_items(
            served,
            notification_item(
                f"m-{name}", at=seconds_after_noon(number), kind="mention", post_id=name, comment_id="c1"
            ),
        )

    answer = await served.ask(UNREAD % ("", "nodes { postId post { text } comment { text } }"), user="ada")

    nodes = {node["postId"]: (node["post"], node["comment"]) for node in answer.data["notifications"]["nodes"]}
    assert nodes == {"hidden": (None, None), "gone": (None, None), "seen": ({"text": "Hello"}, {"text": "Hi"})}


async def test_a_notification_is_read_once(served: Served) -> None:
    await put_feed_items(served, notification_item("like:p#1", post_id="p#1"))
    (node,) = (await served.ask(UNREAD % ("", "nodes { id notificationId }"), user="ada")).data["notifications"][
        "nodes"
    ]
    id = {"id": node["notificationId"]}

    before = await served.ask(NODE, {"id": node["id"]}, user="ada")
    others = await served.ask(MARK, id, user="eve")
    first = await served.ask(MARK, id, user="ada")
    again = await served.ask(MARK, id, user="ada")
    after = await served.ask(NODE, {"id": node["id"]}, user="ada")
    left = await served.ask(UNREAD % ("", "nodes { id }"), user="ada")

    assert before.data == {"node": {"notificationId": node["notificationId"]}}
    assert before.made == ["GetItem feed"]
    assert others.data == again.data == {"markNotificationRead": None}
    assert first.data == {"markNotificationRead": {"notificationId": id["id"], "kind": "LIKE", "postId": "p#1"}}
    assert first.made == again.made == ["DeleteItem feed"]
    assert after.data == {"node": None}
    assert left.data == {"notifications": {"nodes": []}}


async def test_an_expired_notification_is_not_found(served: Served) -> None:
    await put_feed_items(served, notification_item("n"))
    (node,) = (await served.ask(UNREAD % ("", "nodes { id notificationId }"), user="ada")).data["notifications"][
        "nodes"
    ]

    served.clock.forward(days=90)
    listed = await served.ask(UNREAD % ("", "nodes { id }"), user="ada")
    by_node = await served.ask(NODE, {"id": node["id"]}, user="ada")
    marked = await served.ask(MARK, {"id": node["notificationId"]}, user="ada")

    assert (listed.errors, by_node.errors, marked.errors) == (None, None, None)
    assert listed.data == {"notifications": {"nodes": []}}
    assert by_node.data == {"node": None}
    assert marked.data == {"markNotificationRead": None}


async def test_notifications_are_for_their_user_and_operators(served: Served) -> None:
    await put_feed_items(served, notification_item("n"))
    query = UNREAD % ("", "nodes { id notificationId }")
    node = await only_notification(served)

    refused = [(await served.ask(query, user=user)).codes for user in (None, "eve")]
    refused += [(await served.ask(NODE, {"id": node["id"]}, user=user)).codes for user in (None, "eve")]
    admins = await served.ask(query, user="root", role=Role.ADMIN)
    services = await served.ask(NODE, {"id": node["id"]}, user="job", role=Role.SYSTEM)

    assert refused == [["UNAUTHENTICATED"], ["FORBIDDEN"]] * 2
    assert admins.data == {"notifications": {"nodes": [node]}}
    assert services.data == {"node": {"notificationId": "2026-06-25T12:00:00.000Z#n"}}


async def test_a_damaged_notification_is_an_error_in_its_place(served: Served) -> None:
    await put_feed_items(
        served, notification_item("good"), notification_item("bad", at=seconds_after_noon(1), kind="smell")
    )

    answer = await served.ask(UNREAD % ("", "nodes { kind }"), user="ada")

    assert answer.data == {"notifications": {"nodes": [None, {"kind": "LIKE"}]}}
    assert answer.codes == ["INTERNAL"]


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ('{ notifications(userId: " ") { nodes { id } } }', "userId"),
        ('{ notifications(userId: "ada", first: 101) { nodes { id } } }', "first"),
        ('mutation { markNotificationRead(id: "") { id } }', "id"),
        (f'mutation {{ markNotificationRead(id: "{"x" * 1001}") {{ id }} }}', "id"),
    ],
)
async def test_bad_input_is_named_without_a_call(served: Served, query: str, names: str) -> None:
    answer = await served.ask(query, user="ada")

    assert answer.codes == ["BAD_USER_INPUT"]
    assert f"`{names}`" in (answer.errors or [])[0]["message"]
    assert answer.calls == []
