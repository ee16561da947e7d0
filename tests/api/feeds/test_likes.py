"""Likes through the API, on the real engine (FEED-005, FEED-N1, FEED-W2)."""

import asyncio
from typing import Any

import pytest

from datastore.keyspace.feeds import likes as keys
from datastore.keyspace.feeds.table import FEED
from datastore.model.identity import Role
from tests.support.feed_items import like_item, post_item
from tests.support.feed_steps import (
    SEEN_BY,
    VIEWERS,
    assert_paged,
    cast,
    create_profiles,
    follow_user,
    let_time_pass,
    mutate,
    unfollow,
    write_post,
)
from tests.support.served import Answer, Served

LIKE = "mutation ($post: ID!) { likePost(postId: $post) { postId userId createdAt } }"
UNLIKE = "mutation ($post: ID!) { unlikePost(postId: $post) { postId userId createdAt } }"
LIST = "query ($post: ID!) { likes(postId: $post) { nodes { userId createdAt } pageInfo { endCursor } } }"
LIKED = "query ($post: ID!) { post(id: $post) { likedByViewer } }"
NOON = "2026-06-25T12:00:00.000Z"


async def like_post(served: Served, user: str, post: str = "p") -> Any:
    return await mutate(served, LIKE, user, post=post)


async def likers(served: Served, post: str = "p", user: str | None = None, role: Role = Role.USER) -> list[str]:
    answer = await served.ask(LIST, {"post": post}, user=user, role=role)
    assert answer.errors is None, answer.errors
    return [node["userId"] for node in answer.data["likes"]["nodes"]]


async def like_times(served: Served) -> list[str]:
    """Return the time of each like of the post."""
    return [node["createdAt"] for node in (await served.ask(LIST, {"post": "p"})).data["likes"]["nodes"]]


async def test_a_like_is_returned_as_stored(served: Served) -> None:
    await cast(served, "FOLLOWERS")

    answer = await served.ask(LIKE, {"post": "p"}, user="fan")

    assert answer.data == {"likePost": {"postId": "p", "userId": "fan", "createdAt": NOON}}
    # The post and the user, the user's follow of the author, then the like.
    assert answer.made == ["BatchGetItem feed", "GetItem feed", "PutItem feed"]
    batch, single, _ = (call.request for call in answer.calls)
    assert [entry["ConsistentRead"] for entry in batch["RequestItems"].values()] == [single["ConsistentRead"]] == [True]
    assert await served.store().get(keys.LIKE_OF_USER, keys.like("p", "fan")) == {
        "PK": "POST#p",
        "SK": "LIKE#fan",
        "created_at": "2026-06-25T12:00:00.000Z",
        "post_author": "ada",
        "post_visibility": "followers",
        "marked_until": "2026-07-13T12:00:00.000Z",
    }


async def test_a_second_like_changes_nothing_and_returns_the_first(served: Served) -> None:
    await cast(served, "PUBLIC")
    first = await like_post(served, "eve")
    served.clock.forward(hours=1)

    assert await like_post(served, "eve") == first
    assert await likers(served) == ["eve"]


