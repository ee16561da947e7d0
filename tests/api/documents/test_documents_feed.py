"""Documented items of the table `feed`, written by another program: each pattern, on them alone and mixed with ours.

The document lists `LIKE {created_at}`, `COMMENT {user_id, created_at, text_len}`, `META {author_id, created_at,
visibility, media_ref}`, tags without further attributes, and follow edges. Times are in whole seconds.
"""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from datastore.change_streams.change import encode_change
from datastore.change_streams.dead_letters import DeadLetters, letter_of
from datastore.database import StoreOptions
from datastore.keyspace.feeds.pipeline import CONSUMER_TABLE
from datastore.model.identity import Role
from datastore.model.timestamps import iso
from pipelines.consumer.redrive import Redrive
from tests.support.answers import data_of
from tests.support.command_line import run_here
from tests.support.consumers import letters_of
from tests.support.documents_feed import DOCUMENT, SECOND, ours
from tests.support.feed_changes import feed_changes, store_of
from tests.support.feed_documents import (
    Pipeline,
    comment_document,
    delete_feed_items,
    edge_document,
    like_document,
    post_document,
    tag_document,
    user_document,
    write_feed_items,
)
from tests.support.feed_steps import create_profiles, mutate
from tests.support.feed_steps import write_post as write_post
from tests.support.home_feeds import source_item
from tests.support.moments import utc_now
from tests.support.pattern_coverage import covers
from tests.support.served import NOON, Served

__all__ = ["ours"]  # fixtures


POST_FIELDS = (
    "postId authorId createdAt visibility text mediaRef tags mentionedUserIds likeCount commentCount author { name }"
)
POST = f"""{{ post(id: "abc123") {{ {POST_FIELDS}
  likes {{ nodes {{ userId createdAt post {{ postId }} user {{ name }} }} }}
  comments {{ nodes {{ commentId authorId createdAt text textLength mentionedUserIds author {{ name }} }} }} }} }}"""
BY_AUTHOR = '{ list: postsByAuthor(authorId: "u001") { nodes { postId text authorId visibility } } }'
BY_TAG = """query ($first: Int, $after: String) { list: postsByTag(tag: "dynamodb", first: $first, after: $after) {
  nodes { postId text authorId visibility mediaRef } pageInfo { hasNextPage endCursor } } }"""
COUNTS = '{ post(id: "abc123") { likeCount commentCount } }'
TOP = '{ topAuthors(at: "2026-06-25T12:00:00Z") { authorId postCount likeCount commentCount } }'
TRENDING = '{ trendingTags(period: HOUR, at: "2026-06-25T12:30:00Z") { tag postCount } }'
UNREAD = '{ notifications(userId: "u001") { nodes { kind actorId actorCount postId commentId } } }'


async def listed_post_ids(served: Served, query: str, user: str | None = None, role: Role = Role.USER) -> list[str]:
    return [node["postId"] for node in data_of(await served.ask(query, user=user, role=role))["list"]["nodes"]]


async def rank_of(served: Served, author: str) -> tuple[int, int, int]:
    """Return the posts, likes and comments of an author on the leaderboard of the month."""
    ranks = {rank["authorId"]: rank for rank in data_of(await served.ask(TOP))["topAuthors"]}
    return ranks[author]["postCount"], ranks[author]["likeCount"], ranks[author]["commentCount"]


@covers("FEED-001", "FEED-004", "FEED-005", "FEED-006")
async def test_a_documented_post_is_read_with_its_likes_and_comments(served: Served, ours: Sequence[str]) -> None:
    found = data_of(await served.ask(POST))["post"]

    assert found == {
        "postId": "abc123",
        "authorId": "u001",
        "createdAt": "2026-06-25T12:00:00.000Z",
        "visibility": "PUBLIC",
        "text": "",
        "mediaRef": "s3://media/abc123.jpg",
        "tags": [],
        "mentionedUserIds": [],
        "likeCount": 0,
        "commentCount": 0,
        "author": {"name": "U001"},
        "likes": {
            "nodes": [
                {
                    "userId": user,
                    "createdAt": "2026-06-25T12:00:00.000Z",
                    "post": {"postId": "abc123"},
                    "user": {"name": user.upper()},
                }
                for user in ("u003", "u002", "u001")
            ]
        },
        "comments": {
            "nodes": [
                {
                    "commentId": "c001",
                    "authorId": "u002",
                    "createdAt": "2026-06-25T12:00:00.000Z",
                    "text": "",
                    "textLength": 42,
                    "mentionedUserIds": [],
                    "author": {"name": "U002"},
                }
            ]
        },
    }


