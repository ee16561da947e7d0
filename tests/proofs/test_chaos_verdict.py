"""The comparison of `make chaos` on a real store: each write that is taken out of it, or stored twice, is found."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from datastore.database import Database
from datastore.dynamodb.codec import Item, encode_item
from datastore.keyspace.feeds.table import FEED
from datastore.keyspace.matches.teams import TEAMS
from datastore.keyspace.sightings import BLIP
from datastore.matches.fixtures import Fixtures
from datastore.model.access_patterns import Table
from tests.support.chaos.verdict import WriteVerdict, judge_writes
from tests.support.feed_changes import items_of
from tests.support.feed_workload import FeedWorkload
from tests.support.mixed_load import MixedLoad
from tests.support.served import NOON, Clock, Served

OPERATIONS = 160
# The feed has its own workload.
FEED_WRITES = ("create_post", "like", "comment", "follow")


async def remove(database: Database, table: Table, item: Mapping[str, Any]) -> None:
    keys = {name: item[name] for name in (table.partition, table.sort) if name}
    await database.client.call("DeleteItem", {"TableName": database.prefix + table.name, "Key": encode_item(keys)})


async def put(database: Database, table: Table, item: Mapping[str, Any]) -> None:
    await database.client.call("PutItem", {"TableName": database.prefix + table.name, "Item": encode_item(item)})


@pytest.fixture
async def worked(served: Served, clock: Clock) -> tuple[MixedLoad, FeedWorkload]:
    """Return both workloads after some operations."""
    load = MixedLoad(served, actors=4, seed=3, reads=[lambda _: None], persistent=True)
    load.writes = [write for write in load.writes if write.__name__ not in FEED_WRITES]
    await Fixtures(served.store(), NOON).sync(load.fixtures(NOON + timedelta(days=1)))
    await load.enter()
    await load.run(OPERATIONS)
    workload = FeedWorkload(served, clock, users=6, seed=3)
    await workload.enter()
    await workload.run(OPERATIONS)
    return load, workload


async def test_writes_that_are_removed_or_repeated_in_the_store_are_found(
    worked: tuple[MixedLoad, FeedWorkload], database: Database
) -> None:
    load, workload = worked

    async def verdict() -> WriteVerdict:
        return await judge_writes(load.truth, workload.model, database)

    intact = await verdict()
    assert (intact.lost, intact.doubled, intact.others) == ([], [], [])

    # One acknowledged write of each kind is lost.
    async def only(table: Table, **values: Any) -> Item:
        return next(item for item in await items_of(database, table) if values.items() <= item.items())

    sighting = next(item for item in await items_of(database, BLIP) if "description" in item)
    team = await only(TEAMS, teamId=f"t-{load.actors[0].name}")
    post = next(post_id for post_id in workload.model.posts if workload.model.live(post_id))
    for table, item, name in (
        (BLIP, sighting, f"('sighting', '{sighting['description']}')"),
        (TEAMS, team, f"('team', '{team['teamId']}')"),
        (FEED, await only(FEED, PK=f"POST#{post}", SK="META"), f"('post', '{post}')"),
    ):
        await remove(database, table, item)
        (lost,) = (await verdict()).lost
        assert lost.startswith(name)
        await put(database, table, item)
    assert (await verdict()).lost == []

    # A sighting is stored twice, and a team has an earlier name.
    again = {**sighting, "SK": f"{sighting['SK']}-again", "sightingId": "again"}
    await put(database, BLIP, again)
    await put(database, TEAMS, {**team, "name": "First"})
    found = await verdict()
    assert found.doubled == [f"('sighting', '{sighting['description']}') is stored 2 times"]
    assert any(problem.startswith(f"('team', '{team['teamId']}') is 'First'") for problem in found.others)
    assert found.lost == []
