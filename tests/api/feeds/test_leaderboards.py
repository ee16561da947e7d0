"""Leaderboards (FEED-010): each is read as one item."""

from typing import Any

import pytest

from datastore.feeds.leaderboards import LeaderboardMember, LeaderboardSnapshot, LeaderboardSnapshots
from datastore.keyspace.feeds import leaderboards as keys
from datastore.keyspace.feeds.leaderboards import FEED_METRICS
from datastore.keyspace.feeds.table import FEED
from datastore.model.timestamps import to_seconds
from tests.support.feed_items import user_item
from tests.support.served import NOON, Served

AUTHORS = "{ topAuthors(%s) { rank authorId author { name } postCount likeCount commentCount score } }"
TAGS = "{ trendingTags%s { rank tag postCount postsPerHour } }"


async def put_board(served: Served, kind: str, period: str, *members: dict[str, Any]) -> None:
    """Store a leaderboard as its pipeline does."""
    score = "score" if kind == keys.AUTHORS else "posts"
    best = tuple(
        LeaderboardMember(
            member["name"], member[score], {name: value for name, value in member.items() if name != "name"}
        )
        for member in members
    )
    assert await LeaderboardSnapshots(served.store()).put(LeaderboardSnapshot(kind, period, 1, best, None))


def author(name: str, posts: int, likes: int, comments: int) -> dict[str, Any]:
    return {"name": name, "posts": posts, "likes": likes, "comments": comments, "score": posts + likes + comments}


async def test_the_top_authors_of_a_month_are_one_item(served: Served) -> None:
    await put_board(
        served, keys.AUTHORS, "2026-06", author("ada", 3, 4, 2), author("bob", 1, 1, 1), author("c", 1, 0, 0)
    )
    await served.store().write_all(FEED, puts=[user_item("ada"), user_item("bob")])

    alone = await served.ask('{ topAuthors(at: "2026-06-25T12:00:00Z", first: 2) { authorId score } }')
    answer = await served.ask(AUTHORS % 'at: "2026-06-30T23:59:59.999Z", first: 2')
    everybody = await served.ask('{ topAuthors(at: "2026-06-25T12:00:00Z") { rank author { name } } }')
    nobody = await served.ask(AUTHORS % 'at: "2026-06-01T00:30:00+01:00"')
    present = await served.ask("{ topAuthors(first: 2) { authorId score } }")

    assert alone.made == ["GetItem feed-metrics"]
    assert alone.data == {"topAuthors": [{"authorId": "ada", "score": 9}, {"authorId": "bob", "score": 3}]}
    assert answer.data["topAuthors"] == [
        {
            "rank": 1,
            "authorId": "ada",
            "author": {"name": "Ada"},
            "postCount": 3,
            "likeCount": 4,
            "commentCount": 2,
            "score": 9,
        },
        {
            "rank": 2,
            "authorId": "bob",
            "author": {"name": "Bob"},
            "postCount": 1,
            "likeCount": 1,
            "commentCount": 1,
            "score": 3,
        },
    ]
    assert answer.made == ["BatchGetItem feed", "GetItem feed-metrics"]
    assert [one["author"] for one in everybody.data["topAuthors"]] == [{"name": "Ada"}, {"name": "Bob"}, None]
    assert nobody.data == {"topAuthors": []}
    assert present.data == alone.data


async def test_the_trending_tags_of_an_hour_or_a_day_are_one_item(served: Served) -> None:
    await put_board(served, keys.TAGS, "2026-06-25", {"name": "cats", "posts": 24}, {"name": "dogs", "posts": 6})
    await put_board(served, keys.TAGS, "2026-06-25T11", {"name": "cats", "posts": 3})
    await put_board(served, keys.TAGS, "2026-06-25T12", {"name": "dogs", "posts": 2})

    day = await served.ask(TAGS % "")
    earlier = await served.ask(TAGS % '(period: HOUR, at: "2026-06-25T13:59:59.999+02:00", first: 1)')
    begun = await served.ask(TAGS % "(period: HOUR)")
    served.clock.forward(minutes=30)
    half = await served.ask(TAGS % "(period: HOUR)")
    other = await served.ask(TAGS % '(period: HOUR, at: "2026-06-25T10:00:00Z")')

    assert day.data["trendingTags"] == [
        {"rank": 1, "tag": "cats", "postCount": 24, "postsPerHour": 2.0},
        {"rank": 2, "tag": "dogs", "postCount": 6, "postsPerHour": 0.5},
    ]
    assert earlier.data["trendingTags"] == [{"rank": 1, "tag": "cats", "postCount": 3, "postsPerHour": 3.0}]
    # An hour that has just begun is rated as one minute.
    assert [answer.data["trendingTags"][0]["postsPerHour"] for answer in (begun, half)] == [120.0, 4.0]
    assert other.data == {"trendingTags": []}
    assert {tuple(answer.made) for answer in (day, earlier, begun, half, other)} == {("GetItem feed-metrics",)}


async def test_an_expired_board_is_empty(served: Served) -> None:
    await put_board(served, keys.TAGS, "2026-06-25T12", {"name": "cats", "posts": 3})
    query = TAGS % '(period: HOUR, at: "2026-06-25T12:00:00Z")'

    served.clock.forward(days=3)
    before = await served.ask(query)
    served.clock.forward(hours=1)
    after = await served.ask(query)

    assert len(before.data["trendingTags"]) == 1
    assert after.data == {"trendingTags": []}


async def test_a_damaged_member_of_a_board_is_skipped(served: Served) -> None:
    key = keys.board(keys.TAGS, "2026-06-25")
    members = [{"name": "cats", "posts": 3}, {"name": "bad"}, {"name": "dogs", "posts": 1}]
    item = {"PK": key.partition, "SK": key.sort, "version": 1, "floor": 0, "members": members}
    await served.store().write_all(FEED_METRICS, puts=[item | {"expiresAt": to_seconds(NOON) + 1}])

    answer = await served.ask("{ trendingTags { rank tag } }")

    assert answer.data == {"trendingTags": [{"rank": 1, "tag": "cats"}, {"rank": 3, "tag": "dogs"}]}


@pytest.mark.parametrize(
    ("field", "names"),
    [
        ('topAuthors(at: "9999-06-25T12:00:00Z") { rank }', "at"),
        ('topAuthors(at: "2026-06-25T12:00:00Z", first: 0) { rank }', "first"),
        ("trendingTags(first: 101) { rank }", "first"),
        ('trendingTags(at: "9999-06-25T12:00:00Z") { rank }', "at"),
    ],
)
async def test_bad_input_is_named_without_a_call(served: Served, field: str, names: str) -> None:
    answer = await served.ask(f"{{ {field} }}")

    assert answer.codes == ["BAD_USER_INPUT"]
    assert f"`{names}`" in (answer.errors or [])[0]["message"]
    assert answer.calls == []
