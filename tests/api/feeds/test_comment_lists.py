"""Lists of comments: visibility, pages, and the reads of a page (FEED-006, FEED-N2)."""

import asyncio

import pytest

from datastore.keyspace.feeds.table import FEED
from tests.support.comment_steps import (
    ADD,
    DELETE_POST,
    LIST,
    NO_PAGE,
    NODE,
    NOTHING,
    add_comment,
    ask_to_add,
    comments_of,
)
from tests.support.comments import an_id
from tests.support.feed_items import comment_item, post_item
from tests.support.feed_steps import (
    SEEN_BY,
    VIEWERS,
    assert_paged,
    cast,
    create_profiles,
    follow_user,
    mutate,
    unfollow,
    write_post,
)
from tests.support.served import Served

# Visibility.


@pytest.mark.parametrize("visibility", SEEN_BY)
async def test_comments_have_the_visibility_of_their_post(served: Served, visibility: str) -> None:
    await cast(served, visibility)
    comment = await add_comment(served, "ada", "Mine")
    served.clock.forward(seconds=1)
    shown = {"commentId": comment["commentId"], "text": "Mine"}

    for viewer, (user, role) in VIEWERS.items():
        sees = viewer in SEEN_BY[visibility]
        connection = await comments_of(served, user=user, role=role)
        node = (await served.ask(NODE, {"id": comment["id"]}, user=user, role=role)).data["node"]
        added = await served.ask(ADD, {"post": "p", "text": "Me too"}, user=user, role=role)

        assert (connection["nodes"][:1] == [shown]) is sees, viewer
        assert sees or connection == NOTHING, viewer
        assert node == ({"__typename": "Comment", "text": "Mine", "post": {"postId": "p"}} if sees else None), viewer
        refusal = "UNAUTHENTICATED" if user is None else "NOT_FOUND"
        assert added.codes == ([] if sees and user else [refusal]), viewer


async def test_comments_on_an_invisible_post_are_as_on_one_without_any(served: Served) -> None:
    await cast(served, "FOLLOWERS")
    await write_post(served, "bare")
    await add_comment(served, "fan")
    cursor = (await comments_of(served, user="fan"))["pageInfo"]["endCursor"]
    await unfollow(served, "fan", "ada")

    answers = {post: await served.ask(LIST, {"post": post}, user="eve") for post in ("p", "bare", "unknown")}
    behind = await served.ask(LIST, {"post": "p", "after": cursor}, user="fan")
    before = await served.ask(LIST, {"post": "p", "before": cursor}, user="fan")

    assert [answer.data["comments"] for answer in answers.values()] == [NOTHING] * 3
    assert behind.data["comments"] == {**NOTHING, "pageInfo": {**NO_PAGE, "hasPreviousPage": True}}
    assert before.data["comments"] == {**NOTHING, "pageInfo": {**NO_PAGE, "hasNextPage": True}}


async def test_the_comments_on_a_deleted_post_are_gone_at_once(served: Served) -> None:
    await cast(served, "PUBLIC")
    comment = await add_comment(served, "eve")
    await mutate(served, DELETE_POST, "ada", id="p")

    answer = await ask_to_add(served, "eve")

    assert await comments_of(served) == NOTHING
    assert (await served.ask(NODE, {"id": comment["id"]})).data == {"node": None}
    assert answer.codes == ["NOT_FOUND"]
    assert answer.made == ["BatchGetItem feed"]


async def test_a_comment_requires_a_profile(served: Served) -> None:
    await cast(served, "PUBLIC")

    answer = await ask_to_add(served, "ghost")

    assert answer.codes == ["NOT_FOUND"]
    assert "createUser" in str(answer.errors)
    assert answer.made == ["BatchGetItem feed"]
    assert await comments_of(served) == NOTHING


# Reading.


async def test_comments_are_paged_oldest_first_in_both_directions(served: Served) -> None:
    await cast(served, "PUBLIC")
    model = []
    for number in range(17):
        model.append((await add_comment(served, ("ada", "eve")[number % 2], f"{number}"))["text"])
        served.clock.forward(milliseconds=1)
    # The list contains neither likes nor comments on another post.
    await mutate(served, 'mutation { likePost(postId: "p") { userId } }', "eve")
    await write_post(served, "p2")
    await add_comment(served, "eve", post="p2")

    await assert_paged(served, 'comments(postId: "p", %s)', "text", model)


async def test_an_id_with_an_older_time_is_listed_earlier(served: Served) -> None:
    await cast(served, "PUBLIC")
    for text, id in (
        ("2", an_id(2, seconds=-2)),
        ("1", an_id(1, seconds=-3)),
        ("4", None),
        ("3", an_id(3, seconds=-1)),
    ):
        await add_comment(served, "eve", text, id=id)

    assert [comment["text"] for comment in (await comments_of(served))["nodes"]] == ["1", "2", "3", "4"]


async def test_a_list_reads_the_post_then_its_comments_then_all_authors_in_one_batch(served: Served) -> None:
    await cast(served, "PUBLIC")
    for user in ("ada", "eve", "ada"):
        await add_comment(served, user)
        served.clock.forward(seconds=1)
    await served.store().write_all(FEED, puts=[comment_item(post_item("p"), an_id(seconds=3), "ghost")])

    answer = await served.ask('{ comments(postId: "p") { nodes { author { name } post { postId } } } }')

    names = [node["author"] and node["author"]["name"] for node in answer.data["comments"]["nodes"]]
    assert names == ["Ada", "Eve", "Ada", None]
    assert answer.made == ["BatchGetItem feed", "GetItem feed", "Query feed"]


