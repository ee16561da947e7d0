"""The table `feed` as its document lists it, written by another program: each pattern on it alone, and beside ours.

The document lists `LIKE {created_at}`, `COMMENT {user_id, created_at, text_len}`, `META {author_id, created_at,
visibility, media_ref}`, tags that are all key, and follow edges. Moments have whole seconds.
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from conftest import NOON, Answer, Served
from consumers import letters_of
from feed_changes import feed_changes, store_of
from feed_documents import comment, delete, like, post, tag, user, write
from feed_steps import done, enter
from feed_steps import write as write_post

from datastore.dead_letters import DeadLetters, letter_of
from datastore.streams import encode_change
from pipelines.feeds.handlers import feed_handlers
from pipelines.streams.letters import Replay
from resolvers.access import Role

SECOND = timedelta(seconds=1)
POSTS = [
    post("abc123"),
    post("older", at=NOON - SECOND),
    post("fans", at=NOON - 2 * SECOND, visibility="followers"),
    post("secret", at=NOON - 3 * SECOND, visibility="private"),
]
TAGS = [tag(one["PK"][5:], at=NOON - number * SECOND) for number, one in enumerate(POSTS)]
ANSWERS = [comment("abc123", "c001"), like("abc123", "u001"), like("abc123", "u003"), like("abc123")]
DOCUMENT = [*map(user, ("u001", "u002", "u003")), *POSTS, *TAGS, *ANSWERS]

POST_FIELDS = "postId authorId createdAt visibility text mediaRef tags mentions likeCount commentCount author { name }"
POST = f"""{{ post(id: "abc123") {{ {POST_FIELDS}
  likes {{ nodes {{ userId createdAt post {{ postId }} user {{ name }} }} }}
  comments {{ nodes {{ commentId userId createdAt text textLength mentions author {{ name }} }} }} }} }}"""
BY_AUTHOR = '{ list: postsByAuthor(authorId: "u001") { nodes { postId text authorId visibility } } }'
BY_TAG = """query ($first: Int, $after: String) { list: postsByTag(tag: "dynamodb", first: $first, after: $after) {
  nodes { postId text authorId visibility mediaRef } pageInfo { hasNextPage endCursor } } }"""
COUNTS = '{ post(id: "abc123") { likeCount commentCount } }'
TOP = '{ topAuthors(month: "2026-06") { authorId posts likes comments } }'
TRENDING = '{ trendingTags(window: HOUR, at: "2026-06-25T12:30:00Z") { tag posts } }'
UNREAD = '{ notifications(userId: "u001") { nodes { kind actorId actorCount postId commentId } } }'


class Pipeline:
    """The handlers of the feed's stream. Each call of `run` hands them what is new in it."""

    def __init__(self, served: Served) -> None:
        assert served.gateway.database is not None
        self.database = served.gateway.database
        self.handlers = feed_handlers(lambda: store_of(self.database), served.clock)
        self._seen = 0

    async def run(self) -> None:
        """Until nothing is new."""
        while changes := await feed_changes(self.database, self._seen):
            self._seen += len(changes)
            for handler in self.handlers:
                await handler.handle(changes)


def good(answer: Answer) -> Any:
    assert answer.errors is None, answer.errors
    return answer.data


async def ids(served: Served, query: str, user: str | None = None, role: Role = Role.USER) -> list[str]:
    return [node["postId"] for node in good(await served.ask(query, user=user, role=role))["list"]["nodes"]]


async def rank_of(served: Served, author: str) -> tuple[int, int, int]:
    """Posts, likes and comments of an author on the month's board."""
    ranks = {rank["authorId"]: rank for rank in good(await served.ask(TOP))["topAuthors"]}
    return ranks[author]["posts"], ranks[author]["likes"], ranks[author]["comments"]


