"""Creating and deleting posts through the API, on the real engine (FEED-W1, FEED-W6)."""

import asyncio
from datetime import timedelta
from typing import Any

from datastore.model.identity import Role
from datastore.model.ids import uuid7_moment
from datastore.model.timestamps import iso, to_seconds
from resolvers.shared.global_ids import global_id
from tests.support.posts import (
    BY_AUTHOR,
    CREATE,
    FIELDS,
    create_feed_post,
    create_users,
    put_follow_items,
    stored_post_items,
)
from tests.support.served import NOON, Answer, Served

DELETE = f"mutation ($id: ID!) {{ deletePost(id: $id) {{ {FIELDS} }} }}"

READ = f"query ($id: ID!) {{ post(id: $id) {{ {FIELDS} }} }}"


def post_ids(answer: Answer, field: str) -> list[str]:
    return [node["postId"] for node in answer.data[field]["nodes"]]


# FEED-W1


async def test_a_post_is_written_with_its_tags_in_one_transaction(served: Served) -> None:
    await create_users(served, "ada")
    text = "Hi @grace and @linus: #Cats, #dogs!"

    answer = await served.ask(
        CREATE, {"input": {"text": f" {text} ", "postId": "p1", "mediaRef": "https://example.org/c.jpg"}}, user="ada"
    )

    assert answer.data["createPost"] == {
        "id": global_id("Post", "p1"),
        "postId": "p1",
        "authorId": "ada",
        "createdAt": "2026-06-25T12:00:00.000Z",
        "visibility": "PUBLIC",
        "text": text,
        "mediaRef": "https://example.org/c.jpg",
        "tags": ["cats", "dogs"],
        "mentionedUserIds": ["grace", "linus"],
        "likeCount": 0,
        "commentCount": 0,
    }
    assert answer.made == ["GetItem feed", "TransactWriteItems feed"]
    shown = {
        "PK": "POST#p1",
        "author_id": "ada",
        "visibility": "public",
        "text": text,
        "media_ref": "https://example.org/c.jpg",
        "tags": ["cats", "dogs"],
    }
    place = "2026-06-25T12:00:00.000Z#POST#p1"
    assert await stored_post_items(served, "p1", "META", "TAG#cats", "TAG#dogs") == [
        {
            **shown,
            "SK": "META",
            "marked_until": "2026-07-13T12:00:00.000Z",
            "GSI1PK": "USER#ada",
            "GSI1SK": place,
            "created_at": "2026-06-25T12:00:00.000Z",
            "mentions": ["grace", "linus"],
            "likes": 0,
            "comments": 0,
        },
        {**shown, "SK": "TAG#cats", "GSI2PK": "TAG#cats", "GSI2SK": place},
        {**shown, "SK": "TAG#dogs", "GSI2PK": "TAG#dogs", "GSI2SK": place},
    ]
    assert (await served.ask(READ, {"id": "p1"})).data["post"] == answer.data["createPost"]


async def test_the_tags_of_a_private_post_are_not_indexed(served: Served) -> None:
    await create_users(served, "ada")

    post = await create_feed_post(served, postId="p1", visibility="PRIVATE")

    assert await stored_post_items(served, "p1", "TAG#cats") == [
        {
            "PK": "POST#p1",
            "SK": "TAG#cats",
            "author_id": "ada",
            "visibility": "private",
            "text": "Hello #cats",
            "tags": ["cats"],
        }
    ]
    assert (await served.ask(DELETE, {"id": "p1"}, user="ada")).data == {"deletePost": post}
    assert await stored_post_items(served, "p1", "TAG#cats") == [None]


async def test_a_post_without_an_id_gets_one_that_sorts_by_time(served: Served) -> None:
    await create_users(served, "ada")

    first, second = await create_feed_post(served), await create_feed_post(served)

    assert first["postId"] != second["postId"]
    assert uuid7_moment(first["postId"]) == NOON


async def test_a_repeated_creation_returns_the_stored_post(served: Served) -> None:
    await create_users(served, "ada")
    first = await create_feed_post(served, postId="p1")
    served.clock.forward(minutes=1)

    again = await asyncio.gather(
        *[create_feed_post(served, postId="p1", text=f"Try {number} #dogs") for number in range(5)]
    )

    assert again == [first] * 5
    assert await stored_post_items(served, "p1", "TAG#dogs") == [None]


