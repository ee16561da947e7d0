"""Lists of many posts and users: each is as alone, and all are read together (FEED-005, FEED-006, FEED-008)."""

from random import Random
from typing import Any

from tests.support.comment_steps import add_comment
from tests.support.feed_steps import create_profiles, follow_user, mutate, write_post
from tests.support.served import Served

LISTS = """
fragment Lists on Post {
  postId
  comments(first: $first, after: $after, last: $last) {
    edges { cursor node { commentId text author { name } } } nodes { text } pageInfo { ...Ends } lastEvaluatedKey
  }
  likes(first: $first) { nodes { userId user { name } } pageInfo { ...Ends } }
  newest: comments(last: 1) { nodes { text } }
  author {
    followers(first: $first) { nodes { user { name } createdAt } pageInfo { ...Ends } }
    following(last: $last) { nodes { user { name } } }
  }
}
fragment Ends on PageInfo { hasNextPage hasPreviousPage startCursor endCursor }
"""
VARIABLES = "$first: Int, $after: String, $last: Int"
MANY = (
    f"query ($author: ID!, {VARIABLES}) {{ postsByAuthor(authorId: $author, first: 3) {{ nodes {{ ...Lists }} }} }}"
    + LISTS
)
ONE = f"query ($id: ID!, {VARIABLES}) {{ post(id: $id) {{ ...Lists }} }}" + LISTS
DELETE = "mutation ($post: ID!, $id: ID!) { deleteComment(postId: $post, commentId: $id) { commentId } }"
LIKE = "mutation ($id: ID!) { likePost(postId: $id) { userId } }"
POSTS = ["p1", "p2", "p3"]


async def write_feed(served: Served) -> None:
    """Create posts with different numbers of comments, deleted comments and likes."""
    await create_profiles(served, "ada", "fan", "eve")
    await follow_user(served, "fan", "ada")
    await follow_user(served, "eve", "ada")
    await follow_user(served, "ada", "eve")
    for number, post in enumerate(POSTS):
        await write_post(served, post)
        for index in range(3 * number):
            comment = await add_comment(served, "fan" if index % 2 else "eve", f"{post} {index}", post=post)
            if number == 2 and index < 4:
                await mutate(served, DELETE, comment["authorId"], post=post, id=comment["commentId"])
            served.clock.forward(seconds=1)
    await mutate(served, LIKE, "fan", id="p1")
    await mutate(served, LIKE, "eve", id="p1")


async def read_all(served: Served, **paging: Any) -> tuple[Any, Any]:
    """Return the lists of all posts as read together, by graphql-core and compiled, and as read one by one."""
    together = [await served.ask(MANY, {"author": "ada", **paging}) for _ in range(3)]
    alone = []
    for post in POSTS:
        answer = await served.ask(ONE, {"id": post, **paging})
        assert answer.errors is None, answer.errors
        alone.append(answer.data["post"])
    read = [{post["postId"]: post for post in answer.data["postsByAuthor"]["nodes"] if post} for answer in together]
    assert read[0] == read[1] == read[2]
    assert len({tuple(sorted(answer.made)) for answer in together}) == 1, [answer.made for answer in together]
    return read[2], {post["postId"]: post for post in alone if post}


async def test_each_list_is_as_alone_also_with_deleted_entries(served: Served) -> None:
    await write_feed(served)

    for paging in ({"first": 1}, {"first": 2}, {"last": 2}, {}):
        together, alone = await read_all(served, **({"first": None, "last": None} | paging))
        assert together == alone
        assert together.keys() == set(POSTS)


COMMENT_FIELDS = {
    "id": "id",
    "postId": "postId",
    "post": "post { postId }",
    "commentId": "commentId",
    "authorId": "authorId",
    "author": "author { name }",
    "createdAt": "createdAt",
    "text": "text",
    "textLength": "textLength",
    "mentionedUserIds": "mentionedUserIds",
    "__typename": "__typename",
}


async def test_the_entries_have_each_selection_of_fields_although_only_its_attributes_are_decoded(
    served: Served,
) -> None:
    await write_feed(served)
    await add_comment(served, "fan", "Hello @ada", post="p2")
    every = f'{{ comments(postId: "p2") {{ nodes {{ {" ".join(COMMENT_FIELDS.values())} }} }} }}'
    expected = (await served.ask(every)).data["comments"]["nodes"]
    rng = Random(1)
    selections = [[name] for name in COMMENT_FIELDS] + [rng.sample([*COMMENT_FIELDS], 3) for _ in range(20)]

    for names in selections:
        inside, outside = names[:1], names[1:]
        text = f"""{{ post(id: "p2") {{ comments {{
          nodes {{ ...Inside }} edges {{ node {{ __typename {" ".join(COMMENT_FIELDS[name] for name in outside)} }} }}
        }} }} }} fragment Inside on Comment {{ {" ".join(COMMENT_FIELDS[name] for name in inside)} }}"""
        for _ in range(2):
            comments = (await served.ask(text)).data["post"]["comments"]
            assert comments["nodes"] == [{name: entry[name] for name in inside} for entry in expected]
            shown = [{name: entry[name] for name in ("__typename", *outside)} for entry in expected]
            assert [edge["node"] for edge in comments["edges"]] == shown


async def test_a_cursor_continues_its_list_and_is_refused_for_the_others(served: Served) -> None:
    await write_feed(served)
    first, _ = await read_all(served, first=2)
    cursor = first["p2"]["comments"]["pageInfo"]["endCursor"]
    text = """query ($after: String) { postsByAuthor(authorId: "ada") { edges { node {
      postId comments(first: 1, after: $after) { nodes { text } }
    } } } }"""

    answers = [await served.ask(text, {"after": cursor}) for _ in range(3)]

    for answer in answers:
        nodes = [edge["node"] for edge in answer.data["postsByAuthor"]["edges"]]
        assert [node for node in nodes if node] == [{"postId": "p2", "comments": {"nodes": [{"text": "p2 2"}]}}]
        assert answer.codes == ["BAD_CURSOR"] * 2
    assert answers[0].made == answers[2].made


async def test_a_size_beyond_the_limit_is_refused_for_each_list(served: Served) -> None:
    await write_feed(served)
    text = '{ postsByAuthor(authorId: "ada") { nodes { comments(first: 101) { nodes { text } } } } }'

    for _ in range(3):
        answer = await served.ask(text)
        assert answer.data == {"postsByAuthor": {"nodes": [None] * 3}}
        assert answer.codes == ["BAD_USER_INPUT"] * 3
