"""Every query of the feed at 25 items: what one request asks of DynamoDB, and what it costs the gateway."""

import itertools
import random
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any

from benchmarks.data import NOON, SEED
from benchmarks.feed_data import PlannedPost, Writer, all_of, engine_on_file
from benchmarks.feed_pipeline import Pipeline, consuming
from benchmarks.queries import Measured, QueryResult
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
STARS = [f"star-{number}" for number in range(5)]
STAR_FOLLOWERS = AUTHORS[:60]
BOUND = 50  # of the fan-out: stars have more followers, nobody else has
MIXED = "mixed"  # an author of whose posts each fifth is for followers
FOR_FOLLOWERS_EACH = 5
# Who follows 30 authors and none, one or five of the stars; and who follows authors with some posts for followers.
VIEWERS = {
    "viewer-0": [*FOLLOWED],
    "viewer-1": [*FOLLOWED, STARS[0]],
    "viewer-5": [*FOLLOWED, *STARS],
    "viewer-t": [*OTHERS],
    "viewer-m": [MIXED],
}
PLAIN, ONE_STAR, FIVE_STARS, TRUSTED, OF_MIXED = VIEWERS
STRANGER = AUTHORS[99]
POPULAR = "post-author-00-0"
BETWEEN_POSTS = timedelta(seconds=10)
COMMENTS_SHOWN = 3
HOUR = iso(NOON - timedelta(minutes=30))

Body = Mapping[str, Any]


def plan() -> list[PlannedPost]:
    """All posts, the newest first; those of stars lie among the others."""
    tagged = itertools.count()

    def posts(author: str, number: int, followers_each: int = 0) -> Iterator[PlannedPost]:
        for one in range(number):
            hidden = followers_each and one % followers_each == 0
            about = "tea" if followers_each else "coffee"
            tags = about, f"topic-{next(tagged) % 120}".replace("-", "_")
            visibility = Visibility.FOLLOWERS if hidden else Visibility.PUBLIC
            yield PlannedPost(f"post-{author}-{one}", author, tags, visibility)

    planned = [post for author in FOLLOWED for post in posts(author, 2)]
    # Each of them has one post for followers in five, on the whole.
    planned += [post for at, author in enumerate(OTHERS) for post in posts(author, 2, 2 if at % 5 < 2 else 0)]
    planned += [post for author in AUTHORS[60:] for post in posts(author, 1)]
    planned += [post for star in STARS for post in posts(star, 10)]
    planned += [*posts(MIXED, 60, FOR_FOLLOWERS_EACH), *posts(PLAIN, 20)]
    random.Random(SEED).shuffle(planned)
    return planned


async def fill(client: Client, pipeline: Pipeline) -> None:
    """First who follows whom, so that stars are known as such when they write; the pipeline does its part."""
    writer = Writer(client)
    await all_of(map(writer.user, [*AUTHORS, *STARS, MIXED, *VIEWERS]))
    await all_of(itertools.starmap(writer.follow, _follows()))
    await pipeline.run()
    await pipeline.settled()
    planned = plan()
    moments = [NOON - at * BETWEEN_POSTS for at in range(1, len(planned) + 1)]
    posts = await _written(writer, zip(planned, moments, strict=True))
    await all_of(itertools.chain.from_iterable(_answers(writer, at, post) for at, post in enumerate(posts)))
    await pipeline.settled()


def _follows() -> Iterator[tuple[str, str]]:
    yield from ((viewer, author) for viewer, authors in VIEWERS.items() for author in authors)
    yield from ((author, star) for star in STARS for author in STAR_FOLLOWERS)


async def _written(writer: Writer, planned: Iterable[tuple[PlannedPost, Any]]) -> list[Post]:
    posts: list[Post] = []

    async def write(one: PlannedPost, moment: Any) -> None:
        posts.append(await writer.post(one.post_id, one.author_id, moment, one.tags, one.visibility))

    await all_of(itertools.starmap(write, planned))
    return sorted(posts, key=lambda post: post.created_at)


