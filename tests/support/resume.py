"""A second gateway, clients that are cut off, and waiting for deliveries."""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import Any

import pytest

from datastore.change_streams.replay.replay_log import ReplayLog
from datastore.change_streams.shards.checkpoints import sequence_at
from datastore.change_streams.shards.shard_reader import ShardCursor, shards_of, stream_of
from datastore.database import StoreOptions
from datastore.keyspace.matches.fixtures import FIXTURES
from server.settings import Settings
from tests.support.ports import free_port
from tests.support.resuming_clients import EventStreamClient, ResumingClient, SocketClient
from tests.support.served import Clock, Served, Tidied, listening

CUTS = int(os.environ.get("RESUME_CUTS", "20"))
MATCH = 'subscription { matchUpdates(matchId: "m1") { version isSnapshot } }'
QUAKES = "subscription { earthquakeDetected { eventId } }"
TRANSPORTS = pytest.mark.parametrize("transport", [SocketClient, EventStreamClient])


@pytest.fixture
async def other(served: Served, settings: Settings, store_options: StoreOptions, clock: Clock) -> AsyncIterator[Served]:
    """Run a second gateway on the same store."""
    async with AsyncExitStack() as stack:
        settings = replace(settings, port=free_port())
        gateway = Tidied(settings, store_options, now=clock)
        await stack.enter_async_context(gateway.running())
        await stack.enter_async_context(listening(gateway))
        yield Served(gateway, settings.url, served.http, clock)


async def cut_at_random(
    client: ResumingClient, urls: list[str], has_all: Callable[[], bool], take: Callable[[Any], None], cuts: int = CUTS
) -> None:
    """Read over one connection after another, and over the last until everything has arrived.

    Half of the connections are cut at a random moment, the others after some payloads, so that a slow machine gets
    payloads, too.
    """
    rng = random.Random(7)

    async def read(most: int) -> None:
        async with client.connected(rng.choice(urls)) as events:
            async for payload in events:
                take(payload)
                most -= 1
                if most == 0 or (cut == cuts and has_all()):
                    return

    for cut in range(cuts + 1):
        at_a_moment = cut % 2 == 0 and cut < cuts
        with suppress(TimeoutError):
            async with asyncio.timeout(rng.uniform(0.005, 0.08) if at_a_moment else 20):
                await read(0 if at_a_moment or cut == cuts else rng.randrange(1, 4))


async def write_until(over: asyncio.Event, write: Callable[[int], Awaitable[Any]]) -> int:
    """Write until `over` is set. Return the number of writes."""
    number = 0
    while not over.is_set():
        await write(number)
        number += 1
        await asyncio.sleep(0.003)
    return number


def read_up_to(log: ReplayLog) -> int:
    """Return the newest sequence in a log."""
    return max([sequence_at(position) or 0 for position in log.last_token.positions.values()])


async def told_all(served: Served) -> None:
    """Wait until the process has delivered all changes so far of each table that it reads."""
    services, database = served.gateway.services, served.gateway.database
    assert services is not None
    assert database is not None
    for name, followed in services.changes._tables.items():
        if name == FIXTURES.name:
            continue  # tests write fixtures before their subscribers attach: the reader does not get these changes
        arn = await stream_of(database.client, name, services.prefix)
        (shard,) = await shards_of(database.client, arn)
        cursor = ShardCursor(database.client, arn, shard.id, None)
        newest = 0
        while records := (await cursor.read()).records:
            newest = int(records[-1]["dynamodb"]["SequenceNumber"])
        async with asyncio.timeout(50):
            while read_up_to(followed.log) < newest:  # noqa: ASYNC110 - it has no event to await
                await asyncio.sleep(0.01)