async def test_a_post_without_index_keys_is_read_by_its_id(served: Served) -> None:
    item = {name: value for name, value in post_document("bare").items() if not name.startswith("GSI1")}
    write_feed_items(served, user_document("u001"), item, like_document("bare"))
    await Pipeline(served).run()

    found = data_of(
        await served.ask('{ post(id: "bare") { createdAt likeCount mentionedUserIds author { postCount } } }')
    )["post"]

    assert found == {
        "createdAt": "2026-06-25T12:00:00.000Z",
        "likeCount": 1,
        "mentionedUserIds": [],
        "author": {"postCount": 1},
    }


@pytest.mark.parametrize(
    ("viewer", "role", "author", "tag"),
    [
        (None, Role.USER, ["abc123", "older"], ["abc123", "older"]),
        ("u002", Role.USER, ["abc123", "older"], ["abc123", "older"]),
        ("u001", Role.USER, ["abc123", "older", "fans", "secret"], ["abc123", "older", "fans"]),
        ("root", Role.ADMIN, ["abc123", "older", "fans", "secret"], ["abc123", "older", "fans"]),
    ],
)
@covers("FEED-002", "FEED-007")
async def test_lists_show_what_a_viewer_may_see(
    served: Served, ours: Sequence[str], viewer: str | None, role: Role, author: list[str], tag: list[str]
) -> None:
    assert await listed_post_ids(served, BY_AUTHOR, viewer, role) == author
    assert await listed_post_ids(served, BY_TAG, viewer, role) == [*ours, *tag]


async def test_posts_of_tags_without_attributes_are_read_in_one_batch_a_page(
    served: Served, ours: Sequence[str]
) -> None:
    answer = await served.ask(BY_TAG, {"first": len(ours) + 2})
    page = data_of(answer)["list"]
    second = data_of(await served.ask(BY_TAG, {"first": 1, "after": page["pageInfo"]["endCursor"]}))["list"]

    assert page["nodes"][-1] == {
        "postId": "older",
        "text": "",
        "authorId": "u001",
        "visibility": "PUBLIC",
        "mediaRef": "s3://media/older.jpg",
    }
    assert sorted(answer.made)[0] == "BatchGetItem feed"
    assert second == {"nodes": [], "pageInfo": {"hasNextPage": False, "endCursor": None}}


async def test_pages_of_our_own_tags_read_no_posts(served: Served) -> None:
    await create_profiles(served, "ada")
    await mutate(served, 'mutation { createPost(input: {text: "#dynamodb"}) { postId } }', "ada")

    assert (await served.ask(BY_TAG)).made == ["Query feed.GSI2"]


@covers("FEED-009", "FEED-010", "FEED-P2", "FEED-P5", "FEED-P7")
async def test_documented_posts_are_counted_and_their_author_is_notified(served: Served, ours: Sequence[str]) -> None:
    pipeline = Pipeline(served)
    await pipeline.run()

    assert data_of(await served.ask(COUNTS))["post"] == {"likeCount": 3, "commentCount": 1}
    assert await rank_of(served, "u001") == (2, 2, 1)
    assert data_of(await served.ask(TRENDING))["trendingTags"] == [{"tag": "dynamodb", "postCount": 1 + len(ours)}]
    unread = data_of(await served.ask(UNREAD, user="u001"))["notifications"]["nodes"]
    assert sorted(unread, key=lambda one: str(one["kind"])) == [
        {"kind": "COMMENT", "actorId": "u002", "actorCount": 1, "postId": "abc123", "commentId": "c001"},
        {"kind": "LIKE", "actorId": "u002", "actorCount": 2, "postId": "abc123", "commentId": None},
    ]