@pytest.fixture(params=["alone", "mixed"])
async def ours(request: pytest.FixtureRequest, served: Served) -> list[str]:
    """The document's items are there; the ids of this gateway's own posts, the newest first, if they are mixed."""
    write(served, *DOCUMENT)
    if request.param == "alone":
        return []
    await enter(served, "ada")
    create = 'mutation ($id: ID!) { createPost(input: {postId: $id, text: "#dynamodb"}) { postId } }'
    for id in ("ours1", "ours2"):
        served.clock.forward(seconds=1)
        await done(served, create, "ada", id=id)
    return ["ours2", "ours1"]


async def test_a_post_is_read_with_its_likes_and_comments(served: Served, ours: Sequence[str]) -> None:
    found = good(await served.ask(POST))["post"]

    assert found == {
        "postId": "abc123",
        "authorId": "u001",
        "createdAt": "2026-06-25T12:00:00+00:00",
        "visibility": "PUBLIC",
        "text": "",
        "mediaRef": "s3://media/abc123.jpg",
        "tags": [],
        "mentions": [],
        "likeCount": 0,
        "commentCount": 0,
        "author": {"name": "U001"},
        "likes": {
            "nodes": [
                {
                    "userId": user,
                    "createdAt": "2026-06-25T12:00:00+00:00",
                    "post": {"postId": "abc123"},
                    "user": {"name": user.upper()},
                }
                for user in ("u003", "u002", "u001")
            ]
        },
        "comments": {
            "nodes": [
                {
                    "commentId": "c001",
                    "userId": "u002",
                    "createdAt": "2026-06-25T12:00:00+00:00",
                    "text": "",
                    "textLength": 42,
                    "mentions": [],
                    "author": {"name": "U002"},
                }
            ]
        },
    }


async def test_a_post_without_index_keys_is_read_by_its_id(served: Served) -> None:
    item = {name: value for name, value in post("bare").items() if not name.startswith("GSI1")}
    write(served, user("u001"), item, like("bare"))
    await Pipeline(served).run()

    found = good(await served.ask('{ post(id: "bare") { createdAt likeCount mentions author { postCount } } }'))["post"]

    assert found == {
        "createdAt": "2026-06-25T12:00:00+00:00",
        "likeCount": 1,
        "mentions": [],
        "author": {"postCount": 1},
    }


@pytest.mark.parametrize(
    ("viewer", "role", "author", "tag"),
    [
        (None, Role.USER, ["abc123", "older"], ["abc123", "older"]),
        ("u002", Role.USER, ["abc123", "older"], ["abc123", "older"]),
        ("u001", Role.USER, ["abc123", "older", "fans", "secret"], ["abc123", "older", "fans"]),
        ("root", Role.ADMIN, ["abc123", "older", "fans", "secret"], ["abc123", "older", "fans"]),
    ],
)
async def test_lists_show_what_a_viewer_may_see(
    served: Served, ours: Sequence[str], viewer: str | None, role: Role, author: list[str], tag: list[str]
) -> None:
    assert await ids(served, BY_AUTHOR, viewer, role) == author
    assert await ids(served, BY_TAG, viewer, role) == [*ours, *tag]


async def test_posts_of_bare_tags_are_read_in_one_batch_for_a_page(served: Served, ours: Sequence[str]) -> None:
    answer = await served.ask(BY_TAG, {"first": len(ours) + 2})
    page = good(answer)["list"]
    second = good(await served.ask(BY_TAG, {"first": 1, "after": page["pageInfo"]["endCursor"]}))["list"]

    assert page["nodes"][-1] == {
        "postId": "older",
        "text": "",
        "authorId": "u001",
        "visibility": "PUBLIC",
        "mediaRef": "s3://media/older.jpg",
    }
    assert sorted(answer.made)[0] == "BatchGetItem feed"
    assert second == {"nodes": [], "pageInfo": {"hasNextPage": False, "endCursor": None}}


async def test_pages_of_our_own_tags_read_no_posts(served: Served) -> None:
    await enter(served, "ada")
    await done(served, 'mutation { createPost(input: {text: "#dynamodb"}) { postId } }', "ada")

    assert (await served.ask(BY_TAG)).made == ["Query feed.GSI2"]