async def test_ten_concurrent_creations_of_one_post_return_the_same_post(served: Served) -> None:
    await create_users(served, "ada")

    written = await asyncio.gather(
        *[create_feed_post(served, postId="p1", text=f"Try {number}") for number in range(10)]
    )

    assert written == written[:1] * 10
    assert post_ids(await served.ask(BY_AUTHOR), "postsByAuthor") == ["p1"]


async def test_the_id_of_another_author_is_taken_and_reveals_nothing_of_the_post(served: Served) -> None:
    users = ["ada", "grace", "linus", "bob"]
    await create_users(served, *users)
    asked = [
        served.ask(CREATE, {"input": {"text": f"secret of {user}", "postId": "p1", "visibility": "PRIVATE"}}, user=user)
        for user in users
    ]

    answers = await asyncio.gather(*asked)

    assert sorted(code for answer in answers for code in answer.codes) == ["CONFLICT"] * 3
    refusals = str([answer.errors for answer in answers])
    assert "secret" not in refusals
    assert not any(user in refusals for user in users)


async def test_an_author_may_have_any_id(served: Served) -> None:
    odd = "auth0|a#b%c d"
    await create_users(served, odd)
    await create_feed_post(served, odd)

    answer = await served.ask(
        "query ($id: ID!) { postsByAuthor(authorId: $id) { nodes { authorId author { userId } } } }", {"id": odd}
    )

    assert answer.data == {"postsByAuthor": {"nodes": [{"authorId": odd, "author": {"userId": odd}}]}}


async def test_a_post_requires_a_profile(served: Served) -> None:
    answer = await served.ask(CREATE, {"input": {"text": "Hi", "postId": "p1"}}, user="ada")

    assert answer.codes == ["NOT_FOUND"]
    assert "createUser" in str(answer.errors)
    assert [(call.operation, call.request.get("ConsistentRead")) for call in answer.calls] == [("GetItem", True)]
    assert await stored_post_items(served, "p1", "META") == [None]


async def test_bad_input_is_reported_with_its_limit(served: Served) -> None:
    post_id = "`postId` must have between 1 and 64 letters, digits, `-`, `_` and `.`."
    running = "`mediaRef` must not begin with javascript:, data:, vbscript:."
    refusals: list[tuple[dict[str, Any], str]] = [
        *[
            ({"text": text}, "`text` must have between 1 and 2000 characters.")
            for text in (" ", "\u200b", "\u2060 \u200d", "\x00\x1b")
        ],
        *[
            ({"text": "x", "mediaRef": reference}, running)
            for reference in ("javascript:alert(1)", " JavaScript:x", "java\u200dscript:x", "DATA:,x", "vbscript:x")
        ],
        ({"text": "x" * 2001}, "`text` must have between 1 and 2000 characters."),
        ({"text": "x", "postId": "a#b"}, post_id),
        ({"text": "x", "postId": "a" * 65}, post_id),
        ({"text": "x", "postId": "a\n"}, post_id),
        ({"text": "x", "mediaRef": "x" * 501}, "`mediaRef` must have between 1 and 500 characters."),
        ({"text": " ".join(f"#t{n}" for n in range(11))}, "`text` may hold at most 10 tags, not 11."),
        ({"text": " ".join(f"@u{n}" for n in range(21))}, "`text` may mention at most 20 users, not 21."),
    ]
    for given, message in refusals:
        answer = await served.ask(CREATE, {"input": given}, user="ada")

        assert answer.codes == ["BAD_USER_INPUT"]
        assert [error["message"] for error in answer.errors or ()] == [message]
        assert answer.calls == []


async def test_the_longest_post_with_the_most_tags_and_mentions_is_stored(served: Served) -> None:
    await create_users(served, "ada")
    names = " ".join([*(f"#{n}{'東' * 49}" for n in range(10)), *(f"@u{n}" for n in range(20))])

    post = await create_feed_post(served, text=f"{names} ".ljust(2000, "x"))

    assert (len(post["text"]), len(post["tags"]), len(post["mentionedUserIds"])) == (2000, 10, 20)


# FEED-W6


