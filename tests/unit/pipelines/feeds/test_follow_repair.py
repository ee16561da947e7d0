"""`follows repair`: edges that other programs stored before the feed's pipeline ran for the first time (FEED-P8)."""

from collections import Counter
from functools import partial
from itertools import count

from datastore.database import Database
from datastore.infrastructure.iam_roles import FOLLOWS
from datastore.keyspace.feeds.table import FEED
from pipelines.feeds.follow_repair import FollowRepair, RepairProgress
from tests.support.answers import data_of
from tests.support.feed_changes import feed_changes, items_of
from tests.support.feed_documents import Pipeline, edge_document, user_document, write_feed_items
from tests.support.feed_steps import mutate
from tests.support.feed_world import FeedWorld, Killed, ProcessWire
from tests.support.served import Served

NAMES = ("ada", "bob", "eve", "mia")
FIELDS = "followerCount followingCount following { nodes { userId } }"
USERS = [f'{name}: user(id: "{name}") {{ {FIELDS} }}' for name in NAMES]
COUNTS = f"{{ {' '.join(USERS)} }}"


async def counts(served: Served) -> dict[str, tuple[int, int, list[str]]]:
    """Return for each user the number of followers, the number of followed users, and these users."""
    found = data_of(await served.ask(COUNTS, user="ada"))
    return {
        name: (one["followerCount"], one["followingCount"], [node["userId"] for node in one["following"]["nodes"]])
        for name, one in found.items()
    }


async def stored_before(served: Served) -> Pipeline:
    """Users and edges, and a pipeline that has not seen them; `mia` follows by this gateway."""
    write_feed_items(served, *map(user_document, NAMES))
    write_feed_items(served, edge_document("bob", "ada"), edge_document("eve", "ada"), edge_document("ada", "eve"))
    pipeline = Pipeline(served)
    pipeline.skip(await feed_changes(pipeline.database))
    await mutate(served, 'mutation { follow(userId: "ada") { userId } }', "mia")
    await pipeline.run()
    return pipeline


async def test_edges_from_before_the_first_run_are_counted_after_a_repair(served: Served) -> None:
    pipeline = await stored_before(served)
    before = await counts(served)
    progress: list[RepairProgress] = []

    repaired = await FollowRepair(served.store, progress.append).run()
    await pipeline.run()

    assert before == {"ada": (1, 0, []), "bob": (0, 0, []), "eve": (0, 0, []), "mia": (0, 1, ["ada"])}
    assert await counts(served) == {
        "ada": (3, 1, ["eve"]),
        "bob": (0, 1, ["ada"]),
        "eve": (1, 1, ["ada"]),
        "mia": (0, 1, ["ada"]),
    }
    assert repaired.follows == 3
    assert repaired == progress[-1]


async def test_a_second_repair_changes_nothing(served: Served) -> None:
    pipeline = await stored_before(served)
    await FollowRepair(served.store).run()
    await pipeline.run()
    items = await items_of(pipeline.database, FEED)

    again = await FollowRepair(served.store).run()

    assert again == RepairProgress(len(items), 0)
    assert await items_of(pipeline.database, FEED) == items


async def test_a_repair_that_dies_after_any_call_is_completed_by_the_next(database: Database) -> None:
    world = FeedWorld(database)
    await world.users(*NAMES)
    edges = [edge_document(follower, "ada") for follower in NAMES[1:]]
    for calls in count(1):
        await world.store().write_all(FEED, puts=edges)
        wire = ProcessWire(database.client, last=calls, role=FOLLOWS)
        try:
            await FollowRepair(partial(world.store, wire), concurrency=1).run()
            break
        except Killed:
            await wire.quiet()
            await FollowRepair(world.store).run()
            sides = Counter(item["SK"].partition("#")[0] for item in await items_of(database, FEED))
            assert (sides["FOLLOWING"], sides["FOLLOWER"]) == (3, 3)

    assert calls > 3
