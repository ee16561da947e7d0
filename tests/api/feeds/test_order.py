"""The arguments `order` and `consistent` of the feed: the pages in both directions, and the calls that they make."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from datastore.dynamodb.calls import Call
from datastore.dynamodb.codec import Item
from datastore.feeds.follows import Follow, edge_item
from datastore.keyspace.feeds import leaderboards, notifications, posts
from datastore.keyspace.feeds.table import FEED
from datastore.model.timestamps import iso
from tests.support.comments import an_id
from tests.support.feed_items import comment_item, following_item, like_item, post_item, user_item
from tests.support.home_feeds import feed_entry, source_item
from tests.support.list_orders import PAGE_INFO, are_forward, assert_pages, consistency
from tests.support.served import NOON, Served

ENTRIES = 7
# By list: its field with the arguments that select it, the field that holds it, and a field of its entries. The last
# value is whether the list ascends without the argument.
LISTS = {
    "postsByAuthor": ('postsByAuthor(authorId: "ada", %s)', "%s", "postId", False),
    "postsByTag": ('postsByTag(tag: "cats", %s)', "%s", "postId", False),
    "comments": ('comments(postId: "p0", %s)', "%s", "commentId", True),
    "likes": ('likes(postId: "p0", %s)', "%s", "userId", False),
    "followers": ('followers(userId: "ada", %s)', "%s", "userId", False),
    "following": ('following(userId: "ada", %s)', "%s", "userId", True),
    "homeFeed": ('homeFeed(userId: "ada", %s)', "%s", "postId", False),
    "notifications": ('notifications(userId: "ada", %s)', "%s", "notificationId", False),
    "Me.homeFeed": ("homeFeed(%s)", "me { %s }", "postId", False),
    "Me.notifications": ("notifications(%s)", "me { %s }", "notificationId", False),
    "User.posts": ("posts(%s)", 'user(id: "ada") { %s }', "postId", False),
    "User.followers": ("followers(%s)", 'user(id: "ada") { %s }', "userId", False),
    "User.following": ("following(%s)", 'user(id: "ada") { %s }', "userId", True),
    "Post.comments": ("comments(%s)", 'post(id: "p0") { %s }', "commentId", True),
    "Post.likes": ("likes(%s)", 'post(id: "p0") { %s }', "userId", False),
}
CONSISTENT = {
    "post": 'post(id: "p0", %s) { postId }',
    "user": 'user(id: "ada", %s) { userId }',
    "comments": 'comments(postId: "p0", %s) { nodes { commentId } }',
    "likes": 'likes(postId: "p0", %s) { nodes { userId } }',
    "following": 'following(userId: "fan", %s) { nodes { userId } }',
    "topAuthors": "topAuthors(%s) { authorId }",
    "trendingTags": "trendingTags(%s) { tag }",
}


def later(number: int) -> datetime:
    return NOON + timedelta(milliseconds=300 * number)


async def store_lists(served: Served) -> None:
    """Store seven entries of each list. The posts of `big` are merged into the home feed of `ada`."""
    items: list[Item] = [user_item("ada"), source_item("ada", "big", iso(later(0)))]
    for number in range(ENTRIES):
        own = post_item(f"p{number}", "ada", later(number))
        followed = post_item(f"f{number}", "small" if number % 2 else "big", later(number))
        tag = posts.tag(f"p{number}", "cats")
        items += [own, followed, *([feed_entry(followed)] if number % 2 else [])]
        items.append(
            {
                **{name: own[name] for name in ("author_id", "visibility", "text")},
                **{"PK": tag.partition, "SK": tag.sort},
                **posts.post_by_tag.item("cats", later(number), f"p{number}"),
            }
        )
        items.append(edge_item(Follow(f"u{number}", "ada", later(number))))
        items.append(following_item("ada", f"u{number}"))
        items.append(
            {
                **notifications.notification.item("ada", later(number), f"n{number}"),
                **notifications.position.item("ada", later(number), f"n{number}"),
            }
        )
    first = post_item("p0", "ada", later(0))
    items += [comment_item(first, an_id(number), f"u{number}") for number in range(ENTRIES)]
    items += [like_item(first, f"u{number}") for number in range(ENTRIES)]
    await served.store().write_all(FEED, puts=items)


async def read_list(served: Served, name: str, paging: str) -> tuple[Any, list[Call]]:
    """Return the page of a list, and its Queries."""
    field, holder, node, _ = LISTS[name]
    answer = await served.ask(
        "{ " + holder % f"page: {field % paging} {{ nodes {{ {node} }} {PAGE_INFO} }}" + " }", user="ada"
    )
    assert answer.errors is None, answer.errors
    page = answer.data["page"] if "page" in answer.data else next(iter(answer.data.values()))["page"]
    return page, [call for call in answer.calls if call.operation == "Query"]


def names_in(name: str, page: Any) -> list[str]:
    return [entry[LISTS[name][2]] for entry in page["nodes"]]


@pytest.mark.parametrize("name", LISTS)
async def test_each_list_is_read_in_both_orders(served: Served, name: str) -> None:
    await store_lists(served)
    other = "DESCENDING" if LISTS[name][3] else "ASCENDING"

    default, _ = await read_list(served, name, "first: 100")
    reversed_page, queries = await read_list(served, name, f"first: 100, order: {other}")

    assert len(names_in(name, default)) == ENTRIES
    assert names_in(name, reversed_page) == names_in(name, default)[::-1]
    # The sources of a home feed are read by a Query of their own, whose order has no meaning.
    of_list = [call for call in queries if ":prefix" not in str(call.request["ExpressionAttributeValues"])] or queries
    assert are_forward(of_list) == {other == "ASCENDING"}


@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("order", ["ASCENDING", "DESCENDING"])
@pytest.mark.parametrize("size", [1, 3])
async def test_the_pages_of_each_order_are_the_list_in_both_directions(
    served: Served, name: str, order: str, size: int
) -> None:
    await store_lists(served)
    whole, _ = await read_list(served, name, f"first: 100, order: {order}")
    expected = names_in(name, whole)

    async def read(paging: str) -> tuple[list[str], dict[str, Any]]:
        page, _ = await read_list(served, name, paging)
        return names_in(name, page), page["pageInfo"]

    await assert_pages(read, expected, order=order, size=size)


async def test_the_lists_of_many_posts_continue_in_the_order_of_their_cursors(served: Served) -> None:
    items = [post_item(f"p{number}", "ada", later(number)) for number in range(3)]
    ids = sorted(map(an_id, range(3)))
    comments = [comment_item(post, id) for post in items for id in ids]
    await served.store().write_all(FEED, puts=[*items, *comments])
    text = """query ($after: String) { postsByAuthor(authorId: "ada", order: ASCENDING) { edges { node {
      postId comments(first: 2, after: $after, order: DESCENDING) { nodes { commentId } pageInfo { endCursor } }
    } } } }"""
    first = await served.ask(text)
    for place in range(3):
        page = first.data["postsByAuthor"]["edges"][place]["node"]["comments"]
        assert [node["commentId"] for node in page["nodes"]] == [ids[2], ids[1]]

        answer = await served.ask(text, {"after": page["pageInfo"]["endCursor"]})

        found = [edge["node"] for edge in answer.data["postsByAuthor"]["edges"]]
        assert [node and node["postId"] for node in found] == [
            f"p{number}" if number == place else None for number in range(3)
        ]
        assert [node["commentId"] for node in found[place]["comments"]["nodes"]] == [ids[0]]


@pytest.mark.parametrize("name", CONSISTENT)
@pytest.mark.parametrize("visibility", ["public", "followers"])
async def test_consistent_reaches_each_read_of_the_field(served: Served, name: str, visibility: str) -> None:
    post = post_item("p0", "ada", NOON, visibility)
    puts = [user_item("ada"), post, comment_item(post, an_id(0)), like_item(post), following_item("fan", "ada")]
    await served.store().write_all(FEED, puts=puts)
    assert leaderboards.TOP_AUTHORS.consistent is False

    for flag in (True, False):
        answer = await served.ask("{ " + CONSISTENT[name] % f"consistent: {str(flag).lower()}" + " }", user="fan")

        assert answer.errors is None, answer.errors
        assert answer.calls
        assert set(consistency(answer)) == {flag}, answer.made
