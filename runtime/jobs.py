"""The background work of a gateway: its pipelines, and the jobs of a host."""

import asyncio
import logging
import os
import random
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import repeat
from typing import Any, Protocol

import aiohttp

from datastore.database import StoreOptions
from datastore.dynamodb.client import Client
from datastore.earthquakes.statistics import StatisticsRebuild
from datastore.engine.ttl_sweeper import sweep_forever
from datastore.keyspace import TABLES
from datastore.keyspace.matches.leagues import LEAGUES
from datastore.keyspace.matches.teams import TEAMS
from datastore.model.access_patterns import Table
from datastore.objects import ObjectStore
from datastore.primitives.retries import OutageLog, retry
from datastore.primitives.tasks import every
from datastore.search import NoIndex, SearchIndex
from datastore.search.sqlite_index import SqliteIndex
from datastore.session.metering import Meter
from datastore.session.scan_cache import ScanCache
from datastore.session.store import Store
from pipelines.consumer.consumer import Consumer
from pipelines.consumer.metrics import StreamMetrics
from pipelines.consumer.shard_worker import ConsumerIntervals
from pipelines.demo.scene import Demo
from pipelines.earthquakes.ingest import EarthquakeIngest
from pipelines.earthquakes.statistics import EarthquakeStatisticsPipeline
from pipelines.feeds.pipeline import FeedPipeline
from pipelines.feeds.search import SearchMetrics, SearchPipeline, SearchSync
from pipelines.feeds.search_rebuild import RebuildProgress, SearchRebuild
from pipelines.matches.live.metrics import PollMetrics
from pipelines.matches.pipeline import CricketPipeline
from pipelines.matches.providers.provider import Provider
from pipelines.matches.setup import MatchSource, PipelineSetup
from pipelines.photos.janitor import Janitor
from server.settings import Misconfigured, Settings

INGEST_EVERY_SECONDS = 60.0
METRICS_PAUSE_SECONDS = 0.5
# The delivery to all phones of a match reads page after page while it sends.
PIPELINE_DEADLINE_SECONDS = 120.0
POLL_SECONDS, LOCAL_POLL_SECONDS = 0.25, 0.02
# AWS allows five reads per second and shard, by two readers: the change feed of subscriptions uses four, a pipeline
# one. The search consumer takes the pages of the feed pipeline; it reads by itself only where that does not run.
AWS_PIPELINE_POLL_SECONDS = 1.0
AWS_SEARCH_POLL_SECONDS = 2.0

Job = Callable[[], Coroutine[Any, Any, None]]

logger = logging.getLogger(__name__)


class OpenJobStore(Protocol):
    def __call__(self, seconds: float | None = None, meter: Meter | None = None) -> Store: ...


