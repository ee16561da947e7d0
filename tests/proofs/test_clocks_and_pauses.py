"""Instances whose clocks are five seconds off, and instances that pause for longer than their leases live.

PAUSE_SECONDS=30 and PAUSE_LEASE=10 make the pause as long as in production.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest

from datastore.change_streams.leases import Lease, Leases
from datastore.change_streams.shards.shard_reader import stream_of
from datastore.keyspace.feeds.pipeline import CONSUMER_TABLE
from datastore.keyspace.feeds.table import FEED
from datastore.matches.active_matches import ActiveMatches
from datastore.matches.live_state import ActiveMatch
from tests.support import loaded_deployment
from tests.support.deployment import CRICKETS, FEEDS, GATEWAYS, MATCH, DeploymentPart, wait_for
from tests.support.feed_process import instance_of
from tests.support.loaded_deployment import LoadedDeployment, deployed

PAUSE_SECONDS = float(os.environ.get("PAUSE_SECONDS", "8"))
LEASE_SECONDS = float(os.environ.get("PAUSE_LEASE", "3"))
# At full length the clocks run at normal speed.
CLOCK_TIMES = 1.0 if PAUSE_SECONDS >= 30 else loaded_deployment.CLOCK_TIMES
SECONDS = 4.0
# The clocks of each pair are ten seconds apart, and that of the polling instance is late.
OFF = {name: seconds for pair in (GATEWAYS, FEEDS, CRICKETS) for name, seconds in zip(pair, (-5.0, 5.0), strict=True)}

pytestmark = pytest.mark.timeout(120 + 10 * PAUSE_SECONDS)


async def test_clocks_that_are_ten_seconds_apart_lose_and_double_nothing(tmp_path: Path) -> None:
    # The match is still played when all processes have started.
    async with deployed(tmp_path, 2.5 * SECONDS, lease_seconds=8.0, clock_times=1.0, off=OFF) as (world, database):
        owners = set()
        over = asyncio.Event()
        working = asyncio.create_task(world.work_until(over))
        for _ in range(10):
            await asyncio.sleep(SECONDS / 10)
            owners.add((await latest_match_state(world)).instance_id)
        over.set()
        await working
        await world.check(database)

        assert owners == {world.deployment.parts[CRICKETS[0]].instance}, "The match was taken from who polled it."


async def test_a_paused_process_writes_nothing_late_and_continues(tmp_path: Path) -> None:
    seconds = 2 * PAUSE_SECONDS + 3 * LEASE_SECONDS
    async with deployed(tmp_path, seconds, lease_seconds=LEASE_SECONDS, clock_times=CLOCK_TIMES) as (world, database):
        relays, follows = await relaying(world)
        # No client waits for the paused gateway.
        world.served.http.urls = [world.deployment.urls[GATEWAYS.index(follows)]]
        over = asyncio.Event()
        working = asyncio.create_task(world.work_until(over))
        feed, cricket = await reading(world), await polling(world)
        assert feed is not None
        assert cricket is not None
        gateway = world.deployment.parts[relays]
        lease, fence = await lease_of_feed(world), (await latest_match_state(world)).fence
        for part in (feed, cricket, gateway):
            part.pause()
        began = asyncio.get_running_loop().time()
        moved = [_lease_moved(world, lease), _match_moved(world, fence), _bus_moved(world, follows)]
        taken = [await wait_for(holds) for holds in moved]
        await asyncio.sleep(max(0.0, began + PAUSE_SECONDS - asyncio.get_running_loop().time()))
        for part in (feed, cricket, gateway):
            part.go_on()
        before, held = await relay_metrics(world, relays), (await relay_metrics(world, follows))[0]
        await asyncio.sleep(LEASE_SECONDS)
        # Changes that it had read before the pause are not appended: another gateway did that. On a busy machine that
        # one may
        # have lost a table to it again.
        after, left = await relay_metrics(world, relays), (await relay_metrics(world, follows))[0]
        assert after == (0, before[1]) or (after[0] > 0 and after[0] + left == held)
        # They run, and left the work of the other instance alone.
        assert [part.process.poll() for part in (feed, cricket, gateway) if part.process] == [None, None, None]
        assert await reading(world) is not feed
        assert await polling(world) is not cricket
        # They take over again when the others have ended.
        for another in (await reading(world), await polling(world)):
            assert another is not None
            another.kill()
        back = [await wait_for(holds) for holds in (_is(reading, world, feed), _is(polling, world, cricket))]
        over.set()
        await working
        await world.check(database)

    print(f"\ntaken over after {taken} s, and back after {back} s")


async def relaying(world: LoadedDeployment) -> tuple[str, str]:
    """Return the gateway that reads the tables' streams for both, and the other."""
    while True:
        both = {name: (await relay_metrics(world, name))[0] for name in GATEWAYS}
        if sorted(map(bool, both.values())) == [False, True]:
            one, other = sorted(GATEWAYS, key=both.__getitem__, reverse=True)
            return one, other
        await asyncio.sleep(0.05)


async def relay_metrics(world: LoadedDeployment, name: str) -> tuple[float, float]:
    """Return the number of tables that a gateway relays, and the number of changes that it has appended to the bus."""
    async with aiohttp.ClientSession() as http:
        tables = await world.deployment.figure(http, name, "gateway_bus_tables_relayed")
        return tables, await world.deployment.figure(http, name, "gateway_bus_relayed_total")


async def latest_match_state(world: LoadedDeployment) -> ActiveMatch:
    """Return the stored state of the match. Wait for the first tick of the instance that polls it."""
    while True:
        found = await ActiveMatches(world.served.store(), world.served.clock()).latest(MATCH)
        if found is not None:
            return found
        await asyncio.sleep(0.05)


async def lease_of_feed(world: LoadedDeployment) -> Lease:
    """Return the lease of the engine's only shard."""
    assert world.served.database is not None
    stream = await stream_of(world.served.database.client, FEED.name, world.served.database.prefix)
    (lease,) = await Leases(world.served.store(), CONSUMER_TABLE, stream, "nobody", world.served.clock()).all()
    return lease


async def reading(world: LoadedDeployment) -> DeploymentPart | None:
    """Return the instance that reads the feed's stream."""
    owner = (await lease_of_feed(world)).owner
    parts = [world.deployment.parts[name] for name in FEEDS]
    return next((part for part in parts if part.process and instance_of(part.process.pid) == owner), None)


async def polling(world: LoadedDeployment) -> DeploymentPart | None:
    """Return the instance that polls the match."""
    owner = (await latest_match_state(world)).instance_id
    parts = [world.deployment.parts[name] for name in CRICKETS]
    return next((part for part in parts if part.instance == owner), None)


def _is(
    find: Callable[[LoadedDeployment], Awaitable[DeploymentPart | None]], world: LoadedDeployment, part: DeploymentPart
) -> Callable[[], Awaitable[bool]]:
    async def holds() -> bool:
        return await find(world) is part

    return holds


def _lease_moved(world: LoadedDeployment, before: Lease) -> Callable[[], Awaitable[bool]]:
    async def holds() -> bool:
        return (await lease_of_feed(world)).fence > before.fence

    return holds


def _bus_moved(world: LoadedDeployment, to: str) -> Callable[[], Awaitable[bool]]:
    async def holds() -> bool:
        return (await relay_metrics(world, to))[0] > 0

    return holds


def _match_moved(world: LoadedDeployment, before: int) -> Callable[[], Awaitable[bool]]:
    async def holds() -> bool:
        return (await latest_match_state(world)).fence > before

    return holds
