"""One instance of the feed's pipeline in a process of its own, for tests that kill it."""

import asyncio
import os
import sys
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

from datastore.database import StoreOptions, open_database
from datastore.session.metering import Deadline
from datastore.session.store import Store
from pipelines.consumer.shard_worker import ConsumerIntervals
from pipelines.feeds.pipeline import FeedPipeline
from tests.support.process_clock import process_clock

QUICK = ConsumerIntervals(poll_seconds=0.02, lease_seconds=0.6, renew_seconds=0.2, discover_seconds=0.2, batch=100)


def utc_now() -> datetime:
    return datetime.now(UTC)


def instance_of(process_id: int | None) -> str:
    """What the instance in a process is called, also in the leases it holds."""
    return f"process-{process_id}"


def run(engine: str, prefix: str, pace: ConsumerIntervals = QUICK) -> None:
    """Until killed."""
    asyncio.run(_run(engine, prefix, pace))


async def _run(engine: str, prefix: str, pace: ConsumerIntervals, now: Callable[[], datetime] = utc_now) -> None:
    async with open_database(StoreOptions(store=engine, prefix=prefix)) as database:

        def open_store() -> Store:
            return Store(database.client, prefix=prefix, deadline=Deadline(30), token=lambda: str(uuid.uuid4()))

        await FeedPipeline(
            database.client, prefix, open_store, instance_id=instance_of(os.getpid()), now=now, pace=pace
        ).run()


def main(engine: str, prefix: str, lease_seconds: str, *clock: str) -> None:
    """Until killed, with leases that live so long; the three numbers are those of its clock."""
    lease = float(lease_seconds)
    pace = replace(QUICK, lease_seconds=lease, renew_seconds=lease / 3)
    asyncio.run(_run(engine, prefix, pace, process_clock(*clock)))


if __name__ == "__main__":
    main(*sys.argv[1:])
