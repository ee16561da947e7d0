"""A process that receives the changes of a table and discards them.

`python -m benchmarks.bus_receiver ENGINE [BUS]`: the URLs of the store and, optionally, of the bus.
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.child import Child, serve_commands, started
from benchmarks.measuring import run
from datastore.change_streams.change import Change
from datastore.change_streams.change_feed import ChangeFeed
from datastore.change_streams.change_subscription import ChangeSubscription
from datastore.change_streams.relay.bus import Bus
from datastore.database import StoreOptions, open_database
from datastore.keyspace.sightings import BLIP
from datastore.queues import QueueLimits

MAX_WAITING = 1_000_000


@dataclass(frozen=True, slots=True)
class ReceiverState:
    """The state of a receiver."""

    #: The changes received.
    changes: int
    #: User and system time of its process.
    cpu_seconds: float
    #: 1 while it is the leader, which reads the table's stream for all.
    relays: int
    #: 1 while it has a bus and nevertheless reads the stream for itself.
    reads_directly: int


@asynccontextmanager
async def receiver(engine: str, bus: str | None) -> AsyncIterator[Child]:
    """Start a receiver in a separate process, and yield it when it receives changes."""
    async with started("benchmarks.bus_receiver", engine, *([] if bus is None else [bus])) as child:
        await receiver_state(child)
        yield child


async def receiver_state(child: Child) -> ReceiverState:
    return ReceiverState(**await child.ask("receiver_state"))


async def _serve(engine: str, url: str | None) -> None:
    bus = None if url is None else Bus(url, "")
    gauges = {} if bus is None else bus.gauges()
    changes = 0

    def gauge_value(gauge: str) -> int:
        return int(gauges[gauge][1]()) if gauges else 0

    async def state(_: str) -> ReceiverState:
        relays, directly = gauge_value("gateway_bus_tables_relayed"), gauge_value("gateway_bus_tables_direct")
        return ReceiverState(changes, time.process_time(), relays, directly)

    async def count(following: ChangeSubscription[Any]) -> None:
        nonlocal changes
        async for _ in following:
            changes += 1

    async with open_database(StoreOptions(store=engine)) as database:
        feed = ChangeFeed(database.client, bus=bus)
        async with feed.follow(BLIP, _itself, limits=QueueLimits(max_events=MAX_WAITING)) as following:
            counting = asyncio.create_task(count(following))
            await serve_commands(state)
            counting.cancel()
        await feed.aclose()


def _itself(change: Change) -> Change:
    return change


if __name__ == "__main__":
    run(_serve(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None))
