"""The background work of a gateway: its pipelines, and the jobs of a host."""

import asyncio
import logging
import os
import random
import socket
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any

from datastore.earthquakes.statistics import StatisticsRebuild
from datastore.engine.ttl_sweeper import sweep_forever
from datastore.keyspace import TABLES
from datastore.keyspace.feeds.table import FEED
from datastore.keyspace.matches.leagues import LEAGUES
from datastore.keyspace.matches.teams import TEAMS
from datastore.primitives.retries import OutageLog, retry
from datastore.primitives.tasks import every
from datastore.search import NoIndex
from datastore.search.sqlite_index import SqliteIndex
from datastore.session.store import Store
from pipelines.consumer.consumer import Consumer, Instance
from pipelines.consumer.metrics import StreamMetrics
from pipelines.consumer.shard_worker import ConsumerIntervals
from pipelines.demo.scene import Demo
from pipelines.earthquakes.statistics import EarthquakeStatisticsPipeline
from pipelines.feeds.handlers import feed_handlers
from pipelines.feeds.search import GROUP, SearchSync
from pipelines.feeds.search_rebuild import RebuildProgress, SearchRebuild
from pipelines.matches.pipeline import CricketPipeline
from pipelines.matches.providers.provider import Provider
from pipelines.matches.setup import MatchSource, PipelineSetup
from pipelines.photos.janitor import Janitor
from server.settings import Misconfigured

if TYPE_CHECKING:
    from runtime.container import Gateway

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


class Background:
    """A factory for pipelines and jobs on the open store of a gateway."""

    def __init__(self, gateway: "Gateway") -> None:
        self._gateway = gateway
        self._settings = gateway.settings
        self._store = gateway.store_options
        self._now = gateway.now

    def jobs(self) -> Iterator[Job]:
        """Yield the jobs that run once per host."""
        if self._store.embedded:
            yield partial(sweep_forever, self._gateway.client, TABLES, self._store.prefix, self._now)
        if self._gateway.data_disk is not None:
            yield self._gateway.data_disk.watch
        if self._settings.demo:
            yield self.demo().live
        if self._gateway.match_setup.source is not MatchSource.NONE:
            yield self.cricket(self._gateway.match_setup).run
        if self._settings.feed_pipeline:
            feed = self.feed_pipeline()
            yield feed.run
            yield self.earthquake_statistics().run
            yield from self.search_jobs(feed)
        yield Janitor(self._open_job_store, self._gateway.objects, now=self._now).run
        if self._settings.ingest:
            assert self._gateway.ingest is not None
            yield partial(every, INGEST_EVERY_SECONDS, partial(self._gateway.ingest.run, self._settings.ingest))

    def cricket(self, setup: PipelineSetup, provider: Provider | None = None, **given: Any) -> CricketPipeline:
        """Return a cricket pipeline on this gateway's tables; `given` are its other arguments."""
        return CricketPipeline(
            provider or setup.provider(self._gateway.http, self._now),
            self._open_job_store,
            setup.delivery(self._now),
            instance_id=self.instance().instance_id,
            now=self._now,
            on_sync=self._forget_reference_data,
            metrics=self._gateway.poll_metrics,
            **given,
        )

    def instance(self) -> Instance:
        """Return a new instance on this gateway's tables, with the deadline of the pipelines."""
        instance_id = f"{socket.gethostname()}-{os.getpid()}-{self._gateway.new_id()[:8]}"
        return Instance(self._gateway.client, self._store.prefix, self._open_job_store, instance_id, self._now)

    def feed_pipeline(self, fan_out_bound: int | None = None) -> Consumer:
        """Return a consumer of the feed's changes. `fan_out_bound` replaces the setting."""
        bound = self._settings.fan_out_bound if fan_out_bound is None else fan_out_bound
        handlers = feed_handlers(self._open_job_store, self._now, fan_out_bound=bound)
        pace = pipeline_pace(self._store.in_aws, self._settings.poll_interval)
        return Consumer(self.instance(), FEED, handlers, self._gateway.metrics, pace=pace)

    def earthquake_statistics(self) -> EarthquakeStatisticsPipeline:
        """Return a consumer that counts earthquakes by day."""
        pace = pipeline_pace(self._store.in_aws, self._settings.poll_interval)
        return EarthquakeStatisticsPipeline(self.instance(), self._gateway.metrics, pace)

    def statistics_rebuild(self) -> StatisticsRebuild:
        return StatisticsRebuild(self._open_job_store, self._now)

    def search_jobs(self, leader: Consumer | None = None) -> Iterator[Job]:
        """Return the jobs that keep the search index current, if there is one, and build a local one as needed.

        With a `leader`, the feed's consumer in this process, they take the pages that the leader reads.
        """
        if not isinstance(self._gateway.search, NoIndex):
            yield self.search_pipeline(leader).run
            yield self._build_search if isinstance(self._gateway.search, SqliteIndex) else self._check_search

    def search_pipeline(self, leader: Consumer | None = None) -> Consumer:
        """Return a consumer that keeps the search index current."""
        # On AWS it leaves most reads of a shard to the other readers.
        pace = pipeline_pace(self._store.in_aws, self._settings.poll_interval, AWS_SEARCH_POLL_SECONDS)
        metrics = self._gateway.search_metrics.stream
        return Consumer(self.instance(), FEED, [self.search_sync()], metrics, group=GROUP, leader=leader, pace=pace)

    def search_sync(self) -> SearchSync:
        """Return the handler of the search index, for changes from other sources than the stream."""
        return SearchSync(self._gateway.search, self._open_job_store, self._gateway.search_metrics)

    def search_rebuild(self, on_progress: Callable[[RebuildProgress], None] = lambda _: None) -> SearchRebuild:
        return SearchRebuild(self.instance(), self._gateway.search, on_progress)

    async def _build_search(self) -> None:
        await self.search_rebuild().run_if_needed()
        await asyncio.Event().wait()  # a job that returns would be started again

    async def _check_search(self) -> None:
        if await self.search_rebuild().is_needed():
            logger.warning("The search index was not built from this table: run `gateway.py search rebuild` once.")
        await asyncio.Event().wait()

    def demo(self) -> Demo:
        return Demo(
            self._gateway.open_store,
            self._gateway.objects,
            areas=self._settings.areas,
            categories=self._settings.categories,
            now=self._now,
            new_id=self._gateway.new_id,
            rng=random.Random(),
            has_subscribers=self._gateway.has_subscribers,
        )

    def _open_job_store(self) -> Store:
        """Return a store with the deadline of the pipelines, which is longer than that of clients' operations."""
        return self._gateway.open_store(PIPELINE_DEADLINE_SECONDS)

    def _forget_reference_data(self) -> None:
        assert self._gateway.services is not None
        for table in (TEAMS, LEAGUES):
            self._gateway.services.scan_cache.invalidate(table)


def pipeline_pace(
    aws: bool, poll_interval: float | None, aws_seconds: float = AWS_PIPELINE_POLL_SECONDS
) -> ConsumerIntervals:
    """Return the pace of a pipeline on a shard without new records: the setting, or at most what AWS allows."""
    seconds = poll_interval or POLL_SECONDS
    return ConsumerIntervals(poll_seconds=max(seconds, aws_seconds) if aws else seconds)


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
