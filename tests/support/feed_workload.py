"""A random workload on the feed through GraphQL over HTTP, and the comparison of its result with the model."""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from datastore.dynamodb.client import Client
from datastore.keyspace.feeds import pipeline as keys
from datastore.keyspace.feeds.table import FEED
from datastore.model.identity import Role
from datastore.model.ids import uuid7
from datastore.session.store import Store
from tests.support.feed_model import Chooser as OperationChooser
from tests.support.feed_model import FeedModel
from tests.support.served import Clock, Served

# Refusals due to concurrent operations: a post that was deleted or may not be seen.
REFUSALS = {"NOT_FOUND", "CONFLICT", "FORBIDDEN"}
STEP = timedelta(seconds=41)

MUTATIONS = {
    "create_post": """mutation ($post: ID!, $text: String!, $visibility: Visibility!) {
      done: createPost(input: {postId: $post, text: $text, visibility: $visibility}) {
        createdAt tags mentionedUserIds } }""",
    "delete_post": "mutation ($post: ID!) { done: deletePost(id: $post) { postId } }",
    "like": "mutation ($post: ID!) { done: likePost(postId: $post) { createdAt } }",
    "unlike": "mutation ($post: ID!) { done: unlikePost(postId: $post) { createdAt } }",
    "comment": """mutation ($post: ID!, $comment: ID!, $text: String!) {
      done: createComment(postId: $post, input: {commentId: $comment, text: $text}) { createdAt mentionedUserIds } }""",
    "delete_comment": """mutation ($post: ID!, $comment: ID!) {
      done: deleteComment(postId: $post, commentId: $comment) { commentId } }""",
    "follow": "mutation ($other: ID!) { done: follow(userId: $other) { createdAt } }",
    "unfollow": "mutation ($other: ID!) { done: unfollow(userId: $other) { createdAt } }",
}