def _answers(writer: Writer, at: int, post: Post) -> Iterator[Any]:
    """Posts in feeds get a comment more than is shown; the popular one 40 of each; the viewer's own one of each."""
    moment = post.created_at + timedelta(seconds=5)
    number = 40 if post.post_id == POPULAR else 1 if post.author_id == PLAIN else COMMENTS_SHOWN + 1
    for one in range(number):
        yield writer.comment(post, AUTHORS[(at * number + one) % len(AUTHORS)], moment + timedelta(milliseconds=one))
    for one in range(40 if post.post_id == POPULAR else 1):
        yield writer.like(post, AUTHORS[(at + one) % len(AUTHORS)], moment + timedelta(milliseconds=one))


NAMED = "{ userId name avatarRef }"
TEXT = "postId createdAt visibility text mediaRef tags"
COUNTED = f"{TEXT} likeCount commentCount"
SHOWN = f"{COUNTED} likedByViewer author {NAMED}"
COMMENTED = f"{SHOWN} comments(first: {COMMENTS_SHOWN}) {{ nodes {{ text createdAt author {NAMED} }} }}"
PAGE_INFO = "pageInfo { hasNextPage endCursor }"


def _listed(name: str, user: str, field: str, arguments: str, fields: str, *there: str) -> Measured:
    """A list; each of its nodes has all that is `there`, by paths."""
    text = f"{{ {field}({arguments} first: {SIZE}) {{ nodes {{ {fields} }} {PAGE_INFO} }} }}"

    def holds(data: Body) -> bool:
        return _all_there(data[field]["nodes"], there)

    return Measured(name, text, lambda: itertools.repeat({}), holds, REQUESTS, user)


def _all_there(nodes: list[Body], there: Iterable[str]) -> bool:
    return len(nodes) == SIZE and all(_there(node, path.split(".")) for node in nodes for path in there)


def _there(node: Any, path: list[str]) -> bool:
    """Of the comments on a post there must be as many as are shown."""
    if isinstance(node, list):
        return len(node) == COMMENTS_SHOWN and all(_there(one, path) for one in node)
    return node is not None and (not path or _there(node[path[0]], path[1:]))


def _single(name: str, user: str, text: str, holds: Any) -> Measured:
    return Measured(name, text, lambda: itertools.repeat({}), holds, REQUESTS, user)


def _home(name: str, user: str, fields: str, *there: str, after: str | None = None) -> Measured:
    arguments = f'userId: "{user}"' + (f', after: "{after}"' if after else "")
    return _listed(f"homeFeed{name}", user, "homeFeed", arguments, f"postId authorId createdAt {fields}", *there)


COMMENTS_THERE = ("post.author", "post.comments.nodes.author")


def _feed_queries(second_pages: Mapping[str, str]) -> Iterator[Measured]:
    yield _home(", bare", PLAIN, "")
    yield _home(": posts", PLAIN, f"post {{ {TEXT} }}", "post.text")
    yield _home(": posts, authors, counts, likedByViewer", PLAIN, f"post {{ {SHOWN} }}", "post.author")
    yield _home(": the same, some posts for followers", TRUSTED, f"post {{ {SHOWN} }}", "post.author")
    full = f"post {{ {COMMENTED} }}"
    name = ": all that, and 3 comments with authors"
    yield _home(name, PLAIN, full, *COMMENTS_THERE)
    yield _home(f"{name}; 1 merged", ONE_STAR, full, *COMMENTS_THERE)
    yield _home(f"{name}; 5 merged", FIVE_STARS, full, *COMMENTS_THERE)
    for user, merged in ((PLAIN, "none"), (FIVE_STARS, "5")):
        yield _home(f"{name}; {merged} merged, page 2", user, full, *COMMENTS_THERE, after=second_pages[user])


