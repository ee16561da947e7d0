"""The demo's feed is loaded once, processed by the pipeline, and stays small."""

import asyncio
import random
import uuid
from collections import Counter
from typing import Any

import pytest

from datastore.database import Database
from datastore.dynamodb.client import Client
from datastore.dynamodb.codec import Item
from datastore.feeds import hashtags as texts
from datastore.feeds.comments import Comment, is_comment
from datastore.feeds.posts import Post, is_live, is_post
from datastore.feeds.visibility import Visibility
from datastore.keyspace.feeds import users
from datastore.keyspace.feeds.table import FEED
from datastore.model.composite_keys import key_of
from pipelines.demo import feeds as feed_demo
from pipelines.demo.feeds import FeedDemo
from pipelines.demo.feeds_cast import CAST, COMMENT_TEXTS, FOLLOWS, NAMES, NEWCOMER, POST_TEXTS, SCRIPT, VISITOR
from pipelines.demo.scene import Demo
from pipelines.feeds.handlers import feed_handlers
from server.settings import Settings
from tests.support.feed_changes import items_of
from tests.support.feed_world import FeedWorld, Killed, ProcessWire
from tests.support.ports import free_port
from tests.support.served import SECRET, Served

HOME = """{ homeFeed(userId: "demo", first: 50) { nodes {
  author { name }
  post { visibility likeCount commentCount likedByViewer comments(first: 3) { nodes { author { name } } } }
} } }"""
AROUND = """{
  user(id: "demo") { postCount followerCount followingCount }
  notifications(userId: "demo", first: 50) { nodes { kind actor { name } } }
  topAuthors(at: "2026-06-25T12:00:00Z") { score author { name } }
  trendingTags(period: DAY) { tag postCount }
}"""


@pytest.fixture
def settings() -> Settings:
    return Settings(secret=SECRET, port=free_port(), poll_interval=0.02, feed_pipeline=True)


@pytest.fixture
def world(database: Database) -> FeedWorld:
    return FeedWorld(database)


def demo_feed_of(world: FeedWorld, client: Client | None = None, *, followed: bool = True) -> FeedDemo:
    return FeedDemo(
        lambda: world.store(client),
        now=world.clock,
        new_id=lambda: uuid.uuid4().hex,
        rng=random.Random(4),
        has_subscribers=lambda _: followed,
    )


async def sorted_feed_items(world: FeedWorld) -> list[Item]:
    return sorted(await items_of(world.database, FEED), key=lambda item: (item["PK"], item["SK"]))


async def live_posts(world: FeedWorld) -> dict[str, Item]:
    return {item["PK"]: item for item in await sorted_feed_items(world) if is_post(item) and is_live(item)}


async def handle_new_changes(world: FeedWorld) -> None:
    """Handle all new changes of the stream."""
    changes = await world.changes()
    for handler in feed_handlers(world.store, world.clock):
        await handler.handle(changes)


async def test_the_feed_is_loaded_once(world: FeedWorld) -> None:
    assert await demo_feed_of(world).load() == len(SCRIPT) == len(await live_posts(world))
    loaded = await sorted_feed_items(world)
    world.clock.forward(hours=2)

    assert await demo_feed_of(world).load() == 0

    assert await sorted_feed_items(world) == loaded


@pytest.mark.parametrize("last", [5, 60, 200])
async def test_an_interrupted_load_is_completed_by_the_next(world: FeedWorld, last: int) -> None:
    wire = ProcessWire(world.database.client, last, role=None)
    with pytest.raises(Killed):
        await demo_feed_of(world, wire).load()
    await wire.quiet()
    begun = await sorted_feed_items(world)
    world.clock.forward(hours=2)

    await demo_feed_of(world).load()

    loaded = await sorted_feed_items(world)
    assert [item for item in loaded if item in begun] == begun
    world.clock.forward(hours=-2)
    await world.store().write_all(FEED, deletes=[key_of(FEED, item) for item in loaded])
    await demo_feed_of(world).load()
    assert await sorted_feed_items(world) == loaded


async def test_a_second_load_changes_nothing(world: FeedWorld) -> None:
    await demo_feed_of(world).load()
    loaded = await sorted_feed_items(world)
    await world.store().write_all(FEED, deletes=[users.user(NEWCOMER)])
    world.clock.forward(hours=2)

    assert await demo_feed_of(world).load() == len(SCRIPT)

    assert await sorted_feed_items(world) == loaded


