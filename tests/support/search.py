"""Posts and their search through the API."""

from typing import Any

from datastore.model.identity import Role
from tests.support.feed_changes import feed_changes
from tests.support.served import Answer, Served

IDS = """query ($query: String!, $first: Int, $after: String) {
  searchPosts(query: $query, first: $first, after: $after) {
    nodes { postId } edges { cursor } pageInfo { hasNextPage endCursor }
  }
}"""
USERS = """query ($query: String!, $first: Int, $after: String) {
  searchUsers(query: $query, first: $first, after: $after) {
    nodes { userId name } pageInfo { hasNextPage endCursor }
  }
}"""
CREATE = "mutation ($input: CreatePostInput!) { createPost(input: $input) { postId } }"
JOIN = "mutation ($name: String!) { createUser(input: {name: $name}) { userId } }"


async def sync_index(served: Served) -> None:
    """Apply all changes to the index, including those applied before."""
    assert served.gateway.database is not None
    await served.gateway.background.search_sync().handle(await feed_changes(served.gateway.database))


async def join(served: Served, **names: str) -> None:
    for user, name in names.items():
        assert (await served.ask(JOIN, {"name": name}, user=user)).errors is None
        served.clock.forward(seconds=1)


async def write_searched_post(
    served: Served, post_id: str, text: str, user: str = "ada", visibility: str = "PUBLIC"
) -> None:
    served.clock.forward(seconds=1)
    given = {"postId": post_id, "text": text, "visibility": visibility}
    assert (await served.ask(CREATE, {"input": given}, user=user)).errors is None


async def find_posts(served: Served, query: str, user: str | None = None, **given: Any) -> list[str]:
    """Return the ids of the posts on one page."""
    role = given.pop("role", Role.USER)
    answer = await served.ask(IDS, {"query": query, **given}, user=user, role=role)
    assert answer.errors is None
    return found_post_ids(answer)


def found_post_ids(answer: Answer) -> list[str]:
    return [node["postId"] for node in answer.data["searchPosts"]["nodes"]]
