"""Ids of the feed's objects without a point read, and the links between a user and a reporter."""

from typing import Any

import pytest

from datastore.feeds.leaderboards import LeaderboardMember, LeaderboardSnapshot, LeaderboardSnapshots
from datastore.keyspace.feeds import leaderboards as keys
from datastore.keyspace.feeds.table import FEED
from resolvers.shared.global_ids import global_id
from tests.support.feed_items import post_item, user_item
from tests.support.feed_steps import cast, create_profiles, mutate, write_post
from tests.support.feed_subscriptions import put_one_by_one
from tests.support.home_feeds import feed_entry
from tests.support.served import Served


async def test_likes_follows_and_entries_have_ids_from_their_keys(served: Served) -> None:
    await cast(served, "PUBLIC")
    await mutate(served, 'mutation { likePost(postId: "p") { id } }', "fan")
    await served.store().write_all(FEED, puts=[feed_entry(post_item("p"), "fan")])

    answer = await served.ask(
        """{
          likes(postId: "p") { nodes { id } }
          user(id: "ada") { followers { nodes { id } } }
          fan: user(id: "fan") { following { nodes { id } } }
          homeFeed(userId: "fan") { nodes { id } }
          me { id }
        }""",
        user="fan",
    )

    assert answer.errors is None, answer.errors
    assert answer.data == {
        "likes": {"nodes": [{"id": global_id("Like", "p", "fan")}]},
        "user": {"followers": {"nodes": [{"id": global_id("Follower", "ada", "fan")}]}},
        "fan": {"following": {"nodes": [{"id": global_id("Following", "fan", "ada")}]}},
        "homeFeed": {"nodes": [{"id": global_id("FeedEntry", "fan", "p")}]},
        "me": {"id": global_id("Me", "fan")},
    }


async def test_ranks_have_ids_from_their_period(served: Served) -> None:
    def board(kind: str, period: str, counts: dict[str, int]) -> LeaderboardSnapshot:
        return LeaderboardSnapshot(kind, period, 1, (LeaderboardMember("x", 1, counts),), None)

    snapshots = LeaderboardSnapshots(served.store())
    authors = {"posts": 1, "likes": 0, "comments": 0, "score": 1}
    await snapshots.put(board(keys.AUTHORS, "2026-06", authors))
    await snapshots.put(board(keys.TAGS, "2026-06-25", {"posts": 1}))
    await snapshots.put(board(keys.TAGS, "2026-06-25T12", {"posts": 1}))

    answer = await served.ask(
        "{ topAuthors { id } day: trendingTags(period: DAY) { id } hour: trendingTags(period: HOUR) { id } }"
    )

    assert answer.data == {
        "topAuthors": [{"id": global_id("AuthorRank", "2026-06", "x")}],
        "day": [{"id": global_id("TagTrend", "2026-06-25", "x")}],
        "hour": [{"id": global_id("TagTrend", "2026-06-25T12", "x")}],
    }


async def test_users_and_reporters_link_to_each_other_in_batches(served: Served) -> None:
    await served.store().write_all(FEED, puts=[user_item(name) for name in ("ada", "bob", "eve")])
    report = 'mutation { reportSighting(input: {area: "Downtown", category: "food-truck", description: "x"}) { id } }'
    categories = (await served.ask("{ areas categories }")).data
    report = report.replace("Downtown", categories["areas"][0]).replace("food-truck", categories["categories"][0])
    for user in ("ada", "bob"):
        await mutate(served, report, user)

    users = await served.ask(
        """{ ada: user(id: "ada") { userProfile { userId reportTotal } } bob: user(id: "bob") { userProfile { userId } }
             eve: user(id: "eve") { userProfile { userId } } }"""
    )
    reporter = await served.ask('{ userProfile(id: "ada") { user { userId name } } }')

    assert users.data == {
        "ada": {"userProfile": {"userId": "ada", "reportTotal": 1}},
        "bob": {"userProfile": {"userId": "bob"}},
        "eve": {"userProfile": None},
    }
    assert users.made == ["BatchGetItem blip", "BatchGetItem feed"]
    assert reporter.data == {"userProfile": {"user": {"userId": "ada", "name": "Ada"}}}
    assert reporter.made == ["GetItem blip", "GetItem feed"]


async def test_the_post_of_counts_has_the_counts_of_the_event_without_a_read(served: Served) -> None:
    await create_profiles(served, "ada")
    await write_post(served, "p")
    await served.ask('{ post(id: "p") { text } }')
    fields = "id likeCount post { id text likeCount commentCount mentionedUserIds }"
    listener = await served.listen(f'subscription {{ postEngagement(postId: "p", whenSlow: CLOSE) {{ {fields} }} }}')
    await served.settle(FEED)
    first = (await listener.event())["postEngagement"]

    # A program that stores no index keys for the post.
    item: Any = {key: value for key, value in post_item("p").items() if not key.startswith("GSI")}
    with_calls = await served.ask('{ post(id: "p") { text } }')
    await put_one_by_one(served, item | {"likes": 3, "comments": 2})
    second = (await listener.event())["postEngagement"]

    post = {"id": global_id("Post", "p"), "text": "Hello", "mentionedUserIds": []}
    id = global_id("PostEngagement", "p")
    assert with_calls.made == ["GetItem feed"]
    assert first == {"id": id, "likeCount": 0, "post": post | {"likeCount": 0, "commentCount": 0}}
    assert second == {"id": id, "likeCount": 3, "post": post | {"likeCount": 3, "commentCount": 2}}


