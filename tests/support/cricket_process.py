"""An instance of the pipeline in its own process, for tests that kill it. It plays a match by the clock."""

import asyncio
import random
import sys
import uuid
from datetime import UTC, date, datetime, timedelta

from datastore.database import StoreOptions, open_database
from datastore.session.metering import Deadline
from datastore.session.store import Store
from pipelines.demo.match import demo_match
from pipelines.matches.live.orchestrator import PollIntervals
from pipelines.matches.pipeline import CricketPipeline
from pipelines.matches.providers.cricsheet.reader import read
from pipelines.matches.providers.recordings import Recording
from pipelines.matches.providers.replay import ReplayProvider
from pipelines.matches.push.push_service import LoggedPushService
from tests.support.moments import utc_now
from tests.support.process_clock import process_clock


def recording(match_id: str) -> Recording:
    return read(demo_match(random.Random(5), 1, date(2026, 6, 25)), match_id=match_id)


async def main(engine: str, prefix: str, match_id: str, instance_id: str, *numbers: str) -> None:
    """Run an instance. The last three numbers, if given, set the pipeline's clock; the provider's clock is right."""
    start, speed, lock_seconds = map(float, numbers[:3])
    now = process_clock(*numbers[3:]) if numbers[3:] else utc_now
    starts = {match_id: datetime.fromtimestamp(start, UTC)}
    provider = ReplayProvider([recording(match_id)], now=utc_now, speed=speed, start_times=starts)
    async with open_database(StoreOptions(store=engine, prefix=prefix)) as database:

        def open_store() -> Store:
            return Store(
                database.client, prefix=prefix, deadline=Deadline(20), token=lambda: str(uuid.uuid4()), now=now
            )

        intervals = PollIntervals(
            tick_seconds=0.05, reconcile_seconds=0.1, lock_seconds=lock_seconds, linger=timedelta(hours=1)
        )
        pipeline = CricketPipeline(
            provider, open_store, LoggedPushService(), instance_id=instance_id, now=now, intervals=intervals
        )
        async with pipeline.open():
            print("Ready", flush=True)
            await pipeline.orchestrator.run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
