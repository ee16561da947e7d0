"""Every query of the feed at 25 items: the DynamoDB calls of one request, and the gateway's CPU."""

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any

from benchmarks.data import NOON, SEED
from benchmarks.feed_data import PlannedPost, Writer, engine_on_file, gather_writes
from benchmarks.feed_pipeline import Pipeline, consuming
from benchmarks.queries import MeasuredQuery, QueryResult
from benchmarks.queries import measure as measure_queries
from benchmarks.server import Server, serving
from datastore.dynamodb.client import Client
from datastore.feeds.posts import Post
from datastore.feeds.visibility import Visibility
from datastore.model.timestamps import iso

SIZE = 25
REQUESTS = 20
AUTHORS = [f"author-{number:02}" for number in range(100)]
FOLLOWED, OTHERS = AUTHORS[:30], AUTHORS[30:60]
POPULAR_AUTHORS = [f"star-{number}" for number in range(5)]
FOLLOWERS_OF_POPULAR = AUTHORS[:60]
BOUND = 50  # the bound of the fan-out: only the popular authors have more followers
MIXED = "mixed"  # an author with every fifth post for followers
FOR_FOLLOWERS_EACH = 5
# Viewers of 30 authors and none, one or five popular authors, and two who follow authors with posts for followers.
VIEWERS = {
    "viewer-0": [*FOLLOWED],
    "viewer-1": [*FOLLOWED, POPULAR_AUTHORS[0]],
    "viewer-5": [*FOLLOWED, *POPULAR_AUTHORS],
    "viewer-t": [*OTHERS],
    "viewer-m": [MIXED],
}
PLAIN, ONE_MERGED, FIVE_MERGED, TRUSTED, OF_MIXED = VIEWERS
STRANGER = AUTHORS[99]
POPULAR_POST = "post-author-00-0"
BETWEEN_POSTS = timedelta(seconds=10)
COMMENTS_SHOWN = 3
HOUR = iso(NOON - timedelta(minutes=30))

Body = Mapping[str, Any]


def plan() -> list[PlannedPost]:
    """Return all posts, newest first, in random order of their authors."""
    tagged = itertools.count()

    def posts(author: str, number: int, followers_each: int = 0) -> Iterator[PlannedPost]:
        for index in range(number):
            hidden = followers_each and index % followers_each == 0
            about = "tea" if followers_each else "coffee"
            tags = about, f"topic-{next(tagged) % 120}".replace("-", "_")
            visibility = Visibility.FOLLOWERS if hidden else Visibility.PUBLIC
            yield PlannedPost(f"post-{author}-{index}", author, tags, visibility)

    planned = [post for author in FOLLOWED for post in posts(author, 2)]
    # Together they have one post for followers in five.
    planned += [post for at, author in enumerate(OTHERS) for post in posts(author, 2, 2 if at % 5 < 2 else 0)]
    planned += [post for author in AUTHORS[60:] for post in posts(author, 1)]
    planned += [post for author in POPULAR_AUTHORS for post in posts(author, 10)]
    planned += [*posts(MIXED, 60, FOR_FOLLOWERS_EACH), *posts(PLAIN, 20)]
    random.Random(SEED).shuffle(planned)
    return planned


async def fill(client: Client, pipeline: Pipeline) -> None:
    """Write the follows, so that the popular authors exceed the bound before they post, then all posts.

    The pipeline handles both.
    """
    writer = Writer(client)
    await gather_writes(map(writer.user, [*AUTHORS, *POPULAR_AUTHORS, MIXED, *VIEWERS]))
    await gather_writes(itertools.starmap(writer.follow, _follows()))
    await pipeline.run()
    await pipeline.wait_until_handled()
    planned = plan()
    moments = [NOON - at * BETWEEN_POSTS for at in range(1, len(planned) + 1)]
    posts = await _written(writer, zip(planned, moments, strict=True))
    await gather_writes(itertools.chain.from_iterable(_engagement(writer, at, post) for at, post in enumerate(posts)))
    await pipeline.wait_until_handled()


def _follows() -> Iterator[tuple[str, str]]:
    yield from ((viewer, author) for viewer, authors in VIEWERS.items() for author in authors)
    yield from ((follower, author) for author in POPULAR_AUTHORS for follower in FOLLOWERS_OF_POPULAR)


