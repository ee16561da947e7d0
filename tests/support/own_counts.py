"""Mutations with counts in their responses, and a consumer that counts the feed's changes when a test lets it."""

from collections.abc import Callable, Collection
from typing import Any

import pytest

from datastore.change_streams.change import Change
from datastore.keyspace.feeds.pipeline import FEED_PIPELINE
from datastore.model.ids import uuid7
from pipelines.feeds.counters import Counters
from tests.support.feed_changes import feed_changes, items_of, put_feed_records
from tests.support.feed_items import post_item, user_item
from tests.support.feed_steps import mutate
from tests.support.served import NOON, Served

POST = "post { likeCount commentCount likedByViewer }"
LIKE = f"mutation ($post: ID!) {{ likePost(postId: $post) {{ {POST} }} }}"
UNLIKE = f"mutation ($post: ID!) {{ unlikePost(postId: $post) {{ {POST} }} }}"
ADD = f"""mutation ($post: ID!, $id: ID!) {{
  createComment(postId: $post, input: {{commentId: $id, text: "Hi"}}) {{ {POST} }} }}"""
DELETE = f"mutation ($post: ID!, $id: ID!) {{ deleteComment(postId: $post, commentId: $id) {{ {POST} }} }}"
USER = "user { followerCount followingCount followedByViewer }"
FOLLOW = f"mutation ($id: ID!) {{ follow(userId: $id) {{ {USER} }} }}"
UNFOLLOW = f"mutation ($id: ID!) {{ unfollow(userId: $id) {{ {USER} }} }}"
CREATE = """mutation ($id: ID!, $who: Visibility!) {
  createPost(input: {postId: $id, text: "Hi", visibility: $who}) { author { postCount } } }"""
DELETE_POST = "mutation ($id: ID!) { deletePost(id: $id) { author { postCount } } }"
COMMENT_IDS = [uuid7(NOON, f"{number:032x}") for number in range(2)]


class CountingConsumer:
    """The handler of counters, which handles changes one call at a time."""

    def __init__(self, served: Served) -> None:
        assert served.gateway.database is not None
        self._database = served.gateway.database
        self._counters = Counters(served.store, served.clock)
        self._handled: set[str] = set()

    async def pending(self) -> list[Change]:
        """Return the changes that were not handled, in their order."""
        return [change for change in await feed_changes(self._database) if change.sequence not in self._handled]

    async def count(self, changes: Collection[Change] | None = None) -> None:
        """Handle these changes, by default all that are pending."""
        changes = await self.pending() if changes is None else changes
        await self._counters.handle([*changes])
        self._handled |= {change.sequence for change in changes}

    async def skip(self) -> None:
        """Handle no pending change."""
        self._handled |= {change.sequence for change in await self.pending()}

    async def count_where(self, is_counted: Callable[[Change], bool]) -> None:
        """Handle the pending changes that satisfy the condition."""
        await self.count([change for change in await self.pending() if is_counted(change)])

    async def marks(self) -> list[dict[str, Any]]:
        """Return the marks of counted changes."""
        items = await items_of(self._database, FEED_PIPELINE)
        return [item for item in items if item["SK"].startswith("CHANGE#")]


@pytest.fixture
def consumer(served: Served) -> CountingConsumer:
    return CountingConsumer(served)


async def likes_after(served: Served, mutation: str, post: str = "p", user: str = "eve") -> tuple[int, bool]:
    """Return the count and the flag of the post in the response of a mutation."""
    shown = (await mutate(served, mutation, user, post=post))["post"]
    return shown["likeCount"], shown["likedByViewer"]


async def stored_post(served: Served, likes: int = 0, comments: int = 0, post: str = "p") -> None:
    """Store a post that others like, and a user."""
    assert served.gateway.database is not None
    await put_feed_records(
        served.gateway.database, user_item("eve"), post_item(post) | {"likes": likes, "comments": comments}
    )
