"""The cost of a post to 10,000 followers, and of posts by an author with too many followers for fan-out on write."""

import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from benchmarks.data import NOON, open_store
from benchmarks.feed_data import Writer, engine_on_file, words
from benchmarks.feed_pipeline import Cost, Pipeline, consuming
from benchmarks.queries import MeasuredQuery, QueryResult
from benchmarks.queries import measure as measure_queries
from benchmarks.server import Server, serving
from datastore.dynamodb.client import Client
from datastore.feeds.fan_out import FanOuts
from datastore.keyspace.feeds import home_feeds as keys
from datastore.model.timestamps import iso

AUTHOR, POPULAR_AUTHOR, SMALL_AUTHOR = "author", "star", "small"
READER, READER_OF_POPULAR = "reader", "reader-of-star"
SIZE = 25
REQUESTS = 20
CREATE = "mutation ($post: ID!, $text: String!) { createPost(input: {postId: $post, text: $text}) { createdAt } }"
DELETE = "mutation ($post: ID!) { deletePost(postId: $post) { postId } }"


@dataclass(frozen=True, slots=True)
class Step:
    """The cost of one mutation."""

    name: str
    #: The time from the request until the last feed was written. None if no feed was written.
    seconds: float | None
    #: The cost of the pipeline.
    cost: Cost
    #: The cost of the mutation in the gateway.
    of_gateway: Cost


@dataclass(frozen=True, slots=True)
class FanOutResult:
    """The cost of the mutations, and of reading home feeds."""

    followers: int
    steps: list[Step]
    #: Pages of a home feed without and with the posts of a merged author.
    pages: list[QueryResult]


async def measure(followers: int, rounds: int, effort: float) -> FanOutResult:
    """Measure with one author who has `followers` followers, which is the bound, and another with one more."""
    async with engine_on_file() as database:
        assert database.engine is not None
        await _fill(database.client, followers)
        url = database.engine.endpoint
        async with consuming(url, database.client, followers) as pipeline, serving(url) as server:
            await pipeline.run()
            await pipeline.wait_until_handled()
            steps = await _steps(_Steps(server, pipeline, database.client), followers)
            pages = await measure_queries(server, rounds, effort, [*_pages()], concurrencies=(1,))
    return FanOutResult(followers, steps, pages)


async def _fill(client: Client, followers: int) -> None:
    """Write the authors, the readers and the follows. The followers are no users: the fan-out reads only edges."""
    writer = Writer(client)
    for user in (AUTHOR, POPULAR_AUTHOR, SMALL_AUTHOR, READER, READER_OF_POPULAR):
        await writer.user(user)
    names = _followers(followers)
    await writer.followed(AUTHOR, names)
    await writer.followed(POPULAR_AUTHOR, [*names, READER_OF_POPULAR])
    for reader in (READER, READER_OF_POPULAR):
        await writer.follow(reader, SMALL_AUTHOR)
    for number in range(2 * SIZE):
        await writer.post(f"small-{number}", SMALL_AUTHOR, NOON - timedelta(minutes=number + 1), ("coffee", "huila"))


def _followers(number: int) -> list[str]:
    return [f"follower-{index:05}" for index in range(number)]


async def _steps(steps: "_Steps", followers: int) -> list[Step]:
    names = _followers(followers)
    create = {"post": "post-1", "text": words(1, ("coffee", "huila"))}
    written = await steps.take(f"a post to {followers:,} followers", AUTHOR, CREATE, create)
    await steps.check_feeds(names, "post-1", expected=True)
    deleted = await steps.take("its deletion", AUTHOR, DELETE, {"post": "post-1"})
    await steps.check_feeds(names, "post-1", expected=False)
    text = {"text": words(2, ("coffee", "huila"))}
    promoted = await steps.take(
        f"the first post to {followers + 1:,}: the author is merged",
        POPULAR_AUTHOR,
        CREATE,
        {"post": "star-1", **text},
    )
    await steps.check_merged(POPULAR_AUTHOR)
    following = await steps.take("the next post of that author", POPULAR_AUTHOR, CREATE, {"post": "star-2", **text})
    await steps.check_feeds(names, "star-2", expected=False)
    return [written, deleted, promoted, following]


class _Steps:
    def __init__(self, server: Server, pipeline: Pipeline, client: Client) -> None:
        self._server = server
        self._pipeline = pipeline
        self._client = client

    async def take(self, name: str, user: str, mutation: str, variables: Mapping[str, Any]) -> Step:
        await self._pipeline.begin()
        before = await self._server.usage()
        began = time.monotonic()
        await self._server.ask(user, mutation, variables)
        used = (await self._server.usage()).since(before)
        await self._pipeline.wait_until_handled()
        usage = await self._pipeline.report()
        last: float | None = usage["last_batch"]
        of_gateway = Cost(used.cpu, used.calls, used.units, used.write_units)
        return Step(name, None if last is None else last - began, Cost.of(usage), of_gateway)

    async def check_feeds(self, followers: list[str], post_id: str, *, expected: bool) -> None:
        """Raise `RuntimeError` unless all feeds contain the post, or none of them if it is not expected."""
        entries = [keys.entry(follower, iso(NOON), post_id) for follower in followers]
        found = 0
        for at in range(0, len(entries), 100):
            batch = [{"PK": {"S": key.partition}, "SK": {"S": key.sort}} for key in entries[at : at + 100]]
            request = {"RequestItems": {keys.HOME_FEED.table.name: {"Keys": batch}}}
            answer = await self._client.call("BatchGetItem", request)
            found += len(answer["Responses"][keys.HOME_FEED.table.name])
        if found != (len(followers) if expected else 0):
            raise RuntimeError(f"{found} of {len(followers)} feeds have {post_id}.")

    async def check_merged(self, author_id: str) -> None:
        author = await FanOuts(open_store(self._client), NOON).author(author_id)
        if author.merged_since is None:
            raise RuntimeError(f"{author_id} is not merged.")


def _pages() -> list[MeasuredQuery]:
    """Return the queries. The two posts of the popular author are the newest ones in its reader's feed."""
    post = "post { text createdAt likeCount commentCount author { name avatarRef } }"
    found = []
    for user, name, newest in (
        (READER, "a home feed without", SMALL_AUTHOR),
        (READER_OF_POPULAR, "the same with an author merged", POPULAR_AUTHOR),
    ):
        for extra, fields in (("", ""), (", with posts and authors", post)):
            query = f'{{ homeFeed(userId: "{user}", first: {SIZE}) {{ nodes {{ postId authorId {fields} }} }} }}'
            found.append(_page(f"{name}{extra}", query, user, newest))
    return found


def _page(name: str, query: str, user: str, newest: str) -> MeasuredQuery:
    def holds(data: Mapping[str, Any]) -> bool:
        nodes = data["homeFeed"]["nodes"]
        return len(nodes) == SIZE and nodes[0]["authorId"] == newest and all(node.get("post", True) for node in nodes)

    return MeasuredQuery(name, query, lambda: itertools.repeat({}), holds, REQUESTS, user)
