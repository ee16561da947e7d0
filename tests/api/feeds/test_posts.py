"""Posts through the API, on the real engine (FEED-002, FEED-004, FEED-007, FEED-W1, FEED-W6)."""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from datastore.dynamodb.codec import Item
from datastore.keyspace.feeds import follows as follow_keys
from datastore.keyspace.feeds import posts as keys
from datastore.keyspace.feeds.table import FEED
from datastore.model.composite_keys import Key
from datastore.model.identity import Role
from datastore.model.ids import uuid7_moment
from datastore.model.timestamps import iso, to_seconds
from resolvers.shared.node_ids import global_id
from tests.support.served import NOON, Answer, Served

FIELDS = "id postId authorId createdAt visibility text mediaRef tags mentions likeCount commentCount"
CREATE = f"mutation ($input: CreatePostInput!) {{ createPost(input: $input) {{ {FIELDS} }} }}"
DELETE = f"mutation ($id: ID!) {{ deletePost(postId: $id) {{ {FIELDS} }} }}"
READ = f"query ($id: ID!) {{ post(id: $id) {{ {FIELDS} }} }}"
SHOWN = "postId authorId createdAt visibility text mediaRef tags"
BY_AUTHOR = f'{{ postsByAuthor(authorId: "ada") {{ nodes {{ {SHOWN} }} }} }}'
BY_TAG = f'{{ postsByTag(tag: "cats") {{ nodes {{ {SHOWN} }} }} }}'


async def enter(served: Served, *users: str) -> None:
    for user in users:
        answer = await served.ask('mutation { createUser(input: {name: "X"}) { name } }', user=user)
        assert answer.errors is None


async def follow(served: Served, follower: str, *followees: str) -> None:
    items = []
    for followee in followees:
        key = follow_keys.following(follower, followee)
        items.append({"PK": key.partition, "SK": key.sort, "since": iso(NOON)})
    await served.store().write_all(FEED, puts=items)


async def write(served: Served, user: str = "ada", **given: Any) -> dict[str, Any]:
    answer = await served.ask(CREATE, {"input": {"text": "Hello #cats", **given}}, user=user)
    assert answer.errors is None, answer.errors
    created: dict[str, Any] = answer.data["createPost"]
    return created


async def stored(served: Served, post_id: str, *sorts: str) -> list[Item | None]:
    return [await served.store().get(keys.POST, Key(f"POST#{post_id}", sort)) for sort in sorts]


def ids(answer: Answer, field: str) -> list[str]:
    return [node["postId"] for node in answer.data[field]["nodes"]]


# FEED-W1


