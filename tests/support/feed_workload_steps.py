"""Pipelines and consumers for the tests of the feed's workload."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from datastore.change_streams.dead_letters import DeadLetter, every_letter
from datastore.change_streams.leases import LIFETIME_SECONDS
from datastore.dynamodb.retry.backoff import Backoff
from datastore.keyspace.feeds.pipeline import CONSUMER_TABLE
from datastore.keyspace.feeds.table import FEED
from pipelines.consumer.consumer import Consumer
from pipelines.consumer.handlers import Handler
from pipelines.feeds.fan_out import MAX_FOLLOWERS
from pipelines.feeds.handlers import feed_handlers
from tests.support import feed_process
from tests.support.moments import utc_now
from tests.support.served import Served

OPERATIONS = int(os.environ.get("FEED_OPERATIONS", "320"))
PATIENCE = 60 + OPERATIONS / 20


def handlers_of(served: Served, fan_out_bound: int = MAX_FOLLOWERS) -> list[Handler]:
    return feed_handlers(served.store, utc_now, fan_out_bound=fan_out_bound)


@asynccontextmanager
async def pipeline(served: Served, handlers: Sequence[Handler] | None = None) -> AsyncIterator[None]:
    """Run an instance in this process.

    Its leases last as long as in production. With shorter ones, a short stall of the machine makes the instance lose
    its lease in each batch and make no progress. The instance releases its leases at the end.
    """
    consumer = Consumer(
        replace(served.gateway.background.instance(), now=utc_now),
        FEED,
        handlers or handlers_of(served),
        served.gateway.metrics,
        pace=replace(feed_process.QUICK, lease_seconds=LIFETIME_SECONDS),
        retries=Backoff(initial=0.001, maximum=0.01, attempts=6),
    )
    running = asyncio.create_task(consumer.run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.wait([running])


async def buried(served: Served) -> list[DeadLetter]:
    return [letter async for letter in every_letter(served.store, CONSUMER_TABLE, FEED.name, utc_now())]