async def test_twenty_concurrent_likes_of_a_user_are_one(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    await cast(served, "PUBLIC")
    let_time_pass(monkeypatch)

    liked = await asyncio.gather(*[like_post(served, "eve") for _ in range(20)])

    assert await like_times(served) == [liked[0]["createdAt"]]
    assert liked == [liked[0]] * 20


async def test_a_like_is_removed_once_and_can_be_repeated(served: Served) -> None:
    await cast(served, "PUBLIC")
    first = await like_post(served, "eve")
    await like_post(served, "fan")

    answer = await served.ask(UNLIKE, {"post": "p"}, user="eve")
    again = await mutate(served, UNLIKE, "eve", post="p")
    left = await likers(served)
    served.clock.forward(hours=1)
    second = await like_post(served, "eve")

    assert answer.data == {"unlikePost": first}
    assert answer.made == ["DeleteItem feed"]
    assert again is None
    assert left == ["fan"]
    assert second["createdAt"] == "2026-06-25T13:00:00.000Z"


async def test_each_of_concurrent_likes_is_removed_once_or_stored(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cast(served, "PUBLIC")
    let_time_pass(monkeypatch)

    answers = await asyncio.gather(
        *[mutate(served, (LIKE, UNLIKE)[number % 2], "eve", post="p") for number in range(20)]
    )

    given = {answer["createdAt"] for answer in answers[::2]}
    removed = [answer["createdAt"] for answer in answers[1::2] if answer]
    assert sorted([*removed, *await like_times(served)]) == sorted(given)


async def test_likes_have_the_visibility_of_their_post(served: Served) -> None:
    await cast(served, "PUBLIC")
    for visibility in SEEN_BY:
        await write_post(served, visibility, visibility=visibility)
        await like_post(served, "ada", visibility)

    for visibility, allowed in SEEN_BY.items():
        for viewer, (user, role) in VIEWERS.items():
            shown = await likers(served, visibility, user=user, role=role)
            liked = await served.ask(LIKE, {"post": visibility}, user=user, role=role)
            ended = await served.ask(UNLIKE, {"post": visibility}, user=user, role=role)

            assert shown == (["ada"] if viewer in allowed else []), (visibility, viewer)
            refusal = "UNAUTHENTICATED" if user is None else "NOT_FOUND"
            assert liked.codes == ([] if viewer in allowed and user else [refusal]), (visibility, viewer)
            assert ended.codes == ([] if user else ["UNAUTHENTICATED"]), (visibility, viewer)
            if user == "ada":
                await like_post(served, "ada", visibility)


async def test_a_former_follower_sees_no_likes_and_can_remove_an_own_like(served: Served) -> None:
    await cast(served, "FOLLOWERS")
    await like_post(served, "fan")
    await unfollow(served, "fan", "ada")

    assert await likers(served, user="fan") == []
    assert (await served.ask(LIKE, {"post": "p"}, user="fan")).codes == ["NOT_FOUND"]
    assert (await mutate(served, UNLIKE, "fan", post="p"))["userId"] == "fan"
    assert await likers(served, user="ada") == []

    await follow_user(served, "fan", "ada")
    assert (await like_post(served, "fan"))["userId"] == "fan"


async def test_a_missing_post_cannot_be_liked(served: Served) -> None:
    await cast(served, "PUBLIC")
    await like_post(served, "eve")
    await mutate(served, "mutation ($id: ID!) { deletePost(id: $id) { postId } }", "ada", id="p")

    for post in ("p", "unknown"):
        answer = await served.ask(LIKE, {"post": post}, user="fan")
        assert answer.codes == ["NOT_FOUND"]
        assert answer.made == ["BatchGetItem feed"]
        assert await likers(served, post) == []
    for post in ("", "x" * 101):
        for query in (LIKE, UNLIKE, LIST):
            assert (await served.ask(query, {"post": post}, user="fan")).codes == ["BAD_USER_INPUT"]


async def test_a_like_requires_a_profile(served: Served) -> None:
    await cast(served, "PUBLIC")

    answer = await served.ask(LIKE, {"post": "p"}, user="ghost")

    assert answer.codes == ["NOT_FOUND"]
    assert "createUser" in str(answer.errors)
    assert answer.made == ["BatchGetItem feed"]
    assert await likers(served) == []


async def test_a_post_shows_whether_the_caller_likes_it(served: Served) -> None:
    await cast(served, "PUBLIC")
    await like_post(served, "eve")

    answers: list[Answer] = [await served.ask(LIKED, {"post": "p"}, user=user) for user in ("eve", "fan", None)]

    assert [answer.data["post"]["likedByViewer"] for answer in answers] == [True, False, None]
    assert [answer.made for answer in answers] == [["GetItem feed"] * 2, ["GetItem feed"] * 2, ["GetItem feed"]]


async def test_the_response_includes_a_like_of_the_same_request(served: Served) -> None:
    await cast(served, "PUBLIC")

    answer = await served.ask(
        """mutation {
          first: likePost(postId: "p") { post { likedByViewer } }
          then: unlikePost(postId: "p") { post { likedByViewer } }
        }""",
        user="eve",
    )

    assert answer.data == {"first": {"post": {"likedByViewer": True}}, "then": {"post": {"likedByViewer": False}}}
    # The post and the user, the like, the post for the response, and the removal of the like, which is not read again.
    assert answer.made == ["BatchGetItem feed", "DeleteItem feed", "GetItem feed", "PutItem feed"]
    assert await served.store().get(keys.LIKE_OF_USER, keys.like("p", "eve")) is None


async def test_likes_are_paged_by_descending_user_id_in_both_directions(served: Served) -> None:
    await cast(served, "PUBLIC")
    users = [f"user{number:02d}" for number in range(17)]
    await create_profiles(served, *users)
    await asyncio.gather(*[like_post(served, user) for user in users])
    await mutate(served, 'mutation { createComment(postId: "p", input: {text: "x"}) { authorId } }', "eve")

    await assert_paged(served, 'likes(postId: "p", %s)', "userId", users[::-1])


async def test_the_users_of_a_page_are_read_in_one_batch(served: Served) -> None:
    await cast(served, "PUBLIC")
    for user in ("ada", "eve"):
        await like_post(served, user)
    await served.store().write_all(FEED, puts=[like_item(post_item("p"), "ghost")])

    answer = await served.ask('{ likes(postId: "p", first: 3) { nodes { user { name } } } }')

    assert answer.data["likes"]["nodes"] == [{"user": None}, {"user": {"name": "Eve"}}, {"user": {"name": "Ada"}}]
    assert answer.made == ["BatchGetItem feed", "GetItem feed", "Query feed"]


async def test_invalid_paging_and_cursors_of_other_lists_are_refused(served: Served) -> None:
    await cast(served, "PUBLIC")
    await write_post(served, "q")
    await like_post(served, "eve")
    cursor = (await served.ask(LIST, {"post": "p"})).data["likes"]["pageInfo"]["endCursor"]

    for field, code in (
        ('likes(postId: "p", first: 101)', "BAD_USER_INPUT"),
        ('likes(postId: "p", first: 1, before: "x")', "BAD_USER_INPUT"),
        (f'likes(postId: "q", after: "{cursor}")', "BAD_CURSOR"),
        (f'comments(postId: "p", after: "{cursor}")', "BAD_CURSOR"),
    ):
        assert (await served.ask(f"{{ {field} {{ nodes {{ id }} }} }}")).codes == [code]


async def test_a_damaged_like_is_an_error_in_its_place(served: Served) -> None:
    await cast(served, "PUBLIC")
    await like_post(served, "eve")
    await served.store().write_all(FEED, puts=[{"PK": "POST#p", "SK": "LIKE#fan", "created_at": "never"}])

    answer = await served.ask(LIST, {"post": "p"})

    assert [node and node["userId"] for node in answer.data["likes"]["nodes"]] == [None, "eve"]
    assert answer.codes == ["INTERNAL"]