async def test_a_post_is_written_with_its_tags_in_one_transaction(served: Served) -> None:
    await enter(served, "ada")
    text = "Hi @grace and @linus: #Cats, #dogs!"

    answer = await served.ask(
        CREATE, {"input": {"text": f" {text} ", "postId": "p1", "mediaRef": "https://example.org/c.jpg"}}, user="ada"
    )

    assert answer.data["createPost"] == {
        "id": global_id("Post", "p1"),
        "postId": "p1",
        "authorId": "ada",
        "createdAt": "2026-06-25T12:00:00+00:00",
        "visibility": "PUBLIC",
        "text": text,
        "mediaRef": "https://example.org/c.jpg",
        "tags": ["cats", "dogs"],
        "mentions": ["grace", "linus"],
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
    assert await stored(served, "p1", "META", "TAG#cats", "TAG#dogs") == [
        {
            **shown,
            "SK": "META",
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


async def test_the_tags_of_a_private_post_are_in_no_index(served: Served) -> None:
    await enter(served, "ada")

    post = await write(served, postId="p1", visibility="PRIVATE")

    assert await stored(served, "p1", "TAG#cats") == [
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
    assert await stored(served, "p1", "TAG#cats") == [None]


async def test_a_post_without_an_id_is_given_one_that_sorts_by_time(served: Served) -> None:
    await enter(served, "ada")

    first, second = await write(served), await write(served)

    assert first["postId"] != second["postId"]
    assert uuid7_moment(first["postId"]) == NOON


async def test_a_post_asked_for_again_is_answered_as_it_stands(served: Served) -> None:
    await enter(served, "ada")
    first = await write(served, postId="p1")
    served.clock.forward(minutes=1)

    again = await asyncio.gather(*[write(served, postId="p1", text=f"Try {number} #dogs") for number in range(5)])

    assert again == [first] * 5
    assert await stored(served, "p1", "TAG#dogs") == [None]


async def test_of_ten_who_write_one_post_at_once_all_are_told_of_the_same(served: Served) -> None:
    await enter(served, "ada")

    written = await asyncio.gather(*[write(served, postId="p1", text=f"Try {number}") for number in range(10)])

    assert written == written[:1] * 10
    assert ids(await served.ask(BY_AUTHOR), "postsByAuthor") == ["p1"]


async def test_an_id_is_one_authors_and_another_learns_nothing_of_the_post(served: Served) -> None:
    users = ["ada", "grace", "linus", "bob"]
    await enter(served, *users)
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
    await enter(served, odd)
    await write(served, odd)

    answer = await served.ask(
        "query ($id: ID!) { postsByAuthor(authorId: $id) { nodes { authorId author { userId } } } }", {"id": odd}
    )

    assert answer.data == {"postsByAuthor": {"nodes": [{"authorId": odd, "author": {"userId": odd}}]}}


async def test_who_has_not_entered_the_feed_cannot_post(served: Served) -> None:
    answer = await served.ask(CREATE, {"input": {"text": "Hi", "postId": "p1"}}, user="ada")

    assert answer.codes == ["NOT_FOUND"]
    assert "createUser" in str(answer.errors)
    assert [(call.operation, call.request.get("ConsistentRead")) for call in answer.calls] == [("GetItem", True)]
    assert await stored(served, "p1", "META") == [None]


async def test_bad_input_is_named_with_its_limit(served: Served) -> None:
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


async def test_the_longest_post_with_the_most_tags_and_mentions_is_written(served: Served) -> None:
    await enter(served, "ada")
    names = " ".join([*(f"#{n}{'東' * 49}" for n in range(10)), *(f"@u{n}" for n in range(20))])

    post = await write(served, text=f"{names} ".ljust(2000, "x"))

    assert (len(post["text"]), len(post["tags"]), len(post["mentions"])) == (2000, 10, 20)


# Who sees what


@dataclass(frozen=True)
class Written:
    post_id: str
    author: str
    visibility: str


def sees(viewer: str | None, post: Written) -> bool:
    """The fan follows ada and nobody else."""
    if post.visibility == "PUBLIC" or viewer in ("root", post.author):
        return True
    return post.visibility == "FOLLOWERS" and viewer == "fan" and post.author == "ada"


async def a_feed_of(served: Served, authors: Sequence[str], number: int) -> list[Written]:
    """Posts with the tag `cats`, many of them hidden from some, newest first; some are of the same moment."""
    await enter(served, *authors)
    await follow(served, "fan", "ada")
    chance = random.Random(4)
    written = []
    for at in range(number):
        post = Written(f"p{at:02}", chance.choice(authors), chance.choice(["PUBLIC", "FOLLOWERS", "PRIVATE"]))
        await write(served, post.author, postId=post.post_id, visibility=post.visibility)
        served.clock.forward(seconds=chance.choice([0, 1]))
        written.append(post)
    return written[::-1]


async def walked(ask: Callable[[str], Any], field: str, backward: bool) -> list[list[str]]:
    """The ids on the pages of two from one end of a list to the other, each page and the pages in the list's order."""
    size, place, cursor_name, more = (
        ("last", "before", "startCursor", "hasPreviousPage")
        if backward
        else ("first", "after", "endCursor", "hasNextPage")
    )
    pages: list[list[str]] = []
    paging = f"{size}: 2"
    while True:
        connection = (await ask(paging)).data[field]
        pages.append([node["postId"] for node in connection["nodes"]])
        info = connection["pageInfo"]
        if not info[more]:
            return pages[::-1] if backward else pages
        paging = f'{size}: 2, {place}: "{info[cursor_name]}"'


VIEWERS = [(None, Role.USER), ("grace", Role.USER), ("fan", Role.USER), ("ada", Role.USER), ("root", Role.ADMIN)]


@pytest.mark.parametrize(
    ("field", "argument", "authors"),
    [("postsByAuthor", 'authorId: "ada"', ["ada"]), ("postsByTag", 'tag: "#Cats"', ["ada", "bob"])],
)
async def test_pages_hold_what_the_viewer_may_see_and_are_full_both_ways(
    served: Served, field: str, argument: str, authors: list[str]
) -> None:
    posts = await a_feed_of(served, authors, 20)
    info = "pageInfo { hasNextPage hasPreviousPage startCursor endCursor }"

    for viewer, role in VIEWERS:

        async def ask(paging: str, viewer: str | None = viewer, role: Role = role) -> Answer:
            query = f"{{ {field}({argument}, {paging}) {{ nodes {{ postId }} {info} }} }}"
            return await served.ask(query, user=viewer, role=role)

        found = [post for post in posts if field == "postsByAuthor" or post.visibility != "PRIVATE"]
        expected = [post.post_id for post in found if sees(viewer, post)]
        forward, backward = await walked(ask, field, False), await walked(ask, field, True)
        assert [id for page in forward for id in page] == expected, viewer
        assert [id for page in backward for id in page] == expected, viewer
        assert {len(page) for page in forward[:-1] + backward[1:]} <= {2}
    assert {sees(None, post) for post in posts} == {True, False}


@pytest.mark.parametrize(
    ("visibility", "blind", "seeing"),
    [
        ("PRIVATE", [None, "grace", "fan"], ["ada"]),
        ("FOLLOWERS", [None, "grace"], ["fan", "ada"]),
    ],
)
async def test_a_hidden_post_is_nowhere_for_those_who_may_not_see_it(
    served: Served, visibility: str, blind: list[str | None], seeing: list[str]
) -> None:
    await enter(served, "ada")
    await follow(served, "fan", "ada")
    post = await write(served, visibility=visibility, postId="p1")
    everywhere = """query ($id: ID!) {
      post(id: "p1") { text }
      node(id: $id) { id }
      nodes(ids: [$id]) { id }
      postsByAuthor(authorId: "ada") { nodes { text } }
      postsByTag(tag: "cats") { nodes { text } }
      user(id: "ada") { posts { nodes { text } } }
    }"""

    for viewer in blind:
        answer = await served.ask(everywhere, {"id": post["id"]}, user=viewer)
        assert answer.errors is None
        assert answer.data == {
            "post": None,
            "node": None,
            "nodes": [None],
            "postsByAuthor": {"nodes": []},
            "postsByTag": {"nodes": []},
            "user": {"posts": {"nodes": []}},
        }, viewer
    shown, node = {"text": post["text"]}, {"id": post["id"]}
    for viewer, role in [*((viewer, Role.USER) for viewer in seeing), ("root", Role.ADMIN), ("job", Role.SYSTEM)]:
        answer = await served.ask(everywhere, {"id": post["id"]}, user=viewer, role=role)
        assert answer.data == {
            "post": shown,
            "node": node,
            "nodes": [node],
            "postsByAuthor": {"nodes": [shown]},
            "postsByTag": {"nodes": [] if visibility == "PRIVATE" else [shown]},
            "user": {"posts": {"nodes": [shown]}},
        }, viewer


# What is read


async def test_an_authors_posts_are_one_query_and_for_posts_for_followers_the_follow(served: Served) -> None:
    await enter(served, "ada")
    post = await write(served)
    shown = {name: post[name] for name in [*SHOWN.split(), "likeCount", "commentCount"]}
    query = BY_AUTHOR.replace(SHOWN, f"{SHOWN} likeCount commentCount")

    for viewer, role in VIEWERS:
        answer = await served.ask(query, user=viewer, role=role)

        assert answer.data == {"postsByAuthor": {"nodes": [shown]}}
        assert answer.made == ["Query feed.GSI1"], viewer

    await write(served, visibility="PRIVATE")
    for viewer, role in VIEWERS:
        assert (await served.ask(query, user=viewer, role=role)).made == ["Query feed.GSI1"], viewer

    await write(served, visibility="FOLLOWERS")
    for viewer, role in VIEWERS:
        follow = ["GetItem feed"] if viewer in ("grace", "fan") else []
        assert (await served.ask(query, user=viewer, role=role)).made == [*follow, "Query feed.GSI1"], viewer


async def test_follows_of_several_authors_are_read_in_one_batch(served: Served) -> None:
    authors = ["ada", "bob", "eve"]
    await enter(served, *authors)
    await follow(served, "fan", "ada", "eve")
    for author in authors:
        await write(served, author, text=author, visibility="FOLLOWERS")
    lists = "\n".join(f'{author}: user(id: "{author}") {{ posts {{ nodes {{ text }} }} }}' for author in authors)

    answer = await served.ask(f"{{ {lists} }}", user="fan")

    shown = {author: {"posts": {"nodes": [{"text": author}]}} for author in authors}
    assert answer.data == shown | {"bob": {"posts": {"nodes": []}}}
    # The users, and whether they are followed.
    assert answer.made == ["BatchGetItem feed"] * 2 + ["Query feed.GSI1"] * 3


async def test_follows_are_asked_for_only_where_a_tag_has_posts_for_the_followers_of_others(served: Served) -> None:
    await enter(served, "ada", "bob", "fan")
    made = []

    async def list_again() -> None:
        answer = await served.ask(BY_TAG, user="fan")
        assert answer.errors is None
        made.append(answer.made)

    await write(served, "ada")
    await write(served, "ada", visibility="PRIVATE")
    await write(served, "fan", visibility="FOLLOWERS")
    await list_again()
    for author in ("ada", "ada", "bob"):
        await write(served, author, visibility="FOLLOWERS")
        await list_again()

    query = ["Query feed.GSI2"]
    assert made == [query, ["GetItem feed", *query], ["GetItem feed", *query], ["BatchGetItem feed", *query]]
    assert (await served.ask(BY_TAG)).made == query


async def test_what_an_index_does_not_hold_is_read_in_one_batch_with_the_authors(served: Served) -> None:
    await enter(served, "ada", "bob")
    for author in ("ada", "bob", "ada"):
        await write(served, author, text="#cats for @grace")

    counted = await served.ask(
        '{ postsByTag(tag: "cats") { nodes { likeCount commentCount mentions author { name } } } }'
    )
    mentioned = await served.ask('{ postsByAuthor(authorId: "ada") { nodes { likeCount mentions } } }')

    row = {"likeCount": 0, "commentCount": 0, "mentions": ["grace"], "author": {"name": "X"}}
    assert counted.data == {"postsByTag": {"nodes": [row] * 3}}
    assert counted.made == ["BatchGetItem feed", "Query feed.GSI2"]
    batch = next(call for call in counted.calls if call.operation == "BatchGetItem")
    ((_, entry),) = batch.request["RequestItems"].items()
    assert len(entry["Keys"]) == 5
    assert mentioned.made == ["BatchGetItem feed", "Query feed.GSI1"]


async def test_counts_are_those_of_the_post_also_where_a_tag_led_to_it(served: Served) -> None:
    await enter(served, "ada")
    await write(served, postId="p1")
    (item,) = await stored(served, "p1", "META")
    assert item is not None
    await served.store().write_all(FEED, puts=[item | {"likes": 3, "comments": 2}])
    count = "nodes { likeCount commentCount }"

    answer = await served.ask(
        f'{{ postsByTag(tag: "cats") {{ {count} }} postsByAuthor(authorId: "ada") {{ {count} }} }}'
    )

    assert answer.data == {
        "postsByTag": {"nodes": [{"likeCount": 3, "commentCount": 2}]},
        "postsByAuthor": {"nodes": [{"likeCount": 3, "commentCount": 2}]},
    }


async def test_a_tag_that_outlives_its_post_for_a_moment_counts_nothing(served: Served) -> None:
    await enter(served, "ada")
    await write(served, postId="p1", text="#cats for @grace")
    await served.store().write_all(FEED, deletes=[keys.post("p1")])

    answer = await served.ask('{ postsByTag(tag: "cats") { nodes { postId likeCount commentCount mentions } } }')

    row = {"postId": "p1", "likeCount": 0, "commentCount": 0, "mentions": []}
    assert answer.data == {"postsByTag": {"nodes": [row]}}


async def test_a_tag_is_found_in_any_case_and_form_and_what_is_no_tag_is_refused(served: Served) -> None:
    await enter(served, "ada")
    await write(served, postId="p1", text="An #Éclair")
    query = "query ($tag: String!) { postsByTag(tag: $tag) { nodes { postId tags } } }"

    for tag in ("Éclair", "#éclair", " #ÉCLAIR ", "e\u0301clair"):
        answer = await served.ask(query, {"tag": tag})
        assert answer.data == {"postsByTag": {"nodes": [{"postId": "p1", "tags": ["éclair"]}]}}, tag
    for tag in ("", "#", "two words", "a#b", "x" * 51, "#1", "_"):
        answer = await served.ask(query, {"tag": tag})
        assert answer.codes == ["BAD_USER_INPUT"], tag
        assert "`tag` must have between 1 and 50 letters, digits and underscores, and at least one letter." in str(
            answer.errors
        )


async def test_a_cursor_is_good_for_its_own_author_and_tag_alone(served: Served) -> None:
    await enter(served, "ada")
    await write(served, text="#cats #dogs")
    cursors = await served.ask(
        '{ postsByAuthor(authorId: "ada") { edges { cursor } } postsByTag(tag: "cats") { edges { cursor } } }'
    )
    author, tag = (cursors.data[field]["edges"][0]["cursor"] for field in ("postsByAuthor", "postsByTag"))

    answers = [
        await served.ask(f'{{ postsByAuthor(authorId: "bob", after: "{author}") {{ nodes {{ text }} }} }}'),
        await served.ask(f'{{ postsByTag(tag: "dogs", after: "{tag}") {{ nodes {{ text }} }} }}'),
        await served.ask(f'{{ postsByTag(tag: "cats", after: "{author}") {{ nodes {{ text }} }} }}'),
        await served.ask(f'{{ postsByTag(tag: "CATS", after: "{tag}") {{ nodes {{ text }} }} }}'),
    ]

    assert [answer.codes for answer in answers] == [["BAD_CURSOR"]] * 3 + [[]]


async def test_a_damaged_post_spoils_its_own_place_only(served: Served) -> None:
    await enter(served, "ada")
    for number in range(3):
        await write(served, postId=f"p{number}")
        served.clock.forward(seconds=1)
    for sort in ("META", "TAG#cats"):
        (item,) = await stored(served, "p1", sort)
        assert item is not None
        await served.store().write_all(FEED, puts=[{**item, "tags": 5}])

    for user in (None, "fan"):
        answer = await served.ask(
            '{ postsByAuthor(authorId: "ada") { nodes { postId } } postsByTag(tag: "cats") { nodes { postId } } }',
            user=user,
        )
        rows = {"nodes": [{"postId": "p2"}, None, {"postId": "p0"}]}
        assert answer.data == {"postsByAuthor": rows, "postsByTag": rows}
        assert answer.codes == ["INTERNAL", "INTERNAL"]


# FEED-W6


async def test_a_deleted_post_is_gone_from_everywhere_and_leaves_a_tombstone(served: Served) -> None:
    await enter(served, "ada")
    post = await write(served, postId="p1", text="#cats #dogs @grace", mediaRef="x")
    served.clock.forward(minutes=1)

    answer = await served.ask(DELETE, {"id": "p1"}, user="ada")

    assert answer.data == {"deletePost": post}
    assert answer.made == ["GetItem feed", "TransactWriteItems feed"]
    moment = NOON + timedelta(minutes=1)
    assert await stored(served, "p1", "META", "TAG#cats", "TAG#dogs") == [
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
    await enter(served, "ada")
    post = await write(served, postId="p1")

    at_once = await asyncio.gather(*[served.ask(DELETE, {"id": "p1"}, user="ada") for _ in range(6)])
    (tombstone,) = await stored(served, "p1", "META")
    served.clock.forward(minutes=1)
    again = await served.ask(DELETE, {"id": "p1"}, user="ada")

    told = [answer.data["deletePost"] for answer in at_once]
    assert sorted(told, key=bool) == [None] * 5 + [post]
    assert (again.errors, again.data, again.made) == (None, {"deletePost": None}, ["GetItem feed"])
    assert await stored(served, "p1", "META") == [tombstone]


async def test_the_id_of_a_deleted_post_is_taken(served: Served) -> None:
    await enter(served, "ada", "grace")
    await write(served, postId="p1")
    await served.ask(DELETE, {"id": "p1"}, user="ada")

    answers = [
        await served.ask(CREATE, {"input": {"text": "x", "postId": "p1"}}, user=user) for user in ("ada", "grace")
    ]

    assert [answer.codes for answer in answers] == [["CONFLICT"], ["CONFLICT"]]


async def test_nobody_deletes_the_post_of_another(served: Served) -> None:
    await enter(served, "ada")
    await follow(served, "fan", "ada")
    for visibility in ("PUBLIC", "FOLLOWERS", "PRIVATE"):
        await write(served, postId=visibility, visibility=visibility)
    await write(served, postId="gone")
    await served.ask(DELETE, {"id": "gone"}, user="ada")

    async def refusals(user: str, role: Role = Role.USER) -> list[str]:
        posts = ("PUBLIC", "FOLLOWERS", "PRIVATE", "gone", "never")
        return [code for id in posts for code in (await served.ask(DELETE, {"id": id}, user=user, role=role)).codes]

    assert await refusals("grace") == ["FORBIDDEN", *["NOT_FOUND"] * 4]
    assert await refusals("fan") == ["FORBIDDEN"] * 2 + ["NOT_FOUND"] * 3
    asked = await served.ask(DELETE, {"id": "FOLLOWERS"}, user="fan")
    assert [(call.operation, call.request.get("ConsistentRead")) for call in asked.calls] == [("GetItem", True)] * 2
    assert await refusals("root", Role.ADMIN) == ["FORBIDDEN"] * 3 + ["NOT_FOUND"] * 2
    assert len(ids(await served.ask(BY_AUTHOR, user="ada"), "postsByAuthor")) == 3


async def test_writing_needs_somebody_who_is_signed_in(served: Served) -> None:
    answers = [await served.ask(CREATE, {"input": {"text": "x"}}), await served.ask(DELETE, {"id": "p1"})]

    assert [answer.codes for answer in answers] == [["UNAUTHENTICATED"]] * 2
    assert [answer.calls for answer in answers] == [[], []]


async def test_what_the_posts_of_many_authors_lead_on_to_is_read_in_one_batch(served: Served) -> None:
    authors = [f"u{number}" for number in range(8)]
    await enter(served, *authors)
    for author in authors:
        await write(served, author, text="#cats for @grace")
    many = "\n".join(f'{author}: user(id: "{author}") {{ posts {{ nodes {{ mentions }} }} }}' for author in authors)

    answer = await served.ask(f"{{ {many} }}", user="fan")

    assert answer.data == {author: {"posts": {"nodes": [{"mentions": ["grace"]}]}} for author in authors}
    # The users, and the posts.
    assert answer.made == ["BatchGetItem feed"] * 2 + ["Query feed.GSI1"] * 8
