"""Searches (FEED-N5, FEED-N6) of documented items of the table `feed`: alone, and mixed with our own posts."""

from collections.abc import Sequence

import pytest

from tests.support.answers import data_of
from tests.support.documents_feed import DOCUMENT, ours
from tests.support.feed_documents import write_feed_items
from tests.support.pattern_coverage import covers
from tests.support.search import IDS, USERS, find_posts, sync_index
from tests.support.served import Served

__all__ = ["ours"]


@covers("FEED-N5")
async def test_posts_without_text_are_found_by_their_tags(served: Served, ours: Sequence[str]) -> None:
    await sync_index(served)

    # Each side has one post with the tag. The documented one has a time in whole seconds.
    assert await find_posts(served, "#dynamodb") == [*ours, "abc123", "older"]
    assert await find_posts(served, "#dynamodb", user="u001") == [*ours, "abc123", "older", "fans", "secret"]


async def test_pages_with_documented_posts_are_full(served: Served, ours: Sequence[str]) -> None:
    await sync_index(served)
    found: list[str] = []
    after = None
    while True:
        page = data_of(await served.ask(IDS, {"query": "#dynamodb", "first": 1, "after": after}))["searchPosts"]
        found += [node["postId"] for node in page["nodes"]]
        after = page["pageInfo"]["endCursor"]
        if not page["pageInfo"]["hasNextPage"]:
            break

    assert found == [*ours, "abc123", "older"]


@covers("FEED-N6")
@pytest.mark.usefixtures("ours")
async def test_documented_users_are_found_by_name(served: Served) -> None:
    await sync_index(served)

    users = data_of(await served.ask(USERS, {"query": "U00"}))["searchUsers"]["nodes"]

    assert sorted(user["userId"] for user in users) == ["u001", "u002", "u003"]


async def test_a_rebuilt_index_finds_documented_posts(served: Served, ours: Sequence[str]) -> None:
    await sync_index(served)
    write_feed_items(served, *DOCUMENT)
    rebuilt = await served.gateway.background.search_rebuild().run()

    assert (rebuilt.posts, rebuilt.users) == (4 + len(ours), 3 + bool(ours))
    assert await find_posts(served, "#dynamodb") == [*ours, "abc123", "older"]