async def test_invalid_paging_is_refused(served: Served) -> None:
    await cast(served, "PUBLIC")
    refused = {paging: "BAD_USER_INPUT" for paging in ("first: 0", "first: 101", "last: -1", "first: 1, last: 1")}

    for paging, code in (refused | {'after: "x"': "BAD_CURSOR"}).items():
        root = await served.ask(f'{{ comments(postId: "p", {paging}) {{ nodes {{ text }} }} }}')
        nested = await served.ask(f'{{ post(id: "p") {{ comments({paging}) {{ nodes {{ text }} }} }} }}')

        assert root.codes == nested.codes == [code]
        assert root.calls == []


async def test_a_cursor_is_valid_for_its_post_only(served: Served) -> None:
    await cast(served, "PUBLIC")
    await write_post(served, "q")
    await add_comment(served, "eve")
    cursor = (await comments_of(served))["pageInfo"]["endCursor"]

    answer = await served.ask(LIST, {"post": "q", "after": cursor})

    assert answer.codes == ["BAD_CURSOR"]


async def test_a_damaged_comment_is_an_error_in_its_place(served: Served) -> None:
    await cast(served, "PUBLIC")
    await add_comment(served, "eve", "Whole")
    await served.store().write_all(FEED, puts=[{"PK": "POST#p", "SK": f"COMMENT#{an_id(seconds=9)}", "text": "x"}])

    answer = await served.ask(LIST, {"post": "p"})

    assert [node and node["text"] for node in answer.data["comments"]["nodes"]] == ["Whole", None]
    assert answer.codes == ["INTERNAL"]


async def test_the_comments_field_of_a_post_reads_the_post_once(served: Served) -> None:
    await cast(served, "FOLLOWERS")
    await add_comment(served, "fan", "Hear, hear")

    answer = await served.ask('{ post(id: "p") { comments { nodes { text authorId } } } }', user="fan")

    assert answer.data["post"]["comments"]["nodes"] == [{"text": "Hear, hear", "authorId": "fan"}]
    # The post, the caller's follow of its author, and the comments.
    assert answer.made == ["GetItem feed", "GetItem feed", "Query feed"]


# The cost of a page of posts.


@pytest.mark.parametrize("user", [None, "eve"])
async def test_a_page_of_posts_with_comments_reads_all_people_and_likes_in_one_batch(
    served: Served, user: str | None
) -> None:
    await create_profiles(served, "ada", "eve", "fan", "kim")
    commenters = ("eve", "fan", "kim")
    posts = [f"p{number:02d}" for number in range(12)]
    for post in posts:
        await write_post(served, post)
        await asyncio.gather(
            *[add_comment(served, name, name, post=post, id=an_id(at)) for at, name in enumerate(commenters)]
        )
        await mutate(served, "mutation ($id: ID!) { likePost(postId: $id) { userId } }", "eve", id=post)

    answer = await served.ask(
        """{ postsByAuthor(authorId: "ada") { nodes {
          author { name } likedByViewer
          comments(first: 3) { edges { node { text author { name } } } }
        } } }""",
        user=user,
    )

    assert answer.errors is None
    nodes = answer.data["postsByAuthor"]["nodes"]
    assert [node["likedByViewer"] for node in nodes] == [user and True] * 12
    assert {node["author"]["name"] for node in nodes} == {"Ada"}
    for node in nodes:
        written = [edge["node"] for edge in node["comments"]["edges"]]
        assert sorted(comment["text"] for comment in written) == sorted(commenters)
        assert all(comment["author"]["name"] == comment["text"].title() for comment in written)
    assert answer.made == ["BatchGetItem feed", *["Query feed"] * 12, "Query feed.GSI1"]
    (batch,) = [call for call in answer.calls if call.operation == "BatchGetItem"]
    ((_, entry),) = batch.request["RequestItems"].items()
    assert len(entry["Keys"]) == 4 + (12 if user else 0)


async def test_comments_likes_and_followers_of_one_request_share_a_batch(served: Served) -> None:
    await cast(served, "PUBLIC")
    await add_comment(served, "eve", "Hi")
    await mutate(served, 'mutation { likePost(postId: "p") { userId } }', "fan")
    await follow_user(served, "eve", "ada")

    answer = await served.ask(
        """{ post(id: "p") {
          likedByViewer author { name }
          comments { nodes { author { name } } } likes { nodes { user { name } post { postId } } }
        } }""",
        user="fan",
    )
    person = await served.ask(
        """{ user(id: "ada") {
          followedByViewer followers { nodes { user { name } } } following { nodes { user { name } } }
        } }""",
        user="fan",
    )

    assert answer.data["post"] == {
        "likedByViewer": True,
        "author": {"name": "Ada"},
        "comments": {"nodes": [{"author": {"name": "Eve"}}]},
        "likes": {"nodes": [{"user": {"name": "Fan"}, "post": {"postId": "p"}}]},
    }
    assert answer.made == ["BatchGetItem feed", "GetItem feed", "Query feed", "Query feed"]
    assert person.data["user"]["followedByViewer"] is True
    names = [node["user"]["name"] for node in person.data["user"]["followers"]["nodes"]]
    assert sorted(names) == ["Eve", "Fan"]
    assert person.made == ["BatchGetItem feed", "GetItem feed", "Query feed", "Query feed.GSI_FOL"]
