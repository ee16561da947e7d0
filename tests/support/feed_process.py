"""An instance of the feed's pipeline in a process of its own. Tests kill it."""

import asyncio
import os
import sys
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from datastore.database import StoreOptions, open_database
from datastore.keyspace.feeds.table import FEED
from datastore.session.metering import Deadline
from datastore.session.store import Store
from pipelines.consumer.consumer import Consumer, Instance
from pipelines.consumer.metrics import StreamMetrics
from pipelines.consumer.shard_worker import ConsumerIntervals
from pipelines.feeds.handlers import feed_handlers
from tests.support.moments import utc_now
from tests.support.process_clock import process_clock

QUICK = ConsumerIntervals(poll_seconds=0.02, lease_seconds=0.6, renew_seconds=0.2, discover_seconds=0.2, batch=100)


def instance_of(process_id: int | None) -> str:
    """Return the name of the instance in a process, which also owns its leases."""
    return f"process-{process_id}"


def run_feed_pipeline(engine: str, prefix: str, pace: ConsumerIntervals = QUICK) -> None:
    """Run the pipeline until the process is killed."""
    asyncio.run(_run(engine, prefix, pace))


async def _run(engine: str, prefix: str, pace: ConsumerIntervals, now: Callable[[], datetime] = utc_now) -> None:
    async with open_database(StoreOptions(store=engine, prefix=prefix)) as database:

        def open_store() -> Store:
            return Store(
                database.client, prefix=prefix, deadline=Deadline(30), token=lambda: str(uuid.uuid4()), now=now
            )

        instance = Instance(database.client, prefix, open_store, instance_of(os.getpid()), now)
        await Consumer(instance, FEED, feed_handlers(open_store, now), StreamMetrics(), pace=pace).run()


def main(engine: str, prefix: str, lease_seconds: str, *clock: str) -> None:
    """Run the pipeline until the process is killed. `clock` holds the three numbers of its clock."""
    lease = float(lease_seconds)
    pace = replace(QUICK, lease_seconds=lease, renew_seconds=lease / 3)
    asyncio.run(_run(engine, prefix, pace, process_clock(*clock)))


if __name__ == "__main__":
    main(*sys.argv[1:])
