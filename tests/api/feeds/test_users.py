"""Users of the feed through the API, on the real engine (FEED-001, FEED-W6)."""

import asyncio
import json
from typing import Any

import pytest

from datastore.keyspace.feeds import users as keys
from datastore.keyspace.feeds.table import FEED
from datastore.model.identity import Role
from datastore.model.timestamps import iso
from resolvers.shared.global_ids import global_id
from tests.support.served import NOON, Served

FIELDS = "id userId name bio avatarRef createdAt postCount followerCount followingCount"
CREATE = f"mutation ($input: CreateUserInput!) {{ createUser(input: $input) {{ {FIELDS} }} }}"
UPDATE = f"mutation ($input: UpdateUserInput!) {{ updateUser(input: $input) {{ {FIELDS} }} }}"
READ = f"query ($id: ID!) {{ user(id: $id) {{ {FIELDS} }} }}"


async def create_feed_user(served: Served, user: str, **given: Any) -> dict[str, Any]:
    answer = await served.ask(CREATE, {"input": {"name": user.title(), **given}}, user=user)
    assert answer.errors is None, answer.errors
    created: dict[str, Any] = answer.data["createUser"]
    return created


async def test_a_new_user_is_visible_to_every_caller(served: Served) -> None:
    created = await create_feed_user(served, "ada", name=" Ada ", bio="I count.", avatarRef="s3://pictures/ada.png")

    answer = await served.ask(READ, {"id": "ada"})

    assert created == {
        "id": global_id("User", "ada"),
        "userId": "ada",
        "name": "Ada",
        "bio": "I count.",
        "avatarRef": "s3://pictures/ada.png",
        "createdAt": "2026-06-25T12:00:00.000Z",
        "postCount": 0,
        "followerCount": 0,
        "followingCount": 0,
    }
    assert answer.data == {"user": created}
    assert answer.made == ["GetItem feed"]
    assert await served.store().get(keys.USER, keys.user("ada")) == {
        "PK": "USER#ada",
        "SK": "META",
        "name": "Ada",
        "bio": "I count.",
        "avatar_ref": "s3://pictures/ada.png",
        "created_at": "2026-06-25T12:00:00.000Z",
    }


async def test_a_repeated_creation_returns_the_stored_user(served: Served) -> None:
    first = await create_feed_user(served, "ada")
    served.clock.forward(hours=1)

    again = await asyncio.gather(*[create_feed_user(served, "ada", name=f"Other {number}") for number in range(5)])

    assert again == [first] * 5


async def test_concurrent_creations_of_one_user_return_the_same_user(served: Served) -> None:
    entered = await asyncio.gather(*[create_feed_user(served, "ada", name=f"Ada {number}") for number in range(5)])

    assert len({user["name"] for user in entered}) == 1


async def test_an_update_changes_the_given_fields_only(served: Served) -> None:
    created = await create_feed_user(served, "ada", bio="I count.", avatarRef="ada.png")

    renamed = await served.ask(UPDATE, {"input": {"name": " Countess "}}, user="ada")
    stripped = await served.ask(UPDATE, {"input": {"bio": None, "avatarRef": None}}, user="ada")
    blank = await served.ask(UPDATE, {"input": {"bio": "  "}}, user="ada")

    assert renamed.data["updateUser"] == created | {"name": "Countess"}
    assert renamed.made == ["UpdateItem feed"]
    assert stripped.data["updateUser"] == created | {"name": "Countess", "bio": None, "avatarRef": None}
    assert blank.data == stripped.data


async def test_updates_keep_the_counts(served: Served) -> None:
    key = keys.user("ada")
    item = {"PK": key.partition, "SK": key.sort, "name": "Ada", "created_at": iso(NOON)}
    await served.store().write_all(FEED, puts=[item | {"posts": 3, "followers": 2, "following": 1}])

    answer = await served.ask(UPDATE, {"input": {"name": "Countess"}}, user="ada")

    changed = answer.data["updateUser"]
    assert [changed[name] for name in ("name", "postCount", "followerCount", "followingCount")] == ["Countess", 3, 2, 1]


async def test_a_missing_user_cannot_be_changed(served: Served) -> None:
    answer = await served.ask(UPDATE, {"input": {"name": "Ada"}}, user="ada")

    assert answer.codes == ["NOT_FOUND"]
    assert "createUser" in str(answer.errors)
    assert (await served.ask(READ, {"id": "ada"})).data == {"user": None}