@covers("FEED-P4", "FEED-P6")
async def test_the_counts_of_another_program_are_taken_back(served: Served, ours: Sequence[str]) -> None:
    pipeline = Pipeline(served)
    await pipeline.run()
    delete_feed_items(served, like_document("abc123"), comment_document("abc123", "c001"), tag_document("abc123"))
    await pipeline.run()
    less = data_of(await served.ask(COUNTS))["post"], await rank_of(served, "u001")
    await mutate(served, 'mutation { deletePost(id: "abc123") { postId } }', "u001")
    await pipeline.run()

    assert less == ({"likeCount": 2, "commentCount": 0}, (2, 1, 0))
    assert await rank_of(served, "u001") == (1, 0, 0)
    assert data_of(await served.ask(UNREAD, user="u001"))["notifications"]["nodes"] == []
    assert [rank["postCount"] for rank in data_of(await served.ask(TRENDING))["trendingTags"]] == (
        [len(ours)] if ours else []
    )


@covers("FEED-W6")
async def test_comments_are_deleted_by_their_authors_and_the_posts(served: Served) -> None:
    write_feed_items(served, *DOCUMENT, comment_document("abc123", "c002"))
    remove = 'mutation ($id: ID!) { deleteComment(postId: "abc123", commentId: $id) { commentId } }'

    foreign = await served.ask(remove, {"id": "c001"}, user="u003")
    by_author = await mutate(served, remove, "u002", id="c001")
    by_posts_author = await mutate(served, remove, "u001", id="c002")

    assert foreign.codes == ["FORBIDDEN"]
    assert (by_author, by_posts_author) == ({"commentId": "c001"}, {"commentId": "c002"})


@covers("FEED-N1", "FEED-W2", "FEED-W3")
async def test_users_like_and_comment_on_documented_posts(served: Served, ours: Sequence[str]) -> None:
    add = 'mutation { createComment(postId: "abc123", input: {text: "Hi"}) { text } }'
    liked = 'mutation { likePost(postId: "abc123") { userId createdAt post { likedByViewer } } }'
    again = {"userId": "u002", "createdAt": "2026-06-25T12:00:00.000Z", "post": {"likedByViewer": True}}

    assert await mutate(served, add, "u003") == {"text": "Hi"}
    assert await mutate(served, liked, "u002") == again
    assert await mutate(served, 'mutation { unlikePost(postId: "abc123") { userId } }', "u002") == {"userId": "u002"}


@covers("FEED-P3")
async def test_dead_letters_of_documented_items_are_redriven(served: Served) -> None:
    write_feed_items(served, *DOCUMENT)
    pipeline = Pipeline(served)
    database = pipeline.database
    changes = await feed_changes(database)
    for handler in pipeline.handlers:
        for change in changes:
            letter = letter_of("feed", handler.name, encode_change(change), KeyError("post_author"), 6, NOON)
            await DeadLetters(store_of(database), CONSUMER_TABLE).bury(letter)
    replay = Redrive(pipeline.handlers, lambda: store_of(database), served.clock)

    left = [await replay.replay(letter) for letter in await letters_of(database, NOON)]

    assert left == [None] * (len(changes) * len(pipeline.handlers))
    assert await letters_of(database, NOON) == []
    assert data_of(await served.ask(COUNTS))["post"] == {"likeCount": 3, "commentCount": 1}


async def test_the_command_redrives_dead_letters_of_documented_items(
    served: Served, store_options: StoreOptions
) -> None:
    """`dlq replay`: a like that failed before its post was stored counts afterwards."""
    write_feed_items(served, *map(user_document, ("u001", "u002")), post_document("abc123"))
    pipeline = Pipeline(served)
    await pipeline.run()
    write_feed_items(served, like_document("abc123"))
    (change,) = (await feed_changes(pipeline.database))[-1:]
    letter = letter_of("feed", "counters", encode_change(change), KeyError("post_author"), 6, utc_now())
    await DeadLetters(store_of(pipeline.database), CONSUMER_TABLE).bury(letter)

    store = ("--store", store_options.store, "--prefix", store_options.prefix)
    ended = await asyncio.to_thread(run_here, "dlq", "replay", letter.id, *store)

    assert (ended.returncode, ended.stdout) == (0, "1 replayed, 0 failed\n")
    assert data_of(await served.ask(COUNTS))["post"] == {"likeCount": 1, "commentCount": 0}