ARGUMENTS = {
    "Query.post": "query ($post: ID!) { post(id: $post) { postId } }",
    "Query.likes": "query ($post: ID!) { likes(postId: $post) { nodes { userId } } }",
    "Query.comments": "query ($post: ID!) { comments(postId: $post) { nodes { commentId } } }",
    "Query.user": "query ($user: ID!) { user(id: $user) { userId } }",
    "Query.postsByAuthor": "query ($user: ID!) { postsByAuthor(authorId: $user) { nodes { postId } } }",
    "Query.followers": "query ($user: ID!) { followers(userId: $user) { nodes { userId } } }",
    "Query.homeFeed": "query ($user: ID!) { homeFeed(userId: $user) { nodes { postId } } }",
    "Query.notifications": "query ($user: ID!) { notifications(userId: $user) { nodes { notificationId } } }",
    "Mutation.likePost": "mutation ($post: ID!) { likePost(postId: $post) { postId } }",
    "Mutation.unlikePost": "mutation ($post: ID!) { unlikePost(postId: $post) { postId } }",
    "Mutation.createComment": 'mutation ($post: ID!) { createComment(postId: $post, input: {text: "x"}) { postId } }',
    "Mutation.deleteComment": """mutation ($post: ID!, $comment: ID!) {
      deleteComment(postId: $post, commentId: $comment) { commentId } }""",
    "Mutation.deletePost": "mutation ($post: ID!) { deletePost(id: $post) { postId } }",
    "Mutation.follow": "mutation ($other: ID!) { follow(userId: $other) { __typename } }",
    "Mutation.unfollow": "mutation ($other: ID!) { unfollow(userId: $other) { __typename } }",
    "Mutation.markNotificationRead": "mutation ($note: ID!) { markNotificationRead(id: $note) { notificationId } }",
}
LOCAL = {"post": "p", "user": "ada", "other": "fan", "note": "2026-06-25T12:00:00.000Z#like-x", "comment": "c"}
GLOBAL = {
    "post": global_id("Post", "p"),
    "user": global_id("User", "ada"),
    "other": global_id("UserProfile", "fan"),
    "note": global_id("Notification", "ada", LOCAL["note"]),
    "comment": global_id("Comment", "p", "c"),
}


@pytest.mark.parametrize("query", ARGUMENTS.values(), ids=ARGUMENTS)
async def test_each_argument_accepts_the_global_id_and_no_id_of_another_type(served: Served, query: str) -> None:
    await cast(served, "PUBLIC")
    names = [name for name in LOCAL if f"${name}:" in query]

    by_global_id = await served.ask(query, {name: GLOBAL[name] for name in names}, user="ada")

    assert by_global_id.errors is None, by_global_id.errors
    by_local_id = await served.ask(query, {name: LOCAL[name] for name in names}, user="ada")
    assert by_local_id.made == by_global_id.made or query.startswith("mutation")
    for name in names:
        variables = {name: LOCAL[name] for name in names} | {name: global_id("Photo", "x", "y")}
        refused = await served.ask(query, variables, user="ada")
        assert refused.codes == ["BAD_USER_INPUT"], name
        assert "global id" in (refused.errors or [])[0]["message"]
        assert refused.calls == []


async def test_an_id_chosen_for_a_post_is_no_global_id(served: Served) -> None:
    await cast(served, "PUBLIC")
    create = 'mutation ($id: ID!) { createPost(input: {postId: $id, text: "x"}) { postId } }'

    answer = await served.ask(create, {"id": global_id("Post", "q")}, user="ada")

    assert answer.codes == ["BAD_USER_INPUT"]
    assert answer.calls == []


async def test_a_notification_of_another_user_and_a_comment_on_another_post_are_refused(served: Served) -> None:
    await cast(served, "PUBLIC")
    note, comment = ARGUMENTS["Mutation.markNotificationRead"], ARGUMENTS["Mutation.deleteComment"]

    others = await served.ask(note, {"note": GLOBAL["note"]}, user="eve")
    elsewhere = await served.ask(comment, {"post": "q", "comment": GLOBAL["comment"]}, user="ada")

    assert (others.codes, elsewhere.codes) == (["BAD_USER_INPUT"], ["BAD_USER_INPUT"])
    assert (others.calls, elsewhere.calls) == ([], [])