async def test_bad_input_is_reported_with_its_limit(served: Served) -> None:
    refusals: list[tuple[str, dict[str, Any], str]] = [
        (CREATE, {"name": " "}, "`name` must have between 1 and 100 characters."),
        (CREATE, {"name": "\u200b"}, "`name` must have between 1 and 100 characters."),
        (CREATE, {"name": "x" * 101}, "`name` must have between 1 and 100 characters."),
        (CREATE, {"name": "x", "bio": "x" * 501}, "`bio` must have between 1 and 500 characters."),
        (CREATE, {"name": "x", "avatarRef": ""}, "`avatarRef` must have between 1 and 500 characters."),
        (UPDATE, {}, "`input` must name at least one field to change."),
        (UPDATE, {"name": None}, "`name` must not be null."),
        (UPDATE, {"avatarRef": " JAVASCRIPT:x"}, "`avatarRef` must not begin with javascript:, data:, vbscript:."),
        (UPDATE, {"avatarRef": "x" * 501}, "`avatarRef` must have between 1 and 500 characters."),
    ]
    for mutation, given, message in refusals:
        answer = await served.ask(mutation, {"input": given}, user="ada")

        assert answer.codes == ["BAD_USER_INPUT"]
        assert [error["message"] for error in answer.errors or ()] == [message]
        assert answer.calls == []


async def test_an_empty_bio_is_null(served: Served) -> None:
    assert (await create_feed_user(served, "ada", bio=" "))["bio"] is None
    assert (await create_feed_user(served, "bob", bio="\n"))["bio"] is None


@pytest.mark.parametrize("user", ["u" * 256, "€" * 85, "🐍" * 64, "#" * 85, " spaced out ", "auth0|a#b%c d"], ids=ascii)
async def test_every_signed_in_caller_can_create_a_feed_profile(served: Served, user: str) -> None:
    await create_feed_user(served, "ada")
    created = await create_feed_user(served, user, name="Odd")
    await served.ask("mutation ($id: ID!) { follow(userId: $id) { userId } }", {"id": "ada"}, user=user)

    followed = await served.ask(
        "mutation ($id: ID!) { follow(userId: $id) { userId user { name } } }", {"id": user}, user="ada"
    )
    answer = await served.ask(
        """query ($id: ID!) {
          user(id: $id) { userId followers { nodes { userId } } following { nodes { userId } } }
          me { user { name } }
          homeFeed(userId: $id) { nodes { postId } }
          notifications(userId: $id) { nodes { kind } }
          postsByAuthor(authorId: $id) { nodes { postId } }
          followers(userId: $id) { nodes { userId } }
        }""",
        {"id": user},
        user=user,
    )
    unfollowed = await served.ask("mutation ($id: ID!) { unfollow(userId: $id) { userId } }", {"id": user}, user="ada")

    assert created["userId"] == user
    assert followed.data == {"follow": {"userId": user, "user": {"name": "Odd"}}}
    assert answer.errors is None
    ada = {"nodes": [{"userId": "ada"}]}
    assert answer.data == {
        "user": {"userId": user, "followers": ada, "following": ada},
        "me": {"user": {"name": "Odd"}},
        "homeFeed": {"nodes": []},
        "notifications": {"nodes": []},
        "postsByAuthor": {"nodes": []},
        "followers": ada,
    }
    assert unfollowed.data == {"unfollow": {"userId": user}}


@pytest.mark.parametrize("field", ["user(id: %s) { name }", "followers(userId: %s) { nodes { userId } }"])
async def test_an_impossible_user_id_is_refused(served: Served, field: str) -> None:
    for user in ("", " ", "x" * 257, "€" * 86, "🐍" * 65, "#" * 86):
        answer = await served.ask(f"{{ {field % json.dumps(user)} }}")

        assert answer.codes == ["BAD_USER_INPUT"]
        assert "Id` must have between 1 and 256 bytes of UTF-8." in str(answer.errors).replace("`id`", "`Id`")
        assert answer.calls == []


async def test_a_user_is_a_node_also_through_me(served: Served) -> None:
    created = await create_feed_user(served, "ada")
    query = """query ($ids: [ID!]!) {
      me { userId user { name } }
      nodes(ids: $ids) { id ... on User { name } }
    }"""
    ids = [created["id"], global_id("User", "nobody")]

    answer = await served.ask(query, {"ids": ids}, user="ada")

    assert answer.data == {
        "me": {"userId": "ada", "user": {"name": "Ada"}},
        "nodes": [{"id": created["id"], "name": "Ada"}, None],
    }
    assert answer.made == ["BatchGetItem feed"]
    assert (await served.ask("{ me { user { name } } }", user="grace")).data == {"me": {"user": None}}


async def test_a_bad_id_is_reported_at_its_path(served: Served) -> None:
    created = await create_feed_user(served, "ada")

    answer = await served.ask(
        'query ($ids: [ID!]!) { nodes(ids: $ids) { id } node(id: "x") { id } }', {"ids": [created["id"], "x", "?"]}
    )

    assert answer.data == {"nodes": [{"id": created["id"]}, None, None], "node": None}
    errors = [(error["message"], error["extensions"]["field"]) for error in answer.errors or ()]
    assert sorted(errors) == [(f"`{at}` is not the global id of an object.", at) for at in ("id", "ids[1]", "ids[2]")]


async def test_an_operator_role_has_a_separate_user(served: Served) -> None:
    answer = await served.ask(CREATE, {"input": {"name": "Root"}}, user="root", role=Role.ADMIN)

    assert answer.data["createUser"]["userId"] == "root"