@covers("FEED-W1")
async def test_our_post_among_documented_ones_is_unchanged(served: Served) -> None:
    write_feed_items(served, *DOCUMENT)
    await create_profiles(served, "ada")
    await write_post(served, "ours")

    assert await listed_post_ids(served, '{ list: postsByAuthor(authorId: "ada") { nodes { postId } } }') == ["ours"]


# Follow edges.

FOLLOWERS = '{ followers(userId: "u001") { nodes { userId createdAt } } }'
PEOPLE = """{ u001: user(id: "u001") { followerCount followingCount followedByViewer }
  u002: user(id: "u002") { followerCount followingCount following { nodes { userId } } } }"""
HOME = '{ homeFeed(userId: "u002") { nodes { postId author { name } post { postId text } } } }'
FOLLOW = "mutation ($id: ID!) { follow(userId: $id) { userId createdAt } }"
UNFOLLOW = "mutation ($id: ID!) { unfollow(userId: $id) { userId createdAt } }"
EDGE = edge_document("u002", "u001")
SINCE = "2026-06-25T11:00:00.000Z"


async def people(served: Served) -> tuple[Any, ...]:
    """Return the counts of u001 and u002, and the ids of the users that u002 follows."""
    found = data_of(await served.ask(PEOPLE, user="u002"))
    counts = [found[id][name] for id in ("u001", "u002") for name in ("followerCount", "followingCount")]
    return (*counts, [node["userId"] for node in found["u002"]["following"]["nodes"]])


PAGES = """query ($after: String) { homeFeed(userId: "u002", first: 1, after: $after) {
  nodes { postId } pageInfo { hasNextPage endCursor } } }"""


async def test_posts_of_a_merged_author_are_listed_once(served: Served, ours: Sequence[str]) -> None:
    """The pipeline wrote entries of the posts before the author's posts were merged into feeds."""
    pipeline = Pipeline(served)
    await pipeline.run()
    write_feed_items(served, EDGE)
    await pipeline.run()
    source = source_item("u002", "u001", iso(NOON - 2 * SECOND + timedelta(milliseconds=500)))
    write_feed_items(served, source, post_document("later", at=NOON + 60 * SECOND))
    found: list[str] = []
    after = None
    while True:
        page = data_of(await served.ask(PAGES, {"after": after}, user="u002"))["homeFeed"]
        found += [node["postId"] for node in page["nodes"]]
        after = page["pageInfo"]["endCursor"]
        if not page["pageInfo"]["hasNextPage"]:
            break

    assert found == ["later", "abc123", "older", "fans"]


async def documented_followers(served: Served) -> list[tuple[str, str]]:
    nodes = data_of(await served.ask(FOLLOWERS))["followers"]["nodes"]
    return [(node["userId"], node["createdAt"]) for node in nodes]


@covers("FEED-003", "FEED-008", "FEED-N3", "FEED-P8")
async def test_a_documented_follow_edge_is_listed_counted_and_used_by_fan_out(
    served: Served, ours: Sequence[str]
) -> None:
    pipeline = Pipeline(served)
    await pipeline.run()
    write_feed_items(served, EDGE)
    await pipeline.run()
    write_feed_items(
        served,
        post_document("later", at=NOON + 60 * SECOND),
        post_document("hidden", at=NOON + 61 * SECOND, visibility="private"),
    )
    await pipeline.run()

    assert await documented_followers(served) == [("u002", SINCE)]
    assert await people(served) == (1, 0, 0, 1, ["u001"])
    feed = data_of(await served.ask(HOME, user="u002"))["homeFeed"]["nodes"]
    assert [(entry["postId"], entry["post"]["text"]) for entry in feed] == [
        (id, "") for id in ("later", "abc123", "older", "fans")
    ]
    assert await listed_post_ids(served, BY_AUTHOR, "u002") == ["later", "abc123", "older", "fans"]
    assert await listed_post_ids(served, BY_TAG, "u002") == [*ours, "abc123", "older", "fans"]


