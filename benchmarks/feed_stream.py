"""The throughput of one instance of the feed's pipeline, and its cost for each kind of operation."""

import random
import time
from collections import Counter
from collections.abc import Awaitable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from benchmarks.data import NOON, SEED
from benchmarks.feed_data import Writer, engine_on_file, gather_writes, words
from benchmarks.feed_pipeline import Cost, Pipeline, consuming, mean
from benchmarks.server import Server, serving
from datastore.feeds.posts import Post

USERS = [f"user-{number:03}" for number in range(200)]
FOLLOWERS = 20
REPEATS = 8
ACTORS = [f"actor-{number}" for number in range(REPEATS + 1)]
# The operations of each kind in a hundred.
MIX = {"like": 60, "comment": 20, "follow": 12, "post": 8}
BETWEEN = timedelta(milliseconds=100)
TAGS = ("coffee", "tea", "cake", "huila", "latte", "roast", "beans", "filter")

MUTATIONS = {
    "a like": "mutation ($post: ID!) { likePost(postId: $post) { createdAt } }",
    "a comment": "mutation ($post: ID!, $text: String!) { addComment(input: {postId: $post, text: $text}) { text } }",
    "a follow": "mutation ($other: ID!) { follow(userId: $other) { followedAt } }",
    f"a post: 2 tags, {FOLLOWERS} followers": """mutation ($new: ID!, $tagged: String!) {
      createPost(input: {postId: $new, text: $tagged}) { postId } }""",
    "its deletion": "mutation ($new: ID!) { deletePost(postId: $new) { postId } }",
    "a like taken back": "mutation ($post: ID!) { unlikePost(postId: $post) { createdAt } }",
    "a follow taken back": "mutation ($other: ID!) { unfollow(userId: $other) { followedAt } }",
}


@dataclass(frozen=True, slots=True)
class StreamResult:
    """The cost of a stream of mixed operations, and of single operations."""

    #: The number of operations by kind.
    done: Mapping[str, int]
    #: The time in which the pipeline handled them, and its cost.
    seconds: float
    cost: Cost
    #: The means of the gateway and of the pipeline for one operation, by name.
    alone: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]]


async def measure(operations: int) -> StreamResult:
    async with engine_on_file() as database:
        assert database.engine is not None
        url = database.engine.endpoint
        writer = Writer(database.client)
        posts = await _fill(writer)
        async with consuming(url, database.client) as pipeline:
            await pipeline.run()
            await pipeline.wait_until_handled()
        done = Counter(dict.fromkeys(MIX, 0))
        await gather_writes(_mixed(writer, posts, operations, done))
        async with consuming(url, database.client) as pipeline, serving(url) as server:
            await pipeline.begin()
            began = time.monotonic()
            await pipeline.run()
            await pipeline.wait_until_handled()
            seconds = time.monotonic() - began
            cost = Cost.of(await pipeline.report())
            alone = await _alone(server, pipeline, posts)
    return StreamResult(done, seconds, cost, alone)


async def _fill(writer: Writer) -> list[Post]:
    """Write users with followers and a post each, and actors with followers. Return the posts."""
    await gather_writes(map(writer.user, [*USERS, *ACTORS]))
    await gather_writes(writer.followed(user, _followers(at)) for at, user in enumerate([*USERS, *ACTORS]))
    posts: list[Post] = []

    async def post(at: int, user: str) -> None:
        moment = NOON - timedelta(minutes=30, seconds=at)
        posts.append(await writer.post(f"post-{at:03}", user, moment, _tags(at)))

    await gather_writes(post(at, user) for at, user in enumerate(USERS))
    return sorted(posts, key=lambda post: post.post_id)


def _followers(at: int) -> list[str]:
    """Return the next users in a ring of all users."""
    return [USERS[(at + offset) % len(USERS)] for offset in range(1, FOLLOWERS + 1)]


def _tags(number: int) -> tuple[str, str]:
    return TAGS[number % len(TAGS)], f"topic_{number % 50}"


def _mixed(writer: Writer, posts: list[Post], operations: int, done: Counter[str]) -> Iterator[Awaitable[object]]:
    """Yield random operations, equal in every run, and count them in `done`. Repeated likes and follows are skipped."""
    rng = random.Random(SEED)
    followed: set[tuple[str, str]] = set()
    liked: set[tuple[str, str]] = set()
    kinds = rng.choices([*MIX], [*MIX.values()], k=operations)
    for number, kind in enumerate(kinds):
        moment: datetime = NOON - (operations - number) * BETWEEN
        post, user, other = rng.choice(posts), rng.choice(USERS), rng.choice(USERS)
        if kind == "like" and (post.post_id, user) not in liked:
            liked.add((post.post_id, user))
            yield writer.like(post, user, moment)
        elif kind == "comment":
            yield writer.comment(post, user, moment)
        elif kind == "follow" and user != other and (user, other) not in followed:
            followed.add((user, other))
            yield writer.follow(user, other, moment)
        elif kind == "post":
            yield writer.post(f"more-{number}", user, moment, _tags(number))
        else:
            continue
        done[kind] += 1


async def _alone(
    server: Server, pipeline: Pipeline, posts: list[Post]
) -> Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Measure single operations by new users, each after the pipeline has handled the previous one."""
    costs: dict[str, list[tuple[Cost, Cost]]] = {name: [] for name in MUTATIONS}
    for number, (actor, post) in enumerate(zip(ACTORS, posts, strict=False)):
        values = {
            "post": post.post_id,
            "text": words(number),
            "other": post.author_id,
            "new": f"alone-{number}",
            "tagged": words(number, _tags(number)),
        }
        for name, mutation in MUTATIONS.items():
            variables = {key: value for key, value in values.items() if f"${key}:" in mutation}
            found = await _once(server, pipeline, actor, mutation, variables)
            if number:  # the first warms up
                costs[name].append(found)
    return {name: (mean(of for of, _ in both), mean(by for _, by in both)) for name, both in costs.items()}


async def _once(
    server: Server, pipeline: Pipeline, user: str, mutation: str, variables: Mapping[str, str]
) -> tuple[Cost, Cost]:
    await pipeline.begin()
    before = await server.usage()
    await server.ask(user, mutation, variables)
    used = (await server.usage()).since(before)
    await pipeline.wait_until_handled()
    return Cost(used.cpu, used.calls, used.units, used.write_units), Cost.of(await pipeline.report())