@dataclass(frozen=True, slots=True)
class Background:
    """A factory for pipelines and jobs on the open store of a gateway."""

    settings: Settings
    store: StoreOptions
    client: Client
    session: aiohttp.ClientSession
    objects: ObjectStore
    search: SearchIndex
    search_metrics: SearchMetrics
    open_store: OpenJobStore
    match_setup: PipelineSetup
    ingest: EarthquakeIngest
    scan_cache: ScanCache
    metrics: StreamMetrics
    poll_metrics: PollMetrics
    now: Callable[[], datetime]
    new_id: Callable[[], str]
    has_subscribers: Callable[[Table], bool]

    def jobs(self) -> Iterator[Job]:
        """Yield the jobs that run once per host."""
        if self.store.embedded:
            yield partial(sweep_forever, self.client, TABLES, self.store.prefix, self.now)
        if self.settings.demo:
            yield self.demo().live
        if self.match_setup.source is not MatchSource.NONE:
            yield self.cricket(self.match_setup).run
        if self.settings.feed_pipeline:
            feed = self.feed_pipeline()
            yield feed.run
            yield self.earthquake_statistics().run
            yield from self.search_jobs(feed.consumer)
        yield Janitor(self._open_job_store, self.objects, now=self.now).run
        if self.settings.ingest:
            yield partial(every, INGEST_EVERY_SECONDS, partial(self.ingest.run, self.settings.ingest))

    def cricket(self, setup: PipelineSetup, provider: Provider | None = None, **given: Any) -> CricketPipeline:
        """Return a cricket pipeline on this gateway's tables; `given` are its other arguments."""
        return CricketPipeline(
            provider or setup.provider(self.session, self.now),
            self._open_job_store,
            setup.delivery(self.now),
            instance_id=self._instance_id(),
            now=self.now,
            on_sync=self._forget_reference_data,
            metrics=self.poll_metrics,
            **given,
        )

    def feed_pipeline(self, **given: Any) -> FeedPipeline:
        """Return a consumer of the feed's changes; `given` are its other arguments."""
        defaults: dict[str, Any] = {
            "fan_out_bound": self.settings.fan_out_bound,
            "metrics": self.metrics,
            "pace": pipeline_pace(self.store.in_aws, self.settings.poll_interval),
            "now": self.now,
        }
        return FeedPipeline(
            self.client,
            self.store.prefix,
            self._open_job_store,
            instance_id=self._instance_id(),
            **defaults | given,
        )

    def earthquake_statistics(self) -> EarthquakeStatisticsPipeline:
        """Return a consumer that counts earthquakes by day."""
        return EarthquakeStatisticsPipeline(
            self.client,
            self.store.prefix,
            self._open_job_store,
            instance_id=self._instance_id(),
            now=self.now,
            metrics=self.metrics,
            pace=pipeline_pace(self.store.in_aws, self.settings.poll_interval),
        )

    def statistics_rebuild(self) -> StatisticsRebuild:
        return StatisticsRebuild(self._open_job_store, self.now)

    def search_jobs(self, leader: Consumer | None = None) -> Iterator[Job]:
        """Return the jobs that keep the search index current, if there is one, and build a local one as needed.

        With a `leader`, the feed's consumer in this process, they take the pages that the leader reads.
        """
        if not isinstance(self.search, NoIndex):
            yield self.search_pipeline(leader=leader).run
            yield self._build_search if isinstance(self.search, SqliteIndex) else self._check_search

    def search_pipeline(self, **given: Any) -> SearchPipeline:
        """Return a consumer that keeps the search index current; `given` are its other arguments."""
        defaults: dict[str, Any] = {
            "metrics": self.search_metrics,
            "pace": search_pace(self.store.in_aws, self.settings.poll_interval),
            "now": self.now,
        }
        return SearchPipeline(
            self.client,
            self.store.prefix,
            self._open_job_store,
            self.search,
            instance_id=self._instance_id(),
            **defaults | given,
        )

    def search_sync(self) -> SearchSync:
        """Return the handler of the search index, for changes from other sources than the stream."""
        return SearchSync(self.search, self._open_job_store, self.search_metrics)

    def search_rebuild(self, on_progress: Callable[[RebuildProgress], None] = lambda _: None) -> SearchRebuild:
        return SearchRebuild(self.client, self.store.prefix, self._open_job_store, self.search, self.now, on_progress)

    async def _build_search(self) -> None:
        await self.search_rebuild().run_if_needed()
        await asyncio.Event().wait()  # a job that returns would be started again

    async def _check_search(self) -> None:
        if await self.search_rebuild().is_needed():
            logger.warning("The search index was not built from this table: run `gateway.py search rebuild` once.")
        await asyncio.Event().wait()

    def demo(self) -> Demo:
        return Demo(
            self.open_store,
            self.objects,
            areas=self.settings.areas,
            categories=self.settings.categories,
            now=self.now,
            new_id=self.new_id,
            rng=random.Random(),
            has_subscribers=self.has_subscribers,
        )

    def _open_job_store(self) -> Store:
        """Return a store with the deadline of the pipelines, which is longer than that of clients' operations."""
        return self.open_store(PIPELINE_DEADLINE_SECONDS)

    def _instance_id(self) -> str:
        return f"{socket.gethostname()}-{os.getpid()}-{self.new_id()[:8]}"

    def _forget_reference_data(self) -> None:
        for table in (TEAMS, LEAGUES):
            self.scan_cache.invalidate(table)


def pipeline_pace(aws: bool, poll_interval: float | None) -> ConsumerIntervals:
    """Return the pace of a pipeline on a shard without new records: the setting, or at most what AWS allows."""
    seconds = poll_interval or POLL_SECONDS
    return ConsumerIntervals(poll_seconds=max(seconds, AWS_PIPELINE_POLL_SECONDS) if aws else seconds)


def search_pace(aws: bool, poll_interval: float | None) -> ConsumerIntervals:
    """Return the pace of the search consumer. On AWS it leaves most reads of a shard to the other readers."""
    seconds = poll_interval or POLL_SECONDS
    return ConsumerIntervals(poll_seconds=max(seconds, AWS_SEARCH_POLL_SECONDS) if aws else seconds)


# Metrics


@contextmanager
def metrics_served(metrics: StreamMetrics, port: int | None, host: str) -> Iterator[None]:
    """Answer Prometheus at this address during the context, unless `port` is None.

    Raise `Misconfigured` if the address is taken.
    """
    with ExitStack() as stack:
        if port is not None:
            try:
                stack.enter_context(metrics.served(port, host))
            except OSError as problem:
                reason = problem.strerror or problem
                raise Misconfigured(f"cannot answer Prometheus on {host}:{port}: {reason}.") from None
        yield


async def serve_metrics(metrics: StreamMetrics, port: int, host: str) -> None:
    """Answer Prometheus in a worker. Retry while the port is taken, as it is until the predecessor has ended."""

    async def serve() -> None:
        with metrics_served(metrics, port, host):
            await asyncio.Event().wait()

    outage = OutageLog(lambda taken: logger.info("%s Retrying every %g s.", taken, METRICS_PAUSE_SECONDS))
    await retry(serve, repeat(METRICS_PAUSE_SECONDS), lambda problem: isinstance(problem, Misconfigured), outage)