async def _written(writer: Writer, planned: Iterable[tuple[PlannedPost, Any]]) -> list[Post]:
    posts: list[Post] = []

    async def write(post: PlannedPost, moment: Any) -> None:
        posts.append(await writer.post(post.post_id, post.author_id, moment, post.tags, post.visibility))

    await gather_writes(itertools.starmap(write, planned))
    return sorted(posts, key=lambda post: post.created_at)


def _engagement(writer: Writer, at: int, post: Post) -> Iterator[Any]:
    """Yield the comments and likes of a post.

    A post gets one comment more than is shown and one like, the popular post 40 of each, and the viewer's own posts one
    of each.
    """
    moment = post.created_at + timedelta(seconds=5)
    number = 40 if post.post_id == POPULAR_POST else 1 if post.author_id == PLAIN else COMMENTS_SHOWN + 1
    for index in range(number):
        author = AUTHORS[(at * number + index) % len(AUTHORS)]
        yield writer.comment(post, author, moment + timedelta(milliseconds=index))
    for index in range(40 if post.post_id == POPULAR_POST else 1):
        yield writer.like(post, AUTHORS[(at + index) % len(AUTHORS)], moment + timedelta(milliseconds=index))


NAMED = "{ userId name avatarRef }"
TEXT = "postId createdAt visibility text mediaRef tags"
COUNTED = f"{TEXT} likeCount commentCount"
SHOWN = f"{COUNTED} likedByViewer author {NAMED}"
COMMENTED = f"{SHOWN} comments(first: {COMMENTS_SHOWN}) {{ nodes {{ text createdAt author {NAMED} }} }}"
PAGE_INFO = "pageInfo { hasNextPage endCursor }"


def _listed(name: str, user: str, field: str, arguments: str, fields: str, *required: str) -> MeasuredQuery:
    """Return the query of a list. Each of its nodes must have a value at each path in `required`."""
    text = f"{{ {field}({arguments} first: {SIZE}) {{ nodes {{ {fields} }} {PAGE_INFO} }} }}"

    def holds(data: Body) -> bool:
        return _are_complete(data[field]["nodes"], required)

    return MeasuredQuery(name, text, lambda: itertools.repeat({}), holds, REQUESTS, user)


def _are_complete(nodes: list[Body], required: Iterable[str]) -> bool:
    return len(nodes) == SIZE and all(_is_complete(node, path.split(".")) for node in nodes for path in required)


def _is_complete(node: Any, path: list[str]) -> bool:
    """Return whether a node has a value at the path. A list must have as many elements as comments are shown."""
    if isinstance(node, list):
        return len(node) == COMMENTS_SHOWN and all(_is_complete(element, path) for element in node)
    return node is not None and (not path or _is_complete(node[path[0]], path[1:]))


def _single(name: str, user: str, text: str, holds: Any) -> MeasuredQuery:
    return MeasuredQuery(name, text, lambda: itertools.repeat({}), holds, REQUESTS, user)


def _home(name: str, user: str, fields: str, *required: str, after: str | None = None) -> MeasuredQuery:
    arguments = f'userId: "{user}"' + (f', after: "{after}"' if after else "")
    return _listed(f"homeFeed{name}", user, "homeFeed", arguments, f"postId authorId createdAt {fields}", *required)


COMMENT_PATHS = ("post.author", "post.comments.nodes.author")


def _feed_queries(second_pages: Mapping[str, str]) -> Iterator[MeasuredQuery]:
    yield _home(", bare", PLAIN, "")
    yield _home(": posts", PLAIN, f"post {{ {TEXT} }}", "post.text")
    yield _home(": posts, authors, counts, likedByViewer", PLAIN, f"post {{ {SHOWN} }}", "post.author")
    yield _home(": the same, some posts for followers", TRUSTED, f"post {{ {SHOWN} }}", "post.author")
    full = f"post {{ {COMMENTED} }}"
    name = ": all that, and 3 comments with authors"
    yield _home(name, PLAIN, full, *COMMENT_PATHS)
    yield _home(f"{name}; 1 merged", ONE_MERGED, full, *COMMENT_PATHS)
    yield _home(f"{name}; 5 merged", FIVE_MERGED, full, *COMMENT_PATHS)
    for user, merged in ((PLAIN, "none"), (FIVE_MERGED, "5")):
        yield _home(f"{name}; {merged} merged, page 2", user, full, *COMMENT_PATHS, after=second_pages[user])


