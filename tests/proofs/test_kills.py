"""Each process of a deployment killed with -9 at random moments, under load: the final state equals that of the model.

`make kills` runs it at full length: each killed 50 times, with leases that live as long as in production.
"""

import asyncio
import os
import time
from pathlib import Path

import aiohttp
import pytest

from tests.support.killing import Killer
from tests.support.kills import KILLS, LEASE_SECONDS, SEED, LoadSize, deployed

PAUSE_SECONDS = float(os.environ.get("KILLS_PAUSE", "1.0"))
pytestmark = pytest.mark.timeout(180 + 6 * KILLS * (PAUSE_SECONDS + LEASE_SECONDS))


KILLED = LoadSize(uploaders=6)


async def test_processes_killed_at_random_under_load_leave_the_state_of_the_model(tmp_path: Path) -> None:
    async with deployed(tmp_path, KILLS * 2 * PAUSE_SECONDS, KILLED, short_uploads=True) as (world, database):
        async with aiohttp.ClientSession() as http:
            killer = Killer(world.deployment, world.served, http, SEED)
            over = asyncio.Event()
            working = asyncio.create_task(world.work_until(over))
            began = time.monotonic()
            try:
                await killer.run(KILLS, PAUSE_SECONDS)
            finally:
                over.set()
            done = await working
            seconds = time.monotonic() - began
        await world.check(database)

    spread = world.served.http
    print(f"\n{done} operations in {seconds:.0f} s, {spread.asked} requests of which {spread.lost} were lost")
    print(f"viewers connected {[viewer.connections for viewer in world.viewers]} times")
    print(f"uploads: {dict(world.uploads.outcomes)}")
    print(killer.report())
    assert {len(outages) for outages in killer.outages.values()} == {KILLS}
