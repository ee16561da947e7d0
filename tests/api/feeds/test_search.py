"""searchPosts and searchUsers through GraphQL, on the real engine."""

from typing import Any

import pytest

from datastore.dynamodb.calls import Call
from datastore.infrastructure.iam_roles import GATEWAY
from datastore.model.identity import Role
from datastore.search import Kind
from server.settings import Misconfigured, Settings
from tests.support.feed_changes import delete_feed_records, put_feed_records
from tests.support.rights import refused
from tests.support.search import IDS, USERS, find_posts, found_post_ids, join, sync_index, write_searched_post
from tests.support.served import Served

POSTS = """query ($query: String!, $first: Int, $after: String) {
  searchPosts(query: $query, first: $first, after: $after) {
    nodes { postId text visibility likeCount author { name } }
    edges { cursor }
    pageInfo { hasNextPage hasPreviousPage endCursor }
  }
}"""


@pytest.fixture
async def world(served: Served) -> Served:
    await join(served, ada="Ada Lovelace", bob="Bob Stone", eve="Adaline Noor")
    return served


async def test_posts_are_found_by_words_and_tags(world: Served) -> None:
    await write_searched_post(world, "p1", "A walk along the harbour #evening")
    await write_searched_post(world, "p2", "Evening at the café by the harbour", "bob")
    await sync_index(world)

    answer = await world.ask(POSTS, {"query": "HARBOUR cafe"})

    assert answer.errors is None
    page = answer.data["searchPosts"]
    assert page["nodes"] == [
        {
            "postId": "p2",
            "text": "Evening at the café by the harbour",
            "visibility": "PUBLIC",
            "likeCount": 0,
            "author": {"name": "Bob Stone"},
        }
    ]
    assert (page["pageInfo"]["hasNextPage"], page["pageInfo"]["hasPreviousPage"]) == (False, False)
    assert await find_posts(world, "evening") == ["p2", "p1"]
    assert await find_posts(world, "#evening") == ["p1"]
    assert await find_posts(world, "even") == ["p2", "p1"]
    assert await find_posts(world, "nowhere") == []


async def test_a_page_reads_its_posts_in_one_batch(world: Served) -> None:
    for number in range(5):
        await write_searched_post(world, f"p{number}", "word")
    await sync_index(world)

    made: list[Call] = []
    assert world.gateway.database is not None
    world.gateway.database.client.add_call_listener(made.append)

    answer = await world.ask(IDS, {"query": "word", "first": 3}, user="bob")

    assert found_post_ids(answer) == ["p4", "p3", "p2"]
    assert [call.operation for call in made] == [
        "Query",
        "BatchGetItem",
    ]  # the read of bob's followees, and that of the posts
    assert [list(refused(GATEWAY, call.operation, call.request)) for call in made] == [[], []]
    made.clear()
    assert found_post_ids(await world.ask(IDS, {"query": "nothing"})) == []
    assert made == []


async def test_posts_are_found_only_by_callers_who_may_see_them(world: Served) -> None:
    await write_searched_post(world, "public", "secret garden")
    await write_searched_post(world, "followers", "secret garden", visibility="FOLLOWERS")
    await write_searched_post(world, "private", "secret garden", visibility="PRIVATE")
    assert (await world.ask('mutation { follow(userId: "ada") { userId } }', user="bob")).errors is None
    await sync_index(world)

    assert await find_posts(world, "secret") == ["public"]
    assert await find_posts(world, "secret", "eve") == ["public"]
    assert await find_posts(world, "secret", "bob") == ["followers", "public"]
    assert await find_posts(world, "secret", "ada") == ["private", "followers", "public"]
    assert await find_posts(world, "secret", "root", role=Role.ADMIN) == ["private", "followers", "public"]