class FeedWorkload:
    """Users with one operation at a time each, all concurrently."""

    def __init__(self, served: Served, clock: Clock, *, users: int, seed: int) -> None:
        self.served = served
        self.clock = clock
        self.users = [f"user{number:03d}" for number in range(users)]
        self.rng = random.Random(seed)
        self.model = FeedModel()
        self._chooser = OperationChooser(self.users, self.rng, self._comment_id)
        self.done: Counter[str] = Counter()

    def _comment_id(self) -> str:
        return uuid7(self.clock(), str(UUID(int=self.rng.getrandbits(128))))

    async def enter(self) -> None:
        """Create a profile for each user."""
        for user in self.users:
            answer = await self.served.ask(
                f'mutation {{ createUser(input: {{name: "{user}"}}) {{ userId }} }}', user=user
            )
            assert answer.errors is None, answer.errors

    async def run(self, operations: int, at_once: int = 16) -> None:
        """Execute this number of operations by random users, `at_once` of them
        concurrently if there are enough users.
        """
        at_once = min(at_once, len(self.users))
        await self._run([range(operations // at_once) for _ in range(at_once)])

    async def work_until(self, over: asyncio.Event, at_once: int = 12) -> None:
        """Execute operations by random users, `at_once` of them concurrently, until `over` is set."""
        await self._run([iter(over.is_set, True) for _ in range(at_once)])

    async def _run(self, shares: Sequence[Iterable[object]]) -> None:
        free = set(self.users)

        async def work(share: Iterable[object]) -> None:
            for _ in share:
                user = self.rng.choice(sorted(free))
                free.discard(user)
                try:
                    await self._do(user)
                finally:
                    free.add(user)

        await asyncio.gather(*[work(share) for share in shares])

    async def _do(self, user: str) -> None:
        operation = self._chooser.next(user)
        self.clock.now += STEP * self.rng.random()
        variables = {
            name: value
            for name in ("post", "other", "comment", "text", "visibility")
            if f"${name}:" in MUTATIONS[operation.kind] and (value := getattr(operation, name))
        }
        answer = await self.served.ask(MUTATIONS[operation.kind], variables, user=user)
        self.done[operation.kind] += 1
        if answer.errors:
            assert set(answer.codes) <= REFUSALS, (operation, answer.errors)
            return
        self.model.answered(operation, answer.data["done"])
        if operation.kind == "create_post" and operation.visibility != "PRIVATE":
            self._chooser.created(operation)


async def pipeline_settled(client: Client, store: Callable[[], Store], prefix: str, seconds: float = 120) -> None:
    """Wait until the pipeline has handled every record of the feed's stream,
    including those that the handlers write.
    """
    stream = (await client.call("DescribeTable", {"TableName": prefix + FEED.name}))["Table"]["LatestStreamArn"]
    async with asyncio.timeout(seconds):
        while not await _is_at_end(client, store, stream):  # noqa: ASYNC110 - it is over the wire
            await asyncio.sleep(0.1)


async def _is_at_end(client: Client, store: Callable[[], Store], stream: str) -> bool:
    """Return whether the checkpoint of the engine's only shard is at its end."""
    leases = [item async for item in store().query_all(keys.LEASES, keys.lease.values_of(stream))]
    if not leases or not leases[0].get("checkpoint"):
        return False
    start = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": leases[0]["checkpoint"]}
    answer = await client.call("GetShardIterator", {"StreamArn": stream, "ShardId": leases[0]["SK"], **start})
    return not (await client.call("GetRecords", {"ShardIterator": answer["ShardIterator"], "Limit": 1}))["Records"]


class Found:
    """The result of the workload, read through the API as an operator."""

    def __init__(self, served: Served, users: list[str]) -> None:
        self._served = served
        self._users = users

    async def _ask(self, query: str, variables: dict[str, Any]) -> Any:
        answer = await self._served.ask(query, variables, user="root", role=Role.ADMIN)
        assert answer.errors is None, answer.errors
        return answer.data

    async def _pages(self, field: str, nodes: str, user: str) -> list[Any]:
        found: list[Any] = []
        after = None
        argument = "authorId" if field == "postsByAuthor" else "userId"
        query = f"""query ($user: ID!, $after: String) {{ page: {field}({argument}: $user, first: 100, after: $after) {{
            nodes {{ {nodes} }} pageInfo {{ hasNextPage endCursor }} }} }}"""
        while True:
            page = (await self._ask(query, {"user": user, "after": after}))["page"]
            found += page["nodes"]
            if not page["pageInfo"]["hasNextPage"]:
                return found
            after = page["pageInfo"]["endCursor"]

    async def _each(self, ask: Callable[[str], Awaitable[Any]]) -> dict[str, Any]:
        return {user: await ask(user) for user in self._users}

    async def post_counts(self) -> dict[str, tuple[int, int]]:
        posts = await self._each(lambda user: self._pages("postsByAuthor", "postId likeCount commentCount", user))
        return {post["postId"]: (post["likeCount"], post["commentCount"]) for found in posts.values() for post in found}

    async def user_counts(self) -> dict[str, tuple[int, int, int]]:
        query = "query ($user: ID!) { user(id: $user) { postCount followerCount followingCount } }"

        async def counts(user: str) -> tuple[int, int, int]:
            found = (await self._ask(query, {"user": user}))["user"]
            return found["postCount"], found["followerCount"], found["followingCount"]

        return await self._each(counts)

    async def feeds(self) -> dict[str, list[str]]:
        """Return the posts of each home feed in its order."""
        feeds = await self._each(lambda user: self._pages("homeFeed", "postId post { postId }", user))
        assert all(entry["post"] for feed in feeds.values() for entry in feed)
        return {user: [entry["postId"] for entry in feed] for user, feed in feeds.items()}

    async def notifications(self) -> dict[str, Counter[tuple[str, str | None, str | None, int, str]]]:
        fields = "kind postId commentId actorCount actorId"
        received = await self._each(lambda user: self._pages("notifications", fields, user))
        return {
            user: Counter(
                (
                    one["kind"],
                    one["postId"],
                    one["commentId"],
                    one["actorCount"],
                    one["actorId"] if one["actorCount"] == 1 else "",
                )
                for one in found
            )
            for user, found in received.items()
        }

    async def top_authors(self, month: str) -> list[tuple[str, int, int, int]]:
        query = (
            "query ($at: DateTime!) { topAuthors(at: $at, first: 100) { authorId postCount likeCount commentCount } }"
        )
        ranks = (await self._ask(query, {"at": f"{month}-01T00:00:00Z"}))["topAuthors"]
        return [(rank["authorId"], rank["postCount"], rank["likeCount"], rank["commentCount"]) for rank in ranks]

    async def trending(self, window: str) -> list[tuple[str, int]]:
        at = f"{window}:30:00Z" if "T" in window else f"{window}T12:00:00Z"
        query = """query ($period: TagPeriod!, $at: DateTime!) {
          trendingTags(period: $period, at: $at, first: 100) { tag postCount } }"""
        found = await self._ask(query, {"period": "HOUR" if "T" in window else "DAY", "at": at})
        return [(one["tag"], one["postCount"]) for one in found["trendingTags"]]


async def compare_with_feed_model(workload: FeedWorkload) -> None:
    """Check that every counter, feed, notification list and board equals the model's."""
    assert await feed_differences(workload) == {}


async def feed_differences(workload: FeedWorkload) -> dict[str, Any]:
    """Return what is found, and what the model has instead, of each counter, feed, notification list and board."""
    model, users, found = workload.model, workload.users, Found(workload.served, workload.users)
    pairs: dict[str, tuple[Any, Any]] = {
        "counts of posts": (await found.post_counts(), model.post_counts()),
        "counts of users": (await found.user_counts(), model.user_counts(users)),
        "notifications": (await found.notifications(), model.notifications(users)),
    }
    feeds, expected = await found.feeds(), model.feeds(users)
    moments = {post_id: post.created_at for post_id, post in model.posts.items()}
    newest_first = {
        user: sorted(feed, key=lambda post: moments.get(post, ""), reverse=True) for user, feed in feeds.items()
    }
    pairs["order of feeds"] = feeds, newest_first
    pairs["feeds"] = {user: sorted(feed) for user, feed in feeds.items()}, {u: sorted(expected[u]) for u in users}
    for month in sorted({post.created_at[:7] for post in model.posts.values()}):
        pairs[f"authors of {month}"] = _ranked(await found.top_authors(month)), _ranked(model.top_authors(month))
    days = sorted({post.created_at[:10] for post in model.posts.values()})
    # Counts by hour are kept for three days.
    kept = before(timedelta(days=2)).isoformat()[:13]
    hours = sorted({hour for post in model.posts.values() if (hour := post.created_at[:13]) > kept})
    for window in (*days[-3:], *hours[-5:]):
        pairs[f"tags of {window}"] = _ranked(await found.trending(window)), _ranked(model.trending(window))
    return {
        f"{name}: {key}": (has.get(key), should.get(key))
        for name, (has, should) in pairs.items()
        for key in {**has, **should}
        if has.get(key) != should.get(key)
    }


def _ranked(rows: list[Any]) -> dict[int, Any]:
    return dict(enumerate(rows))


def before(time: timedelta) -> datetime:
    """Return the moment this long ago."""
    return datetime.now(UTC) - time
