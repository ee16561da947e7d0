"""A process that follows a table and does nothing with its changes.

`python -m benchmarks.bus_receiver ENGINE [BUS]`: the URLs of the store, and of the bus where it has one.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.child import Child, obey, started
from benchmarks.measuring import run
from datastore.change_streams.change_feed import ChangeFeed
from datastore.change_streams.change_subscription import ChangeSubscription
from datastore.change_streams.relay.bus import Bus
from datastore.change_streams.shards.stream_reader import Change
from datastore.database import StoreOptions, open_database
from datastore.keyspace.sightings import BLIP
from datastore.queues import QueueLimits

MOST_WAITING = 1_000_000


@dataclass(frozen=True, slots=True)
class Seen:
    """How things stand with a receiver: the changes it had, and the CPU seconds, user and system, of its process.

    `relays` is 1 while it reads the table's stream for all, and `reads_directly` while it does for itself though it has
    a bus.
    """

    changes: int
    cpu_seconds: float
    relays: int
    reads_directly: int


@asynccontextmanager
async def receiver(engine: str, bus: str | None) -> AsyncIterator[Child]:
    """One in a process of its own, which follows the table by the time this is entered."""
    async with started("benchmarks.bus_receiver", engine, *([] if bus is None else [bus])) as child:
        await seen(child)
        yield child


async def seen(child: Child) -> Seen:
    return Seen(**await child.ask("seen"))


async def _serve(engine: str, url: str | None) -> None:
    bus = None if url is None else Bus(url, "")
    gauges = {} if bus is None else bus.gauges()
    changes = 0

    def told(gauge: str) -> int:
        return int(gauges[gauge][1]()) if gauges else 0

    async def see(_: str) -> Seen:
        relays, directly = told("gateway_bus_tables_relayed"), told("gateway_bus_tables_direct")
        return Seen(changes, time.process_time(), relays, directly)

    async def count(following: ChangeSubscription[Any]) -> None:
        nonlocal changes
        async for _ in following:
            changes += 1

    async with open_database(StoreOptions(store=engine)) as database:
        feed = ChangeFeed(database.client, bus=bus)
        async with feed.follow(BLIP, _itself, keeping=QueueLimits(max_events=MOST_WAITING)) as following:
            counting = asyncio.create_task(count(following))
            await obey(see)
            counting.cancel()
        await feed.aclose()


def _itself(change: Change) -> Change:
    return change


if __name__ == "__main__":
    run(_serve(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None))