async def test_hidden_posts_appear_in_no_page_cursor_or_count(world: Served) -> None:
    """Hidden posts take no places on a page, even if the index does not know that they are hidden."""
    for number in range(12):
        await write_searched_post(world, f"hidden{number}", "word", visibility="FOLLOWERS" if number % 2 else "PRIVATE")
        await write_searched_post(world, f"shown{number}", "word", "bob")
    await sync_index(world)

    shown: list[str] = []
    after: str | None = None
    for page in range(4):
        answer = await world.ask(IDS, {"query": "word", "first": 3, "after": after}, user="eve")
        assert len(found_post_ids(answer)) == 3
        assert answer.data["searchPosts"]["pageInfo"]["hasNextPage"] is (page < 3)
        shown += found_post_ids(answer)
        after = answer.data["searchPosts"]["pageInfo"]["endCursor"]

    assert shown == [f"shown{number}" for number in range(11, -1, -1)]


async def test_an_index_that_is_behind_shows_nothing_that_was_deleted_or_hidden(world: Served) -> None:
    await write_searched_post(world, "p1", "word")
    await write_searched_post(world, "p2", "word")
    await sync_index(world)
    assert (await world.ask('mutation { deletePost(id: "p2") { postId } }', user="ada")).errors is None

    assert await find_posts(world, "word", first=1) == ["p1"]
    await sync_index(world)
    assert await find_posts(world, "word") == ["p1"]
    assert (await world.gateway.search.status()).entries[Kind.POSTS] == 1


async def test_paging_continues_while_posts_are_created_and_deleted(world: Served) -> None:
    for number in range(9):
        await write_searched_post(world, f"p{number}", "some word")
    await sync_index(world)
    first = await world.ask(IDS, {"query": "word", "first": 4})
    end = first.data["searchPosts"]["pageInfo"]["endCursor"]

    await write_searched_post(world, "new", "word")
    for gone in ("p5", "p2"):  # delete the post at the cursor, and a later one
        assert (await world.ask(f'mutation {{ deletePost(id: "{gone}") {{ postId }} }}', user="ada")).errors is None
    await sync_index(world)

    assert found_post_ids(first) == ["p8", "p7", "p6", "p5"]
    assert await find_posts(world, "word", after=end) == ["p4", "p3", "p1", "p0"]


async def test_cursors_are_valid_for_the_same_words_and_caller_only(world: Served) -> None:
    for number in range(3):
        await write_searched_post(world, f"p{number}", "some word")
    await sync_index(world)
    answer = await world.ask(IDS, {"query": "Wörd", "first": 1}, user="bob")
    cursor = answer.data["searchPosts"]["pageInfo"]["endCursor"]

    async def codes(query: str, user: str | None) -> list[str]:
        return (await world.ask(IDS, {"query": query, "first": 1, "after": cursor}, user=user)).codes

    assert await codes("word", "bob") == []  # the same words
    assert await codes("some", "bob") == ["BAD_CURSOR"]
    assert await codes("word", "eve") == ["BAD_CURSOR"]
    assert await codes("word", None) == ["BAD_CURSOR"]
    users = await world.ask(USERS, {"query": "word", "after": cursor}, user="bob")
    assert users.codes == ["BAD_CURSOR"]


async def test_users_are_found_by_their_names(world: Served) -> None:
    await sync_index(world)

    async def names(query: str) -> list[str]:
        answer = await world.ask(USERS, {"query": query})
        assert answer.errors is None
        return [node["name"] for node in answer.data["searchUsers"]["nodes"]]

    assert await names("ada") == ["Ada Lovelace", "Adaline Noor"]
    assert await names("LOVE") == ["Ada Lovelace"]
    assert await names("#stone") == ["Bob Stone"]
    changed = await world.ask('mutation { updateUser(input: {name: "Robert Vale"}) { name } }', user="bob")
    assert changed.errors is None
    await sync_index(world)
    assert await names("stone") == []
    assert await names("vale") == ["Robert Vale"]


