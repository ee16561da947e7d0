"""Posts by author and by hashtag: visibility, and the reads of a page (FEED-002, FEED-004, FEED-007)."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from datastore.keyspace.feeds import posts as keys
from datastore.keyspace.feeds.table import FEED
from datastore.model.identity import Role
from tests.support.posts import BY_AUTHOR, SHOWN, create_feed_post, create_users, put_follow_items, stored_post_items
from tests.support.served import Answer, Served

BY_TAG = f'{{ postsByTag(tag: "cats") {{ nodes {{ {SHOWN} }} }} }}'


# Visibility


@dataclass(frozen=True)
class WrittenPost:
    post_id: str
    author: str
    visibility: str


def sees(viewer: str | None, post: WrittenPost) -> bool:
    """Return whether the viewer may see the post. The fan follows only ada."""
    if post.visibility == "PUBLIC" or viewer in ("root", post.author):
        return True
    return post.visibility == "FOLLOWERS" and viewer == "fan" and post.author == "ada"


async def create_posts(served: Served, authors: Sequence[str], number: int) -> list[WrittenPost]:
    """Create posts with the tag `cats`, of random visibility, some at the same time. Return them newest first."""
    await create_users(served, *authors)
    await put_follow_items(served, "fan", "ada")
    rng = random.Random(4)
    written = []
    for at in range(number):
        post = WrittenPost(f"p{at:02}", rng.choice(authors), rng.choice(["PUBLIC", "FOLLOWERS", "PRIVATE"]))
        await create_feed_post(served, post.author, postId=post.post_id, visibility=post.visibility)
        served.clock.forward(seconds=rng.choice([0, 1]))
        written.append(post)
    return written[::-1]


async def page_ids(ask: Callable[[str], Any], field: str, backward: bool) -> list[list[str]]:
    """Read all pages of two posts in one direction. Return the ids of each page, all in the order of the list."""
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
async def test_pages_in_both_directions_are_full_of_posts_that_the_viewer_may_see(
    served: Served, field: str, argument: str, authors: list[str]
) -> None:
    posts = await create_posts(served, authors, 20)
    info = "pageInfo { hasNextPage hasPreviousPage startCursor endCursor }"

    for viewer, role in VIEWERS:

        async def ask(paging: str, viewer: str | None = viewer, role: Role = role) -> Answer:
            query = f"{{ {field}({argument}, {paging}) {{ nodes {{ postId }} {info} }} }}"
            return await served.ask(query, user=viewer, role=role)

        found = [post for post in posts if field == "postsByAuthor" or post.visibility != "PRIVATE"]
        expected = [post.post_id for post in found if sees(viewer, post)]
        forward, backward = await page_ids(ask, field, False), await page_ids(ask, field, True)
        assert [id for page in forward for id in page] == expected, viewer
        assert [id for page in backward for id in page] == expected, viewer
        assert {len(page) for page in forward[:-1] + backward[1:]} <= {2}
    assert {sees(None, post) for post in posts} == {True, False}


@pytest.mark.parametrize(
    ("visibility", "excluded", "included"),
    [
        ("PRIVATE", [None, "grace", "fan"], ["ada"]),
        ("FOLLOWERS", [None, "grace"], ["fan", "ada"]),
    ],
)
async def test_a_hidden_post_appears_in_no_response_to_callers_who_may_not_see_it(
    served: Served, visibility: str, excluded: list[str | None], included: list[str]
) -> None:
    await create_users(served, "ada")
    await put_follow_items(served, "fan", "ada")
    post = await create_feed_post(served, visibility=visibility, postId="p1")
    everywhere = """query ($id: ID!) {
      post(id: "p1") { text }
      node(id: $id) { id }
      nodes(ids: [$id]) { id }
      postsByAuthor(authorId: "ada") { nodes { text } }
      postsByTag(tag: "cats") { nodes { text } }
      user(id: "ada") { posts { nodes { text } } }
    }"""

    for viewer in excluded:
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
    for viewer, role in [*((viewer, Role.USER) for viewer in included), ("root", Role.ADMIN), ("job", Role.SYSTEM)]:
        answer = await served.ask(everywhere, {"id": post["id"]}, user=viewer, role=role)
        assert answer.data == {
            "post": shown,
            "node": node,
            "nodes": [node],
            "postsByAuthor": {"nodes": [shown]},
            "postsByTag": {"nodes": [] if visibility == "PRIVATE" else [shown]},
            "user": {"posts": {"nodes": [shown]}},
        }, viewer


# Reads


async def test_the_posts_of_an_author_are_one_query_and_if_needed_a_read_of_the_follow(served: Served) -> None:
    await create_users(served, "ada")
    post = await create_feed_post(served)
    shown = {name: post[name] for name in [*SHOWN.split(), "likeCount", "commentCount"]}
    query = BY_AUTHOR.replace(SHOWN, f"{SHOWN} likeCount commentCount")

    for viewer, role in VIEWERS:
        answer = await served.ask(query, user=viewer, role=role)

        assert answer.data == {"postsByAuthor": {"nodes": [shown]}}
        assert answer.made == ["Query feed.GSI1"], viewer

    await create_feed_post(served, visibility="PRIVATE")
    for viewer, role in VIEWERS:
        assert (await served.ask(query, user=viewer, role=role)).made == ["Query feed.GSI1"], viewer

    await create_feed_post(served, visibility="FOLLOWERS")
    for viewer, role in VIEWERS:
        follow = ["GetItem feed"] if viewer in ("grace", "fan") else []
        assert (await served.ask(query, user=viewer, role=role)).made == [*follow, "Query feed.GSI1"], viewer


async def test_follows_of_several_authors_are_read_in_one_batch(served: Served) -> None:
    authors = ["ada", "bob", "eve"]
    await create_users(served, *authors)
    await put_follow_items(served, "fan", "ada", "eve")
    for author in authors:
        await create_feed_post(served, author, text=author, visibility="FOLLOWERS")
    lists = "\n".join(f'{author}: user(id: "{author}") {{ posts {{ nodes {{ text }} }} }}' for author in authors)

    answer = await served.ask(f"{{ {lists} }}", user="fan")

    shown = {author: {"posts": {"nodes": [{"text": author}]}} for author in authors}
    assert answer.data == shown | {"bob": {"posts": {"nodes": []}}}
    # Two batches: the users, and the follows.
    assert answer.made == ["BatchGetItem feed"] * 2 + ["Query feed.GSI1"] * 3


async def test_follows_are_read_only_if_a_tag_has_posts_for_followers_of_others(served: Served) -> None:
    await create_users(served, "ada", "bob", "fan")
    calls = []

    async def list_again() -> None:
        answer = await served.ask(BY_TAG, user="fan")
        assert answer.errors is None
        calls.append(answer.made)

    await create_feed_post(served, "ada")
    await create_feed_post(served, "ada", visibility="PRIVATE")
    await create_feed_post(served, "fan", visibility="FOLLOWERS")
    await list_again()
    for author in ("ada", "ada", "bob"):
        await create_feed_post(served, author, visibility="FOLLOWERS")
        await list_again()

    query = ["Query feed.GSI2"]
    assert calls == [query, ["GetItem feed", *query], ["GetItem feed", *query], ["BatchGetItem feed", *query]]
    assert (await served.ask(BY_TAG)).made == query


async def test_attributes_outside_an_index_are_read_in_one_batch_with_the_authors(served: Served) -> None:
    await create_users(served, "ada", "bob")
    for author in ("ada", "bob", "ada"):
        await create_feed_post(served, author, text="#cats for @grace")

    counted = await served.ask(
        '{ postsByTag(tag: "cats") { nodes { likeCount commentCount mentionedUserIds author { name } } } }'
    )
    mentioned = await served.ask('{ postsByAuthor(authorId: "ada") { nodes { likeCount mentionedUserIds } } }')

    row = {"likeCount": 0, "commentCount": 0, "mentionedUserIds": ["grace"], "author": {"name": "X"}}
    assert counted.data == {"postsByTag": {"nodes": [row] * 3}}
    assert counted.made == ["BatchGetItem feed", "Query feed.GSI2"]
    batch = next(call for call in counted.calls if call.operation == "BatchGetItem")
    ((_, entry),) = batch.request["RequestItems"].items()
    assert len(entry["Keys"]) == 5
    assert mentioned.made == ["BatchGetItem feed", "Query feed.GSI1"]


async def test_posts_of_a_tag_have_the_counts_of_the_post(served: Served) -> None:
    await create_users(served, "ada")
    await create_feed_post(served, postId="p1")
    (item,) = await stored_post_items(served, "p1", "META")
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


async def test_a_tag_of_a_deleted_post_has_counts_of_zero(served: Served) -> None:
    await create_users(served, "ada")
    await create_feed_post(served, postId="p1", text="#cats for @grace")
    await served.store().write_all(FEED, deletes=[keys.post("p1")])

    answer = await served.ask(
        '{ postsByTag(tag: "cats") { nodes { postId likeCount commentCount mentionedUserIds } } }'
    )

    row = {"postId": "p1", "likeCount": 0, "commentCount": 0, "mentionedUserIds": []}
    assert answer.data == {"postsByTag": {"nodes": [row]}}


async def test_a_tag_is_found_in_any_case_and_form_and_an_invalid_one_is_refused(served: Served) -> None:
    await create_users(served, "ada")
    await create_feed_post(served, postId="p1", text="An #Éclair")
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


async def test_a_cursor_is_valid_for_its_author_or_tag_only(served: Served) -> None:
    await create_users(served, "ada")
    await create_feed_post(served, text="#cats #dogs")
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


async def test_a_damaged_post_is_an_error_in_its_place(served: Served) -> None:
    await create_users(served, "ada")
    for number in range(3):
        await create_feed_post(served, postId=f"p{number}")
        served.clock.forward(seconds=1)
    for sort in ("META", "TAG#cats"):
        (item,) = await stored_post_items(served, "p1", sort)
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
