"""Follows of users, through the API, on the real engine (FEED-008, FEED-N3, FEED-W4)."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from datastore.dynamodb.codec import Item
from datastore.errors import Conflict
from datastore.feeds.count_marks import marked_until
from datastore.feeds.follows import UNFOLLOW_ATTEMPTS, Follow, Follows
from datastore.keyspace.feeds import follows as keys
from datastore.keyspace.feeds.table import FEED
from datastore.model.access_patterns import AccessPattern
from datastore.model.composite_keys import Key
from datastore.model.identity import Role
from datastore.model.timestamps import iso
from tests.support.feed_items import following_item, user_item
from tests.support.feed_steps import assert_paged, create_profiles, follow_user, let_time_pass, mutate, unfollow
from tests.support.served import Served

FOLLOW = "mutation ($id: ID!) { follow(userId: $id) { userId createdAt user { name } } }"
UNFOLLOW = "mutation ($id: ID!) { unfollow(userId: $id) { userId createdAt } }"
FOLLOWERS = "query ($id: ID!) { followers(userId: $id) { nodes { userId createdAt } pageInfo { endCursor } } }"
FOLLOWED = "query ($id: ID!) { user(id: $id) { following { nodes { userId createdAt } } } }"
NOON = "2026-06-25T12:00:00.000Z"
ONE = "2026-06-25T13:00:00.000Z"


async def followers_of_user(served: Served, user: str) -> list[tuple[str, str]]:
    answer = await served.ask(FOLLOWERS, {"id": user})
    assert answer.errors is None, answer.errors
    return [(node["userId"], node["createdAt"]) for node in answer.data["followers"]["nodes"]]


async def followed_users(served: Served, user: str) -> list[tuple[str, str]]:
    answer = await served.ask(FOLLOWED, {"id": user})
    assert answer.errors is None, answer.errors
    return [(node["userId"], node["createdAt"]) for node in answer.data["user"]["following"]["nodes"]]


async def stored_follow_items(served: Served, follower: str, followee: str) -> tuple[list[Item], list[Item]]:
    """Return the stored items of a follow: those of the follower, and those of the followee."""
    store = served.store()
    values = {"partition": keys.following.partition_of(follower), "prefix": keys.following(follower, followee).sort}
    edges = {"partition": keys.edge.partition_of(followee), "prefix": f"FOLLOWER#{follower}#"}
    return (
        [item async for item in store.query_all(keys.FOLLOWED, values)],
        [item async for item in store.query_all(keys.EDGES, edges)],
    )


# Following.


async def test_a_follow_is_returned_as_stored_for_both_users(served: Served) -> None:
    await create_profiles(served, "ada", "fan")

    answer = await served.ask(FOLLOW, {"id": "ada"}, user="fan")

    assert answer.data == {"follow": {"userId": "ada", "createdAt": NOON, "user": {"name": "Ada"}}}
    # Before the write: both users, the follow and its edges. After it: the user that the response shows.
    assert answer.made == ["BatchGetItem feed", "GetItem feed", "Query feed", "TransactWriteItems feed"]
    since = "2026-06-25T12:00:00.000Z"
    assert await stored_follow_items(served, "fan", "ada") == (
        [{"PK": "USER#fan", "SK": "FOLLOWING#ada", "since": since, "marked_until": "2026-07-13T12:00:00.000Z"}],
        [
            {
                "PK": "FOLLOWEE#ada",
                "SK": f"FOLLOWER#fan#{since}",
                "GSI_FOLPK": "FOLLOWEE#ada",
                "GSI_FOLSK": f"{since}#FOLLOWER#fan",
                "since": since,
            }
        ],
    )
    assert await followers_of_user(served, "ada") == [("fan", NOON)]
    assert await followed_users(served, "fan") == [("ada", NOON)]
    assert await followers_of_user(served, "fan") == await followed_users(served, "ada") == []


async def test_the_time_of_a_follow_is_stored_in_milliseconds(served: Served) -> None:
    await create_profiles(served, "ada", "fan")
    served.clock.forward(microseconds=1999)

    first = await follow_user(served, "fan", "ada")

    assert first["createdAt"] == "2026-06-25T12:00:00.001Z"
    assert await follow_user(served, "fan", "ada") == first


async def test_a_second_follow_changes_nothing_and_returns_the_first(served: Served) -> None:
    await create_profiles(served, "ada", "fan")
    first = await follow_user(served, "fan", "ada")
    served.clock.forward(hours=1)

    again = await served.ask('mutation { follow(userId: "ada") { userId createdAt } }', user="fan")

    assert again.data == {"follow": first}
    assert again.made == ["BatchGetItem feed"]
    assert await followers_of_user(served, "ada") == [("fan", NOON)]


async def test_twenty_concurrent_follows_are_one(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    await create_profiles(served, "ada", "fan")
    let_time_pass(monkeypatch)

    answers = await asyncio.gather(*[follow_user(served, "fan", "ada") for _ in range(20)])

    assert answers == [answers[0]] * 20
    following, edges = await stored_follow_items(served, "fan", "ada")
    assert (len(following), len(edges)) == (1, 1)


async def test_only_users_with_profiles_follow_and_are_followed(served: Served) -> None:
    await create_profiles(served, "ada")

    ghost = await served.ask(FOLLOW, {"id": "ada"}, user="ghost")
    unknown = await served.ask(FOLLOW, {"id": "ghost"}, user="ada")
    anonymous = await served.ask(FOLLOW, {"id": "ada"})

    assert (ghost.codes, unknown.codes, anonymous.codes) == (["NOT_FOUND"], ["NOT_FOUND"], ["UNAUTHENTICATED"])
    assert "createUser" in str(ghost.errors)
    assert "There is no user 'ghost'." in str(unknown.errors)
    assert ghost.made == unknown.made == ["BatchGetItem feed"]
    assert (
        await stored_follow_items(served, "ghost", "ada")
        == await stored_follow_items(served, "ada", "ghost")
        == ([], [])
    )


async def test_users_cannot_follow_themselves(served: Served) -> None:
    await create_profiles(served, "ada")

    answer = await served.ask(FOLLOW, {"id": "ada"}, user="ada")

    assert answer.codes == ["BAD_USER_INPUT"]
    assert answer.errors is not None
    assert answer.errors[0]["extensions"]["field"] == "userId"
    assert answer.calls == []


async def test_an_impossible_user_id_is_refused(served: Served) -> None:
    for id in ("", " ", "x" * 257):
        for query in (FOLLOW, UNFOLLOW, FOLLOWERS):
            assert (await served.ask(query, {"id": id}, user="ada")).codes == ["BAD_USER_INPUT"]


async def test_ids_with_the_separator_of_keys_are_distinct(served: Served) -> None:
    await create_profiles(served, "a#b", "a%23b", "fan")
    await follow_user(served, "fan", "a#b")
    served.clock.forward(hours=1)
    await follow_user(served, "fan", "a%23b")

    assert await followers_of_user(served, "a#b") == [("fan", NOON)]
    assert await followers_of_user(served, "a%23b") == [("fan", ONE)]
    assert {user for user, _ in await followed_users(served, "fan")} == {"a#b", "a%23b"}


# Unfollowing.


async def test_a_follow_is_removed_once_for_both_users(served: Served) -> None:
    await create_profiles(served, "ada", "fan", "eve")
    await follow_user(served, "fan", "ada")
    await follow_user(served, "eve", "ada")
    served.clock.forward(hours=1)

    answer = await served.ask(UNFOLLOW, {"id": "ada"}, user="fan")
    again = await served.ask(UNFOLLOW, {"id": "ada"}, user="fan")

    assert answer.data == {"unfollow": {"userId": "ada", "createdAt": NOON}}
    assert answer.made == ["GetItem feed", "TransactWriteItems feed"]
    assert [call.request.get("ConsistentRead") for call in answer.calls if call.operation == "GetItem"] == [True]
    assert (again.data, again.made) == ({"unfollow": None}, ["GetItem feed", "Query feed"])
    assert await stored_follow_items(served, "fan", "ada") == ([], [])
    assert await followers_of_user(served, "ada") == [("eve", NOON)]


async def test_a_repeated_follow_has_a_new_time(served: Served) -> None:
    await create_profiles(served, "ada", "fan")
    await follow_user(served, "fan", "ada")
    await unfollow(served, "fan", "ada")
    served.clock.forward(hours=1)

    assert (await follow_user(served, "fan", "ada"))["createdAt"] == ONE
    assert await followers_of_user(served, "ada") == [("fan", ONE)]
    assert await followed_users(served, "fan") == [("ada", ONE)]


async def test_follows_and_unfollows_of_one_request_see_each_other(served: Served) -> None:
    await create_profiles(served, "ada", "fan")

    answer = await served.ask(
        """mutation {
          first: follow(userId: "ada") { user { followedByViewer } }
          second: unfollow(userId: "ada") { user { followedByViewer } }
          third: unfollow(userId: "ada") { userId }
          fourth: follow(userId: "ada") { user { followedByViewer } }
        }""",
        user="fan",
    )

    followed = {name: value and value["user"]["followedByViewer"] for name, value in answer.data.items()}
    assert followed == {"first": True, "second": False, "third": None, "fourth": True}
    # Both users and the follow are read before the write, the user for the answer. Written items are not reread. Edges
    # of other programs are read if there is no follow.
    assert answer.made == ["BatchGetItem feed", "GetItem feed", *["Query feed"] * 3, *["TransactWriteItems feed"] * 3]
    following, edges = await stored_follow_items(served, "fan", "ada")
    assert (len(following), len(edges)) == (1, 1)


async def test_a_user_can_follow_five_thousand_users(served: Served) -> None:
    await create_profiles(served, "ada", "eve")
    followers = [user_item(user) | {"following": number} for user, number in (("fan", 4999), ("kim", 5000))]
    await served.store().write_all(FEED, puts=[*followers, following_item("kim", "eve")])

    at_last = await served.ask(FOLLOW, {"id": "ada"}, user="fan")
    too_many = await served.ask(FOLLOW, {"id": "ada"}, user="kim")
    again = await served.ask(FOLLOW, {"id": "eve"}, user="kim")

    assert at_last.errors is again.errors is None
    assert too_many.codes == ["CONFLICT"]
    assert "`userId`" in str(too_many.errors)
    assert "5,000" in str(too_many.errors)
    assert await followers_of_user(served, "ada") == [("fan", NOON)]


async def test_both_users_have_the_same_follow_after_thirty_concurrent_calls(served: Served) -> None:
    await create_profiles(served, "ada", "fan", "eve")

    async def act(number: int) -> list[str]:
        served.clock.forward(milliseconds=7)
        mutation = (FOLLOW, UNFOLLOW)[number % 2]
        return (await served.ask(mutation, {"id": "ada"}, user=("fan", "eve")[number % 3 == 0])).codes

    codes = await asyncio.gather(*[act(number) for number in range(30)])

    # A follow that changes repeatedly during the call is reported as a conflict.
    assert {code for found in codes for code in found} <= {"CONFLICT", "THROTTLED"}
    assert [] in codes
    for user in ("fan", "eve"):
        following, edges = await stored_follow_items(served, user, "ada")
        assert len(following) == len(edges) <= 1
        for item, edge in zip(following, edges, strict=True):
            assert edge["SK"] == f"FOLLOWER#{user}#{item['since']}"
    assert sorted(await followers_of_user(served, "ada")) == sorted(
        [(user, since) for user in ("fan", "eve") for _, since in await followed_users(served, user)]
    )


@pytest.mark.parametrize("times", [1, 4, 5])
async def test_a_follow_that_is_repeated_meanwhile_is_removed_with_its_new_time(
    served: Served, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    await create_profiles(served, "ada", "fan")
    await follow_user(served, "fan", "ada")
    store = served.store()
    get, moments = store.get, [served.clock() + timedelta(hours=hour + 1) for hour in range(times)]
    left = iter(moments)

    async def get_then_follow_again(pattern: AccessPattern, key: Key) -> Item | None:
        item = await get(pattern, key)
        if moment := next(left, None):
            await Follows(served.store(), moment).unfollow("fan", "ada")
            await Follows(served.store(), moment).follow("fan", "ada")
        return item

    monkeypatch.setattr(store, "get", get_then_follow_again)
    unfollowing = Follows(store, served.clock()).unfollow("fan", "ada")

    if times < UNFOLLOW_ATTEMPTS:
        assert await unfollowing == Follow("fan", "ada", moments[-1], marked_until(moments[-1]))
        assert await stored_follow_items(served, "fan", "ada") == ([], [])
    else:
        with pytest.raises(Conflict):
            await unfollowing
        following, edges = await stored_follow_items(served, "fan", "ada")
        assert [item["since"] for item in following] == [iso(moments[-1])]
        assert len(edges) == 1


# Reading.


async def test_followers_are_paged_newest_first_in_both_directions(served: Served) -> None:
    users = [f"user{number:02d}" for number in range(17)]
    await create_profiles(served, "ada", "eve", *users)
    for user in users:
        await follow_user(served, user, "ada")
        served.clock.forward(milliseconds=1)
    await follow_user(served, "ada", "eve")

    await assert_paged(served, 'followers(userId: "ada", %s)', "userId", users[::-1])


async def test_followed_users_are_paged_by_id(served: Served) -> None:
    users = [f"user{number:02d}" for number in range(9)]
    await create_profiles(served, "fan", *users)
    await asyncio.gather(*[follow_user(served, "fan", user) for user in users])
    pages: list[list[Any]] = []
    after = ""

    while len(pages) < 3:
        query = (
            f'{{ user(id: "fan") {{ page: following(first: 4{after}) {{ nodes {{ userId }} lastEvaluatedKey }} }} }}'
        )
        page = (await served.ask(query)).data["user"]["page"]
        pages.append([node["userId"] for node in page["nodes"]])
        after = f', after: "{page["lastEvaluatedKey"]}"'

    assert pages == [users[:4], users[4:8], users[8:]]
    assert page["lastEvaluatedKey"] is None


async def test_the_users_of_a_page_are_read_in_one_batch(served: Served) -> None:
    await create_profiles(served, "ada", "fan", "eve")
    for user in ("fan", "eve"):
        await follow_user(served, user, "ada")
        served.clock.forward(seconds=1)

    answer = await served.ask('{ followers(userId: "ada") { nodes { user { name followedByViewer } } } }', user="fan")

    people = [{"name": "Eve", "followedByViewer": False}, {"name": "Fan", "followedByViewer": False}]
    assert [node["user"] for node in answer.data["followers"]["nodes"]] == people
    assert answer.made == ["BatchGetItem feed", "BatchGetItem feed", "Query feed.GSI_FOL"]


async def test_a_user_shows_whether_the_caller_follows_them(served: Served) -> None:
    await create_profiles(served, "ada", "fan")
    await follow_user(served, "fan", "ada")

    asked = {"fan": Role.USER, "ada": Role.USER, "root": Role.ADMIN, None: Role.USER}
    received = [
        (await served.ask('{ user(id: "ada") { followedByViewer } }', user=user, role=role)).data["user"]
        for user, role in asked.items()
    ]

    assert [user["followedByViewer"] for user in received] == [True, False, False, None]


async def test_an_unknown_user_has_no_followers(served: Served) -> None:
    answer = await served.ask(FOLLOWERS, {"id": "nobody"})

    assert answer.data == {"followers": {"nodes": [], "pageInfo": {"endCursor": None}}}
    assert answer.made == ["Query feed.GSI_FOL"]


async def test_invalid_paging_and_cursors_of_other_lists_are_refused(served: Served) -> None:
    await create_profiles(served, "ada", "fan", "eve")
    await follow_user(served, "fan", "ada")
    cursor = (await served.ask(FOLLOWERS, {"id": "ada"})).data["followers"]["pageInfo"]["endCursor"]

    for field, code in (
        ('followers(userId: "ada", last: 101)', "BAD_USER_INPUT"),
        ('followers(userId: "ada", last: 1, after: "x")', "BAD_USER_INPUT"),
        (f'followers(userId: "eve", after: "{cursor}")', "BAD_CURSOR"),
    ):
        assert (await served.ask(f"{{ {field} {{ nodes {{ userId }} }} }}")).codes == [code]
    for paging, code in (("first: 0", "BAD_USER_INPUT"), (f'after: "{cursor}"', "BAD_CURSOR")):
        for field in ("followers", "following"):
            query = f'{{ user(id: "ada") {{ {field}({paging}) {{ nodes {{ userId }} }} }} }}'
            assert (await served.ask(query)).codes == [code]


async def test_a_damaged_follow_is_an_error_in_its_place(served: Served) -> None:
    await create_profiles(served, "fan", "ada")
    await follow_user(served, "fan", "ada")
    await served.store().write_all(FEED, puts=[{"PK": "USER#fan", "SK": "FOLLOWING#zoe", "since": "ever"}])

    answer = await served.ask(FOLLOWED, {"id": "fan"})

    nodes = answer.data["user"]["following"]["nodes"]
    assert [node and node["userId"] for node in nodes] == ["ada", None]
    assert answer.codes == ["INTERNAL"]
    assert (await served.ask(UNFOLLOW, {"id": "zoe"}, user="fan")).codes == ["INTERNAL"]
    assert (await mutate(served, UNFOLLOW, "fan", id="ada"))["userId"] == "ada"