async def test_a_deleted_post_appears_in_no_list_and_leaves_a_tombstone(served: Served) -> None:
    await create_users(served, "ada")
    post = await create_feed_post(served, postId="p1", text="#cats #dogs @grace", mediaRef="x")
    served.clock.forward(minutes=1)

    answer = await served.ask(DELETE, {"id": "p1"}, user="ada")

    assert answer.data == {"deletePost": post}
    assert answer.made == ["GetItem feed", "TransactWriteItems feed"]
    moment = NOON + timedelta(minutes=1)
    assert await stored_post_items(served, "p1", "META", "TAG#cats", "TAG#dogs") == [
        {
            "PK": "POST#p1",
            "SK": "META",
            "author_id": "ada",
            "created_at": iso(NOON),
            "visibility": "public",
            "deleted_at": iso(moment),
            "expiresAt": to_seconds(moment + timedelta(days=30)),
        },
        None,
        None,
    ]
    left = await served.ask(
        """query ($id: ID!) {
          post(id: "p1") { text }
          node(id: $id) { id }
          postsByAuthor(authorId: "ada") { nodes { text } }
          postsByTag(tag: "cats") { nodes { text } }
        }""",
        {"id": post["id"]},
        user="ada",
    )
    assert left.errors is None
    assert left.data == {"post": None, "node": None, "postsByAuthor": {"nodes": []}, "postsByTag": {"nodes": []}}


async def test_a_post_is_deleted_once_and_a_repeat_changes_nothing(served: Served) -> None:
    await create_users(served, "ada")
    post = await create_feed_post(served, postId="p1")

    at_once = await asyncio.gather(*[served.ask(DELETE, {"id": "p1"}, user="ada") for _ in range(6)])
    (tombstone,) = await stored_post_items(served, "p1", "META")
    served.clock.forward(minutes=1)
    again = await served.ask(DELETE, {"id": "p1"}, user="ada")

    received = [answer.data["deletePost"] for answer in at_once]
    assert sorted(received, key=bool) == [None] * 5 + [post]
    assert (again.errors, again.data, again.made) == (None, {"deletePost": None}, ["GetItem feed"])
    assert await stored_post_items(served, "p1", "META") == [tombstone]


async def test_the_id_of_a_deleted_post_is_taken(served: Served) -> None:
    await create_users(served, "ada", "grace")
    await create_feed_post(served, postId="p1")
    await served.ask(DELETE, {"id": "p1"}, user="ada")

    answers = [
        await served.ask(CREATE, {"input": {"text": "x", "postId": "p1"}}, user=user) for user in ("ada", "grace")
    ]

    assert [answer.codes for answer in answers] == [["CONFLICT"], ["CONFLICT"]]


async def test_a_user_cannot_delete_the_post_of_another(served: Served) -> None:
    await create_users(served, "ada")
    await put_follow_items(served, "fan", "ada")
    for visibility in ("PUBLIC", "FOLLOWERS", "PRIVATE"):
        await create_feed_post(served, postId=visibility, visibility=visibility)
    await create_feed_post(served, postId="gone")
    await served.ask(DELETE, {"id": "gone"}, user="ada")

    async def refusals(user: str, role: Role = Role.USER) -> list[str]:
        posts = ("PUBLIC", "FOLLOWERS", "PRIVATE", "gone", "never")
        return [code for id in posts for code in (await served.ask(DELETE, {"id": id}, user=user, role=role)).codes]

    assert await refusals("grace") == ["FORBIDDEN", *["NOT_FOUND"] * 4]
    assert await refusals("fan") == ["FORBIDDEN"] * 2 + ["NOT_FOUND"] * 3
    asked = await served.ask(DELETE, {"id": "FOLLOWERS"}, user="fan")
    assert [(call.operation, call.request.get("ConsistentRead")) for call in asked.calls] == [("GetItem", True)] * 2
    assert await refusals("root", Role.ADMIN) == ["FORBIDDEN"] * 3 + ["NOT_FOUND"] * 2
    assert len(post_ids(await served.ask(BY_AUTHOR, user="ada"), "postsByAuthor")) == 3


async def test_writing_requires_a_signed_in_user(served: Served) -> None:
    answers = [await served.ask(CREATE, {"input": {"text": "x"}}), await served.ask(DELETE, {"id": "p1"})]

    assert [answer.codes for answer in answers] == [["UNAUTHENTICATED"]] * 2
    assert [answer.calls for answer in answers] == [[], []]


async def test_the_authors_of_many_posts_are_read_in_one_batch(served: Served) -> None:
    authors = [f"u{number}" for number in range(8)]
    await create_users(served, *authors)
    for author in authors:
        await create_feed_post(served, author, text="#cats for @grace")
    many = "\n".join(
        f'{author}: user(id: "{author}") {{ posts {{ nodes {{ mentionedUserIds }} }} }}' for author in authors
    )

    answer = await served.ask(f"{{ {many} }}", user="fan")

    assert answer.data == {author: {"posts": {"nodes": [{"mentionedUserIds": ["grace"]}]}} for author in authors}
    # The users, and the posts.
    assert answer.made == ["BatchGetItem feed"] * 2 + ["Query feed.GSI1"] * 8