async def test_they_are_counted_and_their_author_is_notified(served: Served, ours: Sequence[str]) -> None:
    pipeline = Pipeline(served)
    await pipeline.run()

    assert good(await served.ask(COUNTS))["post"] == {"likeCount": 3, "commentCount": 1}
    assert await rank_of(served, "u001") == (2, 2, 1)
    assert good(await served.ask(TRENDING))["trendingTags"] == [{"tag": "dynamodb", "posts": 1 + len(ours)}]
    unread = good(await served.ask(UNREAD, user="u001"))["notifications"]["nodes"]
    assert sorted(unread, key=lambda one: str(one["kind"])) == [
        {"kind": "COMMENT", "actorId": "u002", "actorCount": 1, "postId": "abc123", "commentId": "c001"},
        {"kind": "LIKE", "actorId": "u002", "actorCount": 2, "postId": "abc123", "commentId": None},
    ]


async def test_what_they_counted_is_taken_back(served: Served, ours: Sequence[str]) -> None:
    pipeline = Pipeline(served)
    await pipeline.run()
    delete(served, like("abc123"), comment("abc123", "c001"), tag("abc123"))
    await pipeline.run()
    less = good(await served.ask(COUNTS))["post"], await rank_of(served, "u001")
    await done(served, 'mutation { deletePost(postId: "abc123") { postId } }', "u001")
    await pipeline.run()

    assert less == ({"likeCount": 2, "commentCount": 0}, (2, 1, 0))
    assert await rank_of(served, "u001") == (1, 0, 0)
    assert good(await served.ask(UNREAD, user="u001"))["notifications"]["nodes"] == []
    assert [rank["posts"] for rank in good(await served.ask(TRENDING))["trendingTags"]] == ([len(ours)] if ours else [])


async def test_comments_are_deleted_by_their_authors_and_the_posts(served: Served) -> None:
    write(served, *DOCUMENT, comment("abc123", "c002"))
    remove = 'mutation ($id: ID!) { deleteComment(postId: "abc123", commentId: $id) { commentId } }'

    foreign = await served.ask(remove, {"id": "c001"}, user="u003")
    by_author = await done(served, remove, "u002", id="c001")
    by_posts_author = await done(served, remove, "u001", id="c002")

    assert foreign.codes == ["FORBIDDEN"]
    assert (by_author, by_posts_author) == ({"commentId": "c001"}, {"commentId": "c002"})


async def test_users_like_and_comment_on_them(served: Served, ours: Sequence[str]) -> None:
    add = 'mutation { addComment(input: {postId: "abc123", text: "Hi"}) { text } }'
    liked = 'mutation { likePost(postId: "abc123") { userId createdAt post { likedByViewer } } }'
    again = {"userId": "u002", "createdAt": "2026-06-25T12:00:00+00:00", "post": {"likedByViewer": True}}

    assert await done(served, add, "u003") == {"text": "Hi"}
    assert await done(served, liked, "u002") == again
    assert await done(served, 'mutation { unlikePost(postId: "abc123") { userId } }', "u002") == {"userId": "u002"}


async def test_dead_letters_of_them_are_replayed(served: Served) -> None:
    write(served, *DOCUMENT)
    pipeline = Pipeline(served)
    database = pipeline.database
    changes = await feed_changes(database)
    for handler in pipeline.handlers:
        for change in changes:
            letter = letter_of("feed", handler.name, encode_change(change), KeyError("post_author"), 6, NOON)
            await DeadLetters(store_of(database)).bury(letter)
    replay = Replay(pipeline.handlers, lambda: store_of(database), served.clock)

    left = [await replay.replay(letter) for letter in await letters_of(database, NOON)]

    assert left == [None] * (len(changes) * len(pipeline.handlers))
    assert await letters_of(database, NOON) == []
    assert good(await served.ask(COUNTS))["post"] == {"likeCount": 3, "commentCount": 1}


async def test_a_post_of_ours_among_them_is_as_it_was(served: Served) -> None:
    write(served, *DOCUMENT)
    await enter(served, "ada")
    await write_post(served, "ours")

    assert await ids(served, '{ list: postsByAuthor(authorId: "ada") { nodes { postId } } }') == ["ours"]
