"""The calls and units of the feed's mutations and of its pipeline, as docs/feed-costs.md states them."""

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

import pytest

from datastore.dynamodb.calls import ITEM_WRITES, Call
from datastore.feeds.follows import Follow, edge_item
from pipelines.consumer.handlers import Handler
from pipelines.feeds.handlers import feed_handlers
from tests.support.contract import database_of, every_call
from tests.support.feed_changes import feed_changes
from tests.support.feed_items import following_item, post_item, user_item
from tests.support.home_feeds import put_feed_items
from tests.support.served import NOON, Served
from tests.support.store_engines import ROOT

FOLLOWERS = 20
# A leaderboard has at most 100 authors: with these the month's is full.
AUTHORS = [f"user-{number:03}" for number in range(100)]
FANS = [f"fan-{number:02}" for number in range(FOLLOWERS)]
TEXT = "A text of some words about the second harbour of the town, with #coffee and #harbour, as people write it."
# By name: an operation of `actor`. Those with a count select it in the response.
OPERATIONS = {
    "a like": 'likePost(postId: "post-000") { createdAt }',
    "a like taken back": 'unlikePost(postId: "post-000") { createdAt }',
    "a like with `likeCount`": 'likePost(postId: "post-001") { post { likeCount } }',
    "a like taken back with `likeCount`": 'unlikePost(postId: "post-001") { post { likeCount } }',
    "a comment": 'createComment(postId: "post-002", input: {text: "Nice, and well said"}) { text }',
    "a comment with `commentCount`": 'createComment(postId: "post-003", input: {text: "Hi"}) { post { commentCount } }',
    "a follow": 'follow(userId: "user-004") { createdAt }',
    "a follow taken back": 'unfollow(userId: "user-004") { createdAt }',
    "a follow with `followerCount`": 'follow(userId: "user-005") { user { followerCount } }',
    "the first post of a day": f'createPost(input: {{postId: "1", text: "{TEXT}"}}) {{ postId }}',
    "a post with 2 tags": f'createPost(input: {{postId: "2", text: "{TEXT}"}}) {{ postId }}',
    "a post with 2 tags, with `postCount`": (
        f'createPost(input: {{postId: "3", text: "{TEXT}"}}) {{ author {{ postCount }} }}'
    ),
    "the deletion of a post": 'deletePost(id: "3") { postId }',
}
STREAM = {"DescribeStream", "DescribeTable", "GetShardIterator", "GetRecords", "ListStreams"}


@dataclass(frozen=True)
class Cost:
    """The calls of an operation, and the units that they consumed."""

    calls: str
    write_units: float
    read_units: float

    @classmethod
    def of(cls, calls: Iterable[Call]) -> "Cost":
        made = [call for call in calls if call.operation not in STREAM]
        counts = sorted(Counter(call.operation for call in made).items())
        written = sum(call.units for call in made if call.operation in ITEM_WRITES)
        names = " + ".join(f"{number} {operation}" for operation, number in counts)
        return cls(names, written, sum(call.units for call in made) - written)

    @property
    def units(self) -> str:
        return f"{self.write_units:g} | {self.read_units:g}"


class FeedHandlers:
    """The handlers of the feed's stream, which handle all pending changes when a test lets them."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self._handlers: Sequence[Handler] = feed_handlers(served.store, served.clock)
        self._handled = 0

    async def settle(self) -> int:
        """Handle the pending changes, and those that the handlers cause. Return their number."""
        before = self._handled
        while changes := await feed_changes(database_of(self._served), since=self._handled):
            self._handled += len(changes)
            for handler in self._handlers:
                await handler.handle(changes)
        return self._handled - before


async def store_month_of_authors(served: Served) -> None:
    """Store a month with more authors than a leaderboard has, and a user with 20 followers."""
    users = [user_item(user) for user in (*AUTHORS, *FANS, "actor")]
    posts = [post_item(f"post-{at:03}", user, NOON - timedelta(seconds=at)) for at, user in enumerate(AUTHORS)]
    follows = [(following_item(fan, "actor"), edge_item(Follow(fan, "actor", NOON))) for fan in FANS]
    await put_feed_items(served, *users, *posts, *itertools.chain(*follows))


def rows_of_page() -> dict[str, str]:
    """Return the rows of the table in the page, by the operation."""
    page = (ROOT / "docs/feed-costs.md").read_text()
    return dict(re.findall(r"^\| ((?:a|the) [^|]*) \| (\d .*) \|$", page, re.M))


@pytest.mark.proof
async def test_the_page_states_what_each_operation_of_the_feed_costs(served: Served) -> None:
    handlers = FeedHandlers(served)
    await store_month_of_authors(served)
    await handlers.settle()

    rows = {}
    for name, operation in OPERATIONS.items():
        answer = await served.ask(f"mutation {{ {operation} }}", user="actor")
        assert answer.errors is None, answer.errors
        with every_call(served) as calls:
            records = await handlers.settle()
        own, later = Cost.of(answer.calls), Cost.of(calls)
        rows[name] = f"{own.calls} | {own.units} | {records} | {later.units} | {later.calls}"

    assert rows_of_page() == rows