@covers("FEED-W4")
@pytest.mark.parametrize("handled", [True, False])
async def test_a_documented_follow_edge_is_unfollowed(served: Served, handled: bool) -> None:
    write_feed_items(served, *DOCUMENT, EDGE)
    pipeline = Pipeline(served)
    if handled:
        await pipeline.run()

    taken_back = await mutate(served, UNFOLLOW, "u002", id="u001")
    again = await mutate(served, UNFOLLOW, "u002", id="u001")
    await pipeline.run()

    assert (taken_back, again) == ({"userId": "u001", "createdAt": SINCE}, None)
    assert await documented_followers(served) == []
    assert await people(served) == (0, 0, 0, 0, [])
    assert data_of(await served.ask(HOME, user="u002"))["homeFeed"]["nodes"] == []


@pytest.mark.parametrize("handled", [True, False])
async def test_a_follower_by_an_edge_who_follows_again_is_listed_once(served: Served, handled: bool) -> None:
    write_feed_items(served, *DOCUMENT, EDGE)
    pipeline = Pipeline(served)
    if handled:
        await pipeline.run()

    followed = await mutate(served, FOLLOW, "u002", id="u001")
    await pipeline.run()
    listed = await documented_followers(served), await people(served)
    taken_back = await mutate(served, UNFOLLOW, "u002", id="u001")
    await pipeline.run()

    assert followed == taken_back == {"userId": "u001", "createdAt": SINCE}
    assert listed == ([("u002", SINCE)], (1, 0, 0, 1, ["u001"]))
    assert await documented_followers(served) == []
    assert await people(served) == (0, 0, 0, 0, [])


async def test_a_second_edge_of_a_follow_of_ours_is_deleted_with_it(served: Served) -> None:
    write_feed_items(served, *DOCUMENT)
    pipeline = Pipeline(served)
    await mutate(served, FOLLOW, "u002", id="u001")
    write_feed_items(served, EDGE)
    await pipeline.run()
    twice = await people(served)
    await mutate(served, UNFOLLOW, "u002", id="u001")
    await pipeline.run()

    assert twice == (1, 0, 0, 1, ["u001"])
    assert await documented_followers(served) == []
    assert await people(served) == (0, 0, 0, 0, [])


@pytest.mark.parametrize("whose", ["ours", "theirs"])
async def test_an_edge_that_another_program_deletes_ends_the_follow(served: Served, whose: str) -> None:
    write_feed_items(served, *DOCUMENT)
    pipeline = Pipeline(served)
    if whose == "ours":
        await mutate(served, FOLLOW, "u002", id="u001")
    else:
        write_feed_items(served, EDGE)
    await pipeline.run()
    moment = "2026-06-25T12:00:00.000Z" if whose == "ours" else "2026-06-25T11:00:00Z"
    delete_feed_items(served, {"PK": "FOLLOWEE#u001", "SK": f"FOLLOWER#u002#{moment}"})
    await pipeline.run()

    assert await people(served) == (0, 0, 0, 0, [])
    assert await listed_post_ids(served, BY_AUTHOR, "u002") == ["abc123", "older"]


@covers("FEED-N7")
async def test_a_documented_like_is_in_the_counts_of_responses_once(served: Served) -> None:
    write_feed_items(served, *DOCUMENT)
    pipeline = Pipeline(served)
    await pipeline.run()
    stored = data_of(await served.ask(COUNTS))["post"]["likeCount"]
    like, unlike = (
        f'mutation {{ {name}(postId: "abc123") {{ post {{ likeCount }} }} }}' for name in ("likePost", "unlikePost")
    )

    shown = [(await mutate(served, each, "u001"))["post"]["likeCount"] for each in (like, unlike, like)]
    await pipeline.run()

    assert shown == [stored, stored - 1, stored]
    assert data_of(await served.ask(COUNTS))["post"]["likeCount"] == stored