async def test_pages_of_users(world: Served) -> None:
    await sync_index(world)
    first = (await world.ask(USERS, {"query": "ad", "first": 1})).data["searchUsers"]
    given = {"query": "ad", "first": 1, "after": first["pageInfo"]["endCursor"]}
    second = (await world.ask(USERS, given)).data["searchUsers"]

    assert [node["userId"] for node in first["nodes"] + second["nodes"]] == ["eve", "ada"]
    assert (first["pageInfo"]["hasNextPage"], second["pageInfo"]["hasNextPage"]) == (True, False)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("  ", "`query` must have at least one letter or digit."),
        ("x" * 201, "`query` may have at most 200 characters, not 201."),
        ("a b c d e f g h i j k", "`query` may have at most 10 words, not 11."),
    ],
)
@pytest.mark.parametrize("asked", [POSTS, USERS])
async def test_an_invalid_query_gets_a_clear_error(served: Served, asked: str, query: str, message: str) -> None:
    answer = await served.ask(asked, {"query": query})

    assert [error["message"] for error in answer.errors or ()] == [message]
    assert (answer.errors or [{}])[0]["extensions"] == {"code": "BAD_USER_INPUT", "field": "query"}
    assert answer.calls == []


# Items of other programs, with their keys and documented attributes only.


async def test_posts_without_text_are_found_by_their_tag_items(world: Served) -> None:
    database = world.gateway.database
    assert database is not None
    meta = {"PK": "POST#other", "SK": "META", "author_id": "ada", "created_at": "2026-06-25T12:00:00Z"}
    tag = {"PK": "POST#other", "SK": "TAG#DynamoDB"}
    await put_feed_records(
        database, {**meta, "visibility": "public", "media_ref": "s3://a"}, tag, {"PK": "USER#x", "SK": "META"}
    )
    await put_feed_records(database, {"PK": "POST#other", "SK": "COMMENT#c1", "user_id": "bob", "text_len": 3})
    await sync_index(world)
    assert (await world.gateway.search.status()).entries == {Kind.POSTS: 1, Kind.USERS: 3}

    answer = await world.ask(POSTS, {"query": "#dynamo"})
    assert answer.errors is None
    (node,) = answer.data["searchPosts"]["nodes"]
    assert node == {
        "postId": "other",
        "text": "",
        "visibility": "PUBLIC",
        "likeCount": 0,
        "author": {"name": "Ada Lovelace"},
    }

    await delete_feed_records(database, tag)
    await sync_index(world)
    assert (await world.gateway.search.status()).entries[Kind.POSTS] == 0


async def test_damaged_items_do_not_stop_the_index(world: Served) -> None:
    database = world.gateway.database
    assert database is not None
    odd: list[dict[str, Any]] = [
        {"PK": "POST#a", "SK": "META", "text": 7, "tags": "word", "created_at": "yesterday"},
        {
            "PK": "POST#b",
            "SK": "META",
            "text": "word",
            "tags": {"word"},
            "created_at": 5,
            "visibility": [],
            "author_id": 1,
        },
        {"PK": "USER#u", "SK": "META", "name": ["word"]},
        {"PK": "POST#", "SK": "TAG#"},
        {"PK": "POST#c", "SK": "TAG#" + "%" * 50},
    ]
    await put_feed_records(database, *odd)
    await write_searched_post(world, "good", "word")
    await sync_index(world)

    answer = await world.ask(IDS, {"query": "word"})
    nodes = answer.data["searchPosts"]["nodes"]
    assert nodes == [{"postId": "good"}, None]  # the response contains only the error of a damaged post
    assert answer.codes == ["INTERNAL"]
    done = await world.gateway.background.search_rebuild().run()
    assert (done.posts, done.users) == (2, 3)


@pytest.mark.parametrize(
    "url",
    ["search.example.com", "ftp://a", "https://", "https://user@host", "https://a?b", "https://a:port", "http://[x"],
)
def test_a_url_of_another_host_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(Misconfigured, match="GATEWAY_SEARCH_URL must") as refused:
        Settings(secret="s" * 40, search_url=url)
    assert "user@host" not in str(refused.value)
