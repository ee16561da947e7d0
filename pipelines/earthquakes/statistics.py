"""The pipeline of daily earthquake statistics: a consumer of the stream of `earthquake-events`."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import timedelta

from datastore.change_streams.change import Change
from datastore.dynamodb.client import RequestRefused
from datastore.earthquakes.statistics import (
    StatisticsRebuild,
    StatisticsWriter,
    changed_items,
    coverage_of,
    record_check,
)
from datastore.errors import DomainError
from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.model.timestamps import from_epoch_ms
from datastore.session.store import Store
from pipelines.consumer.consumer import Consumer, Instance
from pipelines.consumer.metrics import StreamMetrics
from pipelines.consumer.shard_worker import ConsumerIntervals

CHECK_SECONDS = 60.0
# The pause after the first check that finds the consumer lagging. It doubles with each further such check.
LAGGING_CHECK_SECONDS = 2.0
# A stream keeps changes for 24 hours. A stream that was not read for longer may have lost some.
MAX_PAUSE = timedelta(hours=23)
# A consumer with a larger lag does not keep up.
MAX_LAG_SECONDS = 60.0
# The consumer counts a table of up to this size in megabytes at its start; a larger one needs `gateway.py statistics
# rebuild`.
SMALL_TABLE_PAGES = 16

logger = logging.getLogger(__name__)


class CountEarthquakes:
    """A handler that counts stored events by day."""

    name = "earthquake-statistics"

    def __init__(self, open_store: Callable[[], Store]) -> None:
        self._writer = StatisticsWriter(open_store)

    async def handle(self, changes: Sequence[Change]) -> None:
        if events := changed_items(changes):
            await self._writer.recount(await self._writer.record(events))


class EarthquakeStatisticsPipeline:
    """One instance of the pipeline. Any number of instances may share the tables."""

    def __init__(self, instance: Instance, metrics: StreamMetrics, pace: ConsumerIntervals) -> None:
        self._open_store = instance.open_store
        self._now = instance.now
        self._metrics = metrics
        self._rebuild = StatisticsRebuild(instance.open_store, instance.now)
        handlers = [CountEarthquakes(instance.open_store)]
        self._consumer = Consumer(instance, EARTHQUAKES, handlers, metrics, pace=pace)

    async def run(self) -> None:
        """Count until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._consumer.run())
            tasks.create_task(self._check_forever())

    async def _check_forever(self) -> None:
        pause = LAGGING_CHECK_SECONDS
        while True:
            keeps_up = False
            try:
                keeps_up = await self.check()
            except (DomainError, RequestRefused) as problem:
                logger.warning("The statistics of earthquakes could not be checked; retrying: %s", problem)
            await asyncio.sleep(CHECK_SECONDS if keeps_up else pause)
            pause = LAGGING_CHECK_SECONDS if keeps_up else min(2 * pause, CHECK_SECONDS)

    async def check(self) -> bool:
        """Build the statistics of a small table that has none. Record the time if this process keeps them current.

        Return whether it keeps them current: its lag behind the stream is at most `MAX_LAG_SECONDS`.
        """
        coverage = await coverage_of(self._open_store())
        if coverage is None:
            await self._build()
        elif self._now() - from_epoch_ms(coverage.checked_at_ms) > MAX_PAUSE:
            full_name = self._open_store().prefix + EARTHQUAKES.name
            logger.error("The stream of %s was not read for a day: its statistics may lack events.", full_name)
            await self._build()
        keeps_up = self._metrics.lag_of(EARTHQUAKES.name) <= MAX_LAG_SECONDS
        if keeps_up:
            await record_check(self._open_store(), self._now())
        return keeps_up

    async def _build(self) -> None:
        if not await self._rebuild.all_days(SMALL_TABLE_PAGES):
            await self._rebuild.forget_coverage()
            logger.warning("There are no complete statistics of earthquakes: run `gateway.py statistics rebuild`.")
