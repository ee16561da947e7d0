"""A deployment at half of the load it can take: the resources of its processes stay constant, and are released at the
end.

`make soak` runs it for a quarter of an hour.
"""

import asyncio
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from tests.support.deployment import GATEWAYS, Deployment, wait_for
from tests.support.loaded_deployment import LoadSize, deployed
from tests.support.mixed_load import MixedLoad
from tests.support.remote import Spread
from tests.support.vital_signs import VitalSigns

SECONDS = float(os.environ.get("SOAK_SECONDS", "5"))
FULL_SECONDS = min(20.0, SECONDS / 2)
EVERY_SECONDS = min(5.0, SECONDS / 10)
# How many more blocks a gateway may hold at the end: for connections, and for each request. A leak is at least one
# block for each. In the short form, operations are still compiled during the run.
NOISE, EACH = 1500 if SECONDS >= 60 else 8000, 0.1
# A request may be late on a busy machine.
MOST_ERRORS = 0.01
# The allowed growth of processes per minute. The engine keeps its stream, and maps its database.
MOST_A_MINUTE = {"RSS MB": 2.0, "descriptors": 2.0, "sockets": 2.0, "threads": 0.5, "tasks": 2.0}
SIZE = LoadSize(actors=24, viewers=int(os.environ.get("SOAK_VIEWERS", "20")), feed=True)
pytestmark = pytest.mark.timeout(120 + 2 * SECONDS)


@dataclass(frozen=True)
class Held:
    """The resources of gateways while no request is in flight, after this number of operations."""

    asked: float
    blocks: Mapping[str, int]


async def looked(deployment: Deployment, spread: Spread) -> Held:
    return Held(spread.asked / len(GATEWAYS), {name: await deployment.blocks(name) for name in GATEWAYS})


async def work_for(load: MixedLoad, seconds: float, spread: Spread) -> float:
    """Work for some seconds. Return the requests per second that were answered."""
    began, asked = time.monotonic(), spread.asked
    while time.monotonic() - began < seconds:
        await load.run(SIZE.actors * 4)
    return (spread.asked - asked) / (time.monotonic() - began)


async def test_memory_does_not_grow_at_half_load(tmp_path: Path) -> None:
    async with (
        deployed(tmp_path, SECONDS + FULL_SECONDS, SIZE, lease_seconds=10.0, clock_times=1.0, keep_little=True) as (
            world,
            database,
        ),
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http,
    ):
        load, spread = world.load, Spread(http, world.deployment.urls, 30)
        world.served.http = spread
        signs = VitalSigns(world.deployment, http)
        await signs.look()
        full = await work_for(load, FULL_SECONDS, spread)
        spread.per_second = full / 2
        during = VitalSigns(world.deployment, http)
        watching = asyncio.create_task(during.watch(EVERY_SECONDS))
        held = [await looked(world.deployment, spread)]
        for _ in range(2):
            half = await work_for(load, SECONDS / 2, spread)
            held.append(await looked(world.deployment, spread))
        watching.cancel()
        await asyncio.wait([watching])
        for viewer in world.viewers:
            await viewer.has_seen_all()
            viewer.check()
        print(f"\n{full:.0f} requests a second are all there are; at {half:.0f} a second for {SECONDS:.0f} s:")
        print(f"errors {dict(load.report.codes)}, lost connections {spread.lost}\n{during.report()}")
        print("\n".join(map(str, held)))
        await world.check_facts(database)
        assert spread.lost == 0
        assert load.report.failed <= MOST_ERRORS * spread.asked
        if SECONDS >= 300:  # in shorter runs it is noise
            grown = {place: during.trend(*place).per_minute for place in during.samples if place[1] in MOST_A_MINUTE}
            assert {place: by for place, by in grown.items() if by > MOST_A_MINUTE[place[1]]} == {}
        for name in GATEWAYS:
            assert held[2].blocks[name] - held[1].blocks[name] < NOISE + EACH * (held[2].asked - held[1].asked)
        await http.close()
        async with aiohttp.ClientSession() as alone:
            await wait_for(lambda: _is_all_given_back(signs, VitalSigns(world.deployment, alone)))


async def _is_all_given_back(before: VitalSigns, after: VitalSigns) -> bool:
    """Return whether as many tasks run as before the load, except one or two of the connection of this check."""
    await after.look()
    return all(after.trend(name, "tasks").last <= before.trend(name, "tasks").last + 2 for name in GATEWAYS)