@pytest.mark.proof
async def test_the_pipeline_fills_feeds_and_counters(served: Served) -> None:
    await served.gateway.background.demo().load()

    async def seen(query: str) -> Any:
        answer = await served.ask(query, user="demo")
        assert answer.errors is None
        return answer.data

    entries: list[Any] = []
    around: Any = None
    async with asyncio.timeout(50):
        while not (_is_filled(entries) and _is_counted(around)):
            await asyncio.sleep(0.05)
            entries, around = (await seen(HOME))["homeFeed"]["nodes"], await seen(AROUND)
    assert {entry["post"]["visibility"] for entry in entries} == {"PUBLIC", "FOLLOWERS"}
    assert {entry["post"]["likedByViewer"] for entry in entries} == {True, False}
    assert all(entry["author"]["name"] for entry in entries)


def _is_filled(entries: list[Any]) -> bool:
    return len(entries) >= 25 and sum(len(entry["post"]["comments"]["nodes"]) == 3 for entry in entries) > 0


def _is_counted(around: Any) -> bool:
    counts = {"postCount": 3, "followerCount": 6, "followingCount": 8}
    kinds = around and {entry["kind"] for entry in around["notifications"]["nodes"]}
    return kinds == {"LIKE", "COMMENT", "FOLLOW", "MENTION"} and bool(
        around["user"] == counts and around["topAuthors"] and around["trendingTags"]
    )


def test_users_like_and_comment_only_visible_posts() -> None:
    unseen = [
        (post_id, user)
        for post_id, said in feed_demo.posts_with_ids()
        for user in [*feed_demo.likers(said), *[user for user, _ in said.comments]]
        if said.visibility is not Visibility.PUBLIC and said.author not in FOLLOWS[user].split()
    ]
    assert unseen == []
    said = [text for one in SCRIPT for text in (one.text, *[text for _, text in one.comments])]
    named = {name for text in (*said, *POST_TEXTS, *COMMENT_TEXTS) for name in texts.mentions(text)}
    assert named <= NAMES.keys()


@pytest.mark.proof
async def test_the_feed_is_active_and_stays_small(world: FeedWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_demo, "MAX_LIVE_POSTS", 2)
    monkeypatch.setattr(feed_demo, "MAX_UNREAD", 6)
    living = demo_feed_of(world)
    await living.load()
    before = await live_posts(world)
    for step in range(121):
        world.clock.forward(seconds=8)
        await living.act()
        if step in (59, 119):
            await handle_new_changes(world)

    items = await sorted_feed_items(world)
    now = await live_posts(world)
    live = Counter(Post.decoder(item).author_id for name, item in now.items() if name not in before)
    assert live.keys() <= set(CAST)
    assert max(live.values()) == 2
    assert before.keys() < now.keys()
    comments = Counter((one.post_id, one.author_id) for one in map(Comment.decoder, filter(is_comment, items)))
    assert max(comments.values()) == 2
    unread = [item for item in items if item["PK"] == f"USER#{VISITOR}#UNREAD"]
    assert len(unread) == 6


@pytest.mark.proof
async def test_a_visitor_receives_live_events(served: Served) -> None:
    await served.gateway.background.demo().load()
    home, *others = [
        await served.listen(f"subscription {{ {field} }}", user="demo")
        for field in (
            'homeFeedUpdated(userId: "demo") { postId }',
            'notificationReceived(userId: "demo") { kind }',
            'postEngagement(postId: "demo-1") { likeCount }',
        )
    ]
    await served.settle(FEED, 3)
    demo_instance = Demo(
        served.store,
        served.gateway.objects,
        areas=served.gateway.settings.areas,
        categories=served.gateway.settings.categories,
        now=served.clock,
        new_id=lambda: uuid.uuid4().hex,
        rng=random.Random(4),
        feed_every=0.02,
    )
    living = asyncio.create_task(demo_instance.live())
    try:
        async with asyncio.timeout(50):
            # The loaded posts precede the live ones.
            while not (await home.event())["homeFeedUpdated"]["postId"].startswith("live-"):
                pass
        assert all([await listener.event() for listener in others])
    finally:
        living.cancel()
        await asyncio.gather(living, return_exceptions=True)


async def test_the_feed_is_less_active_without_subscribers(world: FeedWorld) -> None:
    await demo_feed_of(world).load()
    before = len(await world.changes())
    quiet = demo_feed_of(world, followed=False)
    for _ in range(40):
        world.clock.forward(seconds=8)
        await quiet.act()

    assert 0 < len(await world.changes()) < 40 < before