def _lists() -> Iterator[MeasuredQuery]:
    user = PLAIN
    of_mixed, popular = f'authorId: "{MIXED}"', f'postId: "{POPULAR_POST}"'
    yield _listed("postsByAuthor, a stranger", STRANGER, "postsByAuthor", of_mixed, COUNTED, "text", "likeCount")
    yield _listed("postsByAuthor, a follower", OF_MIXED, "postsByAuthor", of_mixed, COUNTED, "text", "likeCount")
    yield _listed("likes with users", user, "likes", popular, f"createdAt user {NAMED}", "user")
    yield _listed("comments with authors", user, "comments", popular, f"text createdAt author {NAMED}", "author")
    yield _listed("postsByTag", user, "postsByTag", 'tag: "coffee"', TEXT, "text")
    yield _listed("postsByTag with counts", user, "postsByTag", 'tag: "coffee"', COUNTED, "likeCount")
    yield _listed("postsByTag, some for followers", OF_MIXED, "postsByTag", 'tag: "tea"', TEXT, "text")
    of_star = f'userId: "{POPULAR_AUTHORS[0]}"'
    yield _listed("followers with users", user, "followers", of_star, f"followedAt user {NAMED}", "user")
    yield _single(
        "User.following with users",
        user,
        f'{{ user(id: "{user}") {{ following(first: {SIZE}) {{ nodes {{ followedAt user {NAMED} }} }} }} }}',
        lambda data: _are_complete(data["user"]["following"]["nodes"], ["user"]),
    )
    fields = f"kind createdAt actorCount actor {NAMED} post {{ {TEXT} }}"
    arguments = f'userId: "{user}"'
    yield _listed("notifications with actors and posts", user, "notifications", arguments, fields, "actor", "post.text")


def _others() -> Iterator[MeasuredQuery]:
    user_fields = "userId name bio avatarRef postCount followerCount followingCount"
    yield _single(
        "user", PLAIN, f'{{ user(id: "{AUTHORS[0]}") {{ {user_fields} }} }}', lambda data: data["user"]["name"]
    )
    yield _single(
        "post with author",
        PLAIN,
        f'{{ post(id: "{POPULAR_POST}") {{ {SHOWN} }} }}',
        lambda data: data["post"]["author"],
    )
    ranks = "rank authorId posts likes comments score"
    for name, fields in (("topAuthors", ranks), ("topAuthors with users", f"{ranks} author {NAMED}")):
        yield _single(
            name,
            PLAIN,
            f'{{ topAuthors(month: "{HOUR[:7]}", top: {SIZE}) {{ {fields} }} }}',
            lambda data: _are_complete(data["topAuthors"], ["score"]),
        )
    for window in ("HOUR", "DAY"):
        yield _single(
            f"trendingTags of the {window.lower()}",
            PLAIN,
            f'{{ trendingTags(window: {window}, at: "{HOUR}", top: {SIZE}) {{ rank tag posts velocity }} }}',
            lambda data: _are_complete(data["trendingTags"], ["posts"]),
        )


async def measure(rounds: int, effort: float) -> list[QueryResult]:
    """Measure all queries, one request at a time."""
    async with engine_on_file() as database:
        assert database.engine is not None
        async with consuming(database.engine.endpoint, database.client, BOUND) as pipeline:
            await fill(database.client, pipeline)
        async with serving(database.engine.endpoint) as server:
            queries = [*_others(), *_lists(), *_feed_queries(await _second_pages(server))]
            return await measure_queries(server, rounds, effort, queries, concurrencies=(1,))


async def _second_pages(server: Server) -> Mapping[str, str]:
    """Return the cursor before the second page of the home feed, by user."""
    cursors = {}
    for user in (PLAIN, FIVE_MERGED):
        query = f'{{ homeFeed(userId: "{user}", first: {SIZE}) {{ {PAGE_INFO} }} }}'
        cursors[user] = (await server.ask(user, query))["homeFeed"]["pageInfo"]["endCursor"]
    return cursors