def _lists() -> Iterator[Measured]:
    user = PLAIN
    of_mixed, popular = f'authorId: "{MIXED}"', f'postId: "{POPULAR}"'
    yield _listed("postsByAuthor, a stranger", STRANGER, "postsByAuthor", of_mixed, COUNTED, "text", "likeCount")
    yield _listed("postsByAuthor, a follower", OF_MIXED, "postsByAuthor", of_mixed, COUNTED, "text", "likeCount")
    yield _listed("likes with users", user, "likes", popular, f"createdAt user {NAMED}", "user")
    yield _listed("comments with authors", user, "comments", popular, f"text createdAt author {NAMED}", "author")
    yield _listed("postsByTag", user, "postsByTag", 'tag: "coffee"', TEXT, "text")
    yield _listed("postsByTag with counts", user, "postsByTag", 'tag: "coffee"', COUNTED, "likeCount")
    yield _listed("postsByTag, some for followers", OF_MIXED, "postsByTag", 'tag: "tea"', TEXT, "text")
    of_star = f'userId: "{STARS[0]}"'
    yield _listed("followers with users", user, "followers", of_star, f"followedAt user {NAMED}", "user")
    yield _single(
        "User.following with users",
        user,
        f'{{ user(id: "{user}") {{ following(first: {SIZE}) {{ nodes {{ followedAt user {NAMED} }} }} }} }}',
        lambda data: _all_there(data["user"]["following"]["nodes"], ["user"]),
    )
    told = f"kind createdAt actorCount actor {NAMED} post {{ {TEXT} }}"
    mine = f'userId: "{user}"'
    yield _listed("notifications with actors and posts", user, "notifications", mine, told, "actor", "post.text")


def _others() -> Iterator[Measured]:
    user_fields = "userId name bio avatarRef postCount followerCount followingCount"
    yield _single(
        "user", PLAIN, f'{{ user(id: "{AUTHORS[0]}") {{ {user_fields} }} }}', lambda data: data["user"]["name"]
    )
    yield _single(
        "post with author", PLAIN, f'{{ post(id: "{POPULAR}") {{ {SHOWN} }} }}', lambda data: data["post"]["author"]
    )
    ranks = "rank authorId posts likes comments score"
    for name, fields in (("topAuthors", ranks), ("topAuthors with users", f"{ranks} author {NAMED}")):
        yield _single(
            name,
            PLAIN,
            f'{{ topAuthors(month: "{HOUR[:7]}", top: {SIZE}) {{ {fields} }} }}',
            lambda data: _all_there(data["topAuthors"], ["score"]),
        )
    for window in ("HOUR", "DAY"):
        yield _single(
            f"trendingTags of the {window.lower()}",
            PLAIN,
            f'{{ trendingTags(window: {window}, at: "{HOUR}", top: {SIZE}) {{ rank tag posts velocity }} }}',
            lambda data: _all_there(data["trendingTags"], ["posts"]),
        )


async def measure(rounds: int, effort: float) -> list[QueryResult]:
    """One request at a time; what is counted is of one request."""
    async with engine_on_file() as database:
        assert database.engine is not None
        async with consuming(database.engine.endpoint, database.client, BOUND) as pipeline:
            await fill(database.client, pipeline)
        async with serving(database.engine.endpoint) as server:
            queries = [*_others(), *_lists(), *_feed_queries(await _second_pages(server))]
            return await measure_queries(server, rounds, effort, queries, concurrencies=(1,))


async def _second_pages(server: Server) -> Mapping[str, str]:
    """Where the second page of a home feed begins, by user."""
    cursors = {}
    for user in (PLAIN, FIVE_STARS):
        query = f'{{ homeFeed(userId: "{user}", first: {SIZE}) {{ {PAGE_INFO} }} }}'
        cursors[user] = (await server.ask(user, query))["homeFeed"]["pageInfo"]["endCursor"]
    return cursors
