"""Adding and deleting comments through the API, on the real engine (FEED-W3, FEED-W6)."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from datastore.keyspace.feeds import comments as keys
from datastore.model.identity import Role
from datastore.model.ids import uuid7_moment
from datastore.model.timestamps import iso, to_seconds
from tests.support.comment_steps import DELETE_POST, LIST, NODE, NOTHING, add_comment, ask_to_add, comments_of
from tests.support.comments import an_id
from tests.support.feed_steps import SEEN_BY, VIEWERS, assert_paged, cast, mutate, write_post
from tests.support.served import NOON, Served

DELETE = "mutation ($post: ID!, $id: ID!) { deleteComment(postId: $post, commentId: $id) { commentId text } }"


# Adding.


async def test_a_comment_is_returned_as_stored(served: Served) -> None:
    await cast(served, "PUBLIC")

    answer = await ask_to_add(served, "eve", "  Well said, @ada and @nobody! not@this ")

    assert answer.errors is None
    comment = answer.data["createComment"]
    assert comment["id"]
    assert uuid7_moment(comment["commentId"]) == NOON
    assert {name: value for name, value in comment.items() if name not in ("id", "commentId")} == {
        "postId": "p",
        "authorId": "eve",
        "createdAt": "2026-06-25T12:00:00.000Z",
        "text": "Well said, @ada and @nobody! not@this",
        "textLength": 37,
        "mentionedUserIds": ["ada", "nobody"],
    }
    assert answer.made == ["BatchGetItem feed", "PutItem feed"]
    (entry,) = answer.calls[0].request["RequestItems"].values()
    assert (len(entry["Keys"]), entry["ConsistentRead"]) == (2, True)
    item = await served.store().get(keys.COMMENT, keys.comment("p", comment["commentId"]))
    assert item == {
        "PK": "POST#p",
        "SK": f"COMMENT#{comment['commentId']}",
        "user_id": "eve",
        "created_at": "2026-06-25T12:00:00.000Z",
        "text": "Well said, @ada and @nobody! not@this",
        "text_len": 37,
        "marked_until": "2026-07-13T12:00:00.000Z",
        "mentions": ["ada", "nobody"],
        "post_author": "ada",
        "post_visibility": "public",
    }


async def test_a_comment_that_is_sent_again_changes_nothing(served: Served) -> None:
    await cast(served, "PUBLIC")
    first = await add_comment(served, "eve", "One", id=an_id())
    served.clock.forward(seconds=5)

    again = await add_comment(served, "eve", "Another", id=an_id())

    assert again == first
    assert [comment["text"] for comment in (await comments_of(served))["nodes"]] == ["One"]


async def test_twenty_concurrent_creations_with_one_id_are_one_comment(served: Served) -> None:
    await cast(served, "PUBLIC")

    added = await asyncio.gather(*[add_comment(served, "eve", f"Text {number}", id=an_id()) for number in range(20)])

    assert len({comment["text"] for comment in added}) == 1
    assert [comment["text"] for comment in (await comments_of(served))["nodes"]] == [added[0]["text"]]


async def test_the_id_of_a_comment_of_another_user_is_taken(served: Served) -> None:
    await cast(served, "PUBLIC")
    await add_comment(served, "eve", "The first", id=an_id())

    answer = await ask_to_add(served, "fan", "The second", id=an_id())

    assert answer.codes == ["CONFLICT"]
    assert "first" not in str(answer.errors)
    assert [comment["text"] for comment in (await comments_of(served))["nodes"]] == ["The first"]


async def test_comments_on_two_posts_may_have_the_same_id(served: Served) -> None:
    await cast(served, "PUBLIC")
    await write_post(served, "q")

    for post in ("p", "q"):
        await add_comment(served, "eve", f"On {post}", post=post, id=an_id())

    assert [comment["text"] for comment in (await comments_of(served, "q"))["nodes"]] == ["On q"]


async def test_an_id_that_is_no_current_uuid_of_version_7_is_refused(served: Served) -> None:
    await cast(served, "PUBLIC")
    comment = an_id()
    refused = ["", "x", str(uuid4()), comment.upper(), comment.replace("-", ""), f" {comment}"]
    refused += [an_id(minutes=5, milliseconds=1), an_id(days=-1, milliseconds=-1), an_id(days=-300)]

    for id in refused:
        answer = await ask_to_add(served, "eve", id=id)

        assert answer.codes == ["BAD_USER_INPUT"], id
        assert answer.errors is not None
        assert answer.errors[0]["extensions"]["field"] == "commentId"
        assert "`commentId` must" in answer.errors[0]["message"]
        assert answer.calls == []


async def test_the_time_of_an_id_may_be_five_minutes_ahead_or_a_day_old(served: Served) -> None:
    await cast(served, "PUBLIC")

    for id in (an_id(minutes=5), an_id(days=-1)):
        assert (await add_comment(served, "eve", id=id))["commentId"] == id


async def test_a_text_has_1_to_1000_characters(served: Served) -> None:
    await cast(served, "PUBLIC")

    for text in ("é" * 1000, " " * 9 + "e" * 1000 + " "):
        assert (await add_comment(served, "eve", text))["textLength"] == 1000
    for text in ("", " \n ", "e" * 1001):
        answer = await ask_to_add(served, "eve", text)
        assert answer.codes == ["BAD_USER_INPUT"]
        assert "`text` must have between 1 and 1000 characters." in str(answer.errors)


async def test_a_text_mentions_at_most_twenty_users(served: Served) -> None:
    await cast(served, "PUBLIC")
    people = [f"user{number}" for number in range(21)]

    fits = await add_comment(served, "eve", " ".join(f"@{name}" for name in people[:20]))
    answer = await ask_to_add(served, "eve", " ".join(f"@{name}" for name in people))

    assert fits["mentionedUserIds"] == people[:20]
    assert answer.codes == ["BAD_USER_INPUT"]


async def test_an_impossible_post_id_is_refused(served: Served) -> None:
    for post in ("", " ", "x" * 101):
        for answer in (
            await ask_to_add(served, "eve", post=post),
            await served.ask(LIST, {"post": post}),
            await served.ask(DELETE, {"post": post, "id": an_id()}, user="eve"),
        ):
            assert answer.codes == ["BAD_USER_INPUT"]
            assert answer.errors is not None
            assert answer.errors[0]["extensions"]["field"] == "postId"


# Deleting.


async def test_a_comment_is_deleted_once_by_its_author_or_that_of_the_post(served: Served) -> None:
    await cast(served, "PUBLIC")
    first, second = [await add_comment(served, "eve", text) for text in ("Mine", "Theirs")]

    deleted = [
        await served.ask(DELETE, {"post": "p", "id": comment["commentId"]}, user=user)
        for comment, user in ((first, "eve"), (first, "eve"), (second, "ada"), (second, "eve"))
    ]

    assert [answer.errors for answer in deleted] == [None] * 4
    assert [answer.data["deleteComment"] for answer in deleted] == [
        {"commentId": first["commentId"], "text": "Mine"},
        None,
        {"commentId": second["commentId"], "text": "Theirs"},
        None,
    ]
    once, again = ["GetItem feed", "UpdateItem feed"], ["GetItem feed"]
    assert [answer.made for answer in deleted] == [once, again, once, again]
    assert await comments_of(served) == NOTHING


async def test_a_late_retry_does_not_restore_a_deleted_comment(served: Served) -> None:
    await cast(served, "PUBLIC")
    comment = await add_comment(served, "eve", "Mine", id=an_id(1))
    await served.ask(DELETE, {"post": "p", "id": comment["commentId"]}, user="eve")

    retried = await ask_to_add(served, "eve", "Mine", id=an_id(1))
    others = await ask_to_add(served, "fan", "Another", id=an_id(1))
    node = await served.ask(NODE, {"id": comment["id"]})

    assert retried.codes == others.codes == ["CONFLICT"]
    assert node.data == {"node": None}
    assert await comments_of(served) == NOTHING
    (tombstone,) = [item for item in await items_of_post(served) if item["SK"] == f"COMMENT#{an_id(1)}"]
    assert tombstone == {
        "PK": "POST#p",
        "SK": f"COMMENT#{an_id(1)}",
        "user_id": "eve",
        "created_at": iso(NOON),
        "post_author": "ada",
        "post_visibility": "public",
        "deleted_at": iso(NOON),
        "expiresAt": to_seconds(NOON + timedelta(days=2)),
    }


async def test_tombstones_of_comments_leave_pages_full(served: Served) -> None:
    await cast(served, "PUBLIC")
    ids = [an_id(number, seconds=number) for number in range(9)]
    for id in ids:
        await add_comment(served, "eve", id=id)
    for id in ids[::2]:
        await served.ask(DELETE, {"post": "p", "id": id}, user="eve")

    await assert_paged(served, 'comments(postId: "p", %s)', "commentId", ids[1::2])


async def items_of_post(served: Served) -> list[Any]:
    values = {"partition": "POST#p", "prefix": "COMMENT#"}
    return [item async for item in served.store().query_all(replace(keys.COMMENTS, filter=()), values)]


async def test_a_comment_of_another_user_is_not_deleted(served: Served) -> None:
    await cast(served, "PUBLIC")
    comment = await add_comment(served, "eve", "Stays")

    for user, role in (("fan", Role.USER), ("root", Role.ADMIN), ("job", Role.SYSTEM)):
        answer = await served.ask(DELETE, {"post": "p", "id": comment["commentId"]}, user=user, role=role)

        assert answer.codes == ["FORBIDDEN"]
        assert answer.made == ["GetItem feed", "GetItem feed"]
        assert "Stays" not in str(answer.errors)
    assert len((await comments_of(served))["nodes"]) == 1


@pytest.mark.parametrize("visibility", ["FOLLOWERS", "PRIVATE"])
async def test_a_caller_who_may_not_see_a_post_learns_nothing_of_its_comments(served: Served, visibility: str) -> None:
    await cast(served, visibility)
    comment = await add_comment(served, "ada", "Hidden")

    for viewer, (user, role) in VIEWERS.items():
        if user not in (None, "ada"):
            answers = [
                await served.ask(DELETE, {"post": "p", "id": id}, user=user, role=role)
                for id in (comment["commentId"], an_id(7))
            ]
            codes = ["FORBIDDEN"] if viewer in SEEN_BY[visibility] else []
            assert [answer.codes for answer in answers] == [codes, []], viewer
            assert [answer.data for answer in answers] == [{"deleteComment": None}] * 2
    assert len((await comments_of(served, user="ada"))["nodes"]) == 1


async def test_comments_on_a_deleted_post_are_not_found(served: Served) -> None:
    await cast(served, "PUBLIC")
    comment = await add_comment(served, "eve")
    await mutate(served, DELETE_POST, "ada", id="p")

    assert await mutate(served, DELETE, "fan", post="p", id=comment["commentId"]) is None


async def test_only_comments_can_be_deleted_as_comments(served: Served) -> None:
    await cast(served, "PUBLIC")

    for id in ("META", an_id(), "COMMENT#x", "#META"):
        assert await mutate(served, DELETE, "ada", post="p", id=id) is None

    assert (await served.ask('{ post(id: "p") { postId } }')).data == {"post": {"postId": "p"}}
