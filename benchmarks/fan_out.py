"""What a post to very many followers costs, and an author who has too many of them for a fan-out."""

import itertools
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from benchmarks.data import NOON, open_store
from benchmarks.feed_data import Writer, engine_on_file, words
from benchmarks.feed_pipeline import Cost, Pipeline, consuming
from benchmarks.queries import Measured, QueryResult
from benchmarks.queries import measure as measure_queries
from benchmarks.server import Server, serving
from datastore.dynamodb.client import Client
from datastore.feeds.fan_out import FanOuts
from datastore.keyspace.feeds import home_feeds as keys
from datastore.model.timestamps import iso

AUTHOR, STAR, SMALL = "author", "star", "small"
READER, READER_OF_STAR = "reader", "reader-of-star"
SIZE = 25
REQUESTS = 20
CREATE = "mutation ($post: ID!, $text: String!) { createPost(input: {postId: $post, text: $text}) { createdAt } }"
DELETE = "mutation ($post: ID!) { deletePost(postId: $post) { postId } }"


@dataclass(frozen=True, slots=True)
class Step:
    """What happened after one mutation. `seconds` from asking for it until the last feed was written.

    None when no feed was. `of_gateway` is what the mutation itself used.
    """

    name: str
    seconds: float | None
    cost: Cost
    of_gateway: Cost


@dataclass(frozen=True, slots=True)
class FanOutResult:
    """`pages` are of a home feed without and with the posts of an author who is merged."""

    followers: int
    steps: list[Step]
    pages: list[QueryResult]


async def measure(followers: int, rounds: int, effort: float) -> FanOutResult:
    """An author has so many followers, which is the bound, and another one more."""
    async with engine_on_file() as database:
        assert database.engine is not None
        await _fill(database.client, followers)
        url = database.engine.endpoint
        async with consuming(url, database.client, followers) as pipeline, serving(url) as server:
            await pipeline.run()
            await pipeline.settled()
            steps = await _steps(_Steps(server, pipeline, database.client), followers)
            pages = await measure_queries(server, rounds, effort, [*_pages()], concurrencies=(1,))
    return FanOutResult(followers, steps, pages)


async def _fill(client: Client, followers: int) -> None:
    """Followers are no users here: the fan-out asks only who follows. The readers are among them."""
    writer = Writer(client)
    for user in (AUTHOR, STAR, SMALL, READER, READER_OF_STAR):
        await writer.user(user)
    names = _followers(followers)
    await writer.followed(AUTHOR, names)
    await writer.followed(STAR, [*names, READER_OF_STAR])
    for reader in (READER, READER_OF_STAR):
        await writer.follow(reader, SMALL)
    for number in range(2 * SIZE):
        await writer.post(f"small-{number}", SMALL, NOON - timedelta(minutes=number + 1), ("coffee", "huila"))


def _followers(number: int) -> list[str]:
    return [f"follower-{one:05}" for one in range(number)]


async def _steps(steps: "_Steps", followers: int) -> list[Step]:
    names = _followers(followers)
    create = {"post": "post-1", "text": words(1, ("coffee", "huila"))}
    written = await steps.take(f"a post to {followers:,} followers", AUTHOR, CREATE, create)
    await steps.see(names, "post-1", there=True)
    deleted = await steps.take("its deletion", AUTHOR, DELETE, {"post": "post-1"})
    await steps.see(names, "post-1", there=False)
    text = {"text": words(2, ("coffee", "huila"))}
    promoted = await steps.take(
        f"the first post to {followers + 1:,}: the author is merged", STAR, CREATE, {"post": "star-1", **text}
    )
    await steps.merged(STAR)
    following = await steps.take("the next post of that author", STAR, CREATE, {"post": "star-2", **text})
    await steps.see(names, "star-2", there=False)
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
        await self._pipeline.settled()
        told = await self._pipeline.tell()
        last: float | None = told["last_batch"]
        of_gateway = Cost(used.cpu, used.calls, used.units, used.write_units)
        return Step(name, None if last is None else last - began, Cost.of(told), of_gateway)

    async def see(self, followers: list[str], post_id: str, *, there: bool) -> None:
        """All of the feeds must have the post, or none."""
        entries = [keys.entry(follower, iso(NOON), post_id) for follower in followers]
        found = 0
        for at in range(0, len(entries), 100):
            batch = [{"PK": {"S": key.partition}, "SK": {"S": key.sort}} for key in entries[at : at + 100]]
            request = {"RequestItems": {keys.HOME_FEED.table.name: {"Keys": batch}}}
            answer = await self._client.call("BatchGetItem", request)
            found += len(answer["Responses"][keys.HOME_FEED.table.name])
        if found != (len(followers) if there else 0):
            raise RuntimeError(f"{found} of {len(followers)} feeds have {post_id}.")

    async def merged(self, author_id: str) -> None:
        author = await FanOuts(open_store(self._client), NOON).author(author_id)
        if author.merged_since is None:
            raise RuntimeError(f"{author_id} is not merged.")


def _pages() -> list[Measured]:
    """The star's two posts are the newest that its reader has."""
    post = "post { text createdAt likeCount commentCount author { name avatarRef } }"
    found = []
    for user, name, newest in (
        (READER, "a home feed without", SMALL),
        (READER_OF_STAR, "the same with an author merged", STAR),
    ):
        for extra, fields in (("", ""), (", with posts and authors", post)):
            query = f'{{ homeFeed(userId: "{user}", first: {SIZE}) {{ nodes {{ postId authorId {fields} }} }} }}'
            found.append(_page(f"{name}{extra}", query, user, newest))
    return found


def _page(name: str, query: str, user: str, newest: str) -> Measured:
    def holds(data: Mapping[str, Any]) -> bool:
        nodes = data["homeFeed"]["nodes"]
        return len(nodes) == SIZE and nodes[0]["authorId"] == newest and all(node.get("post", True) for node in nodes)

    return Measured(name, query, lambda: itertools.repeat({}), holds, REQUESTS, user)
