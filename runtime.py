"""What a gateway process holds while it serves: the store, the feed, background jobs, and the edge in front of them."""

import asyncio
import logging
import os
import random
import socket
import time
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import strawberry

from datastore.bus import bus_at
from datastore.changes import ChangeFeed
from datastore.client import RequestRefused
from datastore.cursors import Cursors
from datastore.database import Database, StoreOptions, open_database
from datastore.declarations import Table
from datastore.earthquakes import IngestSummary
from datastore.errors import BadUserInput, DomainError
from datastore.expiry import sweep_forever
from datastore.keyspace import TABLES
from datastore.keyspace.matches.leagues import LEAGUES
from datastore.keyspace.matches.teams import TEAMS
from datastore.metering import Deadline, Meter
from datastore.objects.opening import object_store
from datastore.photos.user_ids import UserIds
from datastore.remembered import RememberedScans
from datastore.request_logs import RequestLogs
from datastore.shared_reads import ProcessReads
from datastore.store import Store
from edge.assembly import Edge
from edge.observing.store_metrics import StoreMetrics
from edge.requests import Observe
from edge.settings import Misconfigured, Settings
from pipelines.demo import Demo
from pipelines.earthquakes import EarthquakeIngest
from pipelines.feeds.pipeline import FeedPipeline
from pipelines.jobs import every
from pipelines.matches.pipeline import CricketPipeline
from pipelines.matches.providers import Provider
from pipelines.matches.setup import PipelineSetup, Source, pipeline_setup
from pipelines.photos.janitor import Janitor
from pipelines.streams.metrics import StreamMetrics
from pipelines.streams.shard_work import Pace
from pipelines.usgs_feed import FeedError
from pipelines.usgs_fetch import feed_url
from resolvers.access import Identity
from resolvers.context import Context, Places, Services

INGEST_EVERY_SECONDS = 60.0
INGEST_STOP_SECONDS = 5.0
JOB_PAUSE_SECONDS = 10.0
METRICS_PAUSE_SECONDS = 0.5
# For jobs to give back what they hold, leases say.
JOB_STOP_SECONDS = 4.0
# Delivering to all phones of a match reads page after page while it sends.
PIPELINE_DEADLINE_SECONDS = 120.0
POLL_SECONDS, LOCAL_POLL_SECONDS = 0.25, 0.02
# AWS has a shard read five times a second, by two readers: four times by what subscriptions follow, once by this.
AWS_PIPELINE_POLL_SECONDS = 1.0

logger = logging.getLogger(__name__)


def utc_now() -> datetime:
    return datetime.now(UTC)


def new_id() -> str:
    return str(uuid.uuid4())


def _build_schema() -> strawberry.Schema:
    # Commands that serve nothing start a quarter sooner without it.
    import schema

    return schema.build()


class Part(StrEnum):
    """Of what is done on a host: all, what clients ask for, or what runs without being asked."""

    WHOLE = "whole"
    SERVING = "serving"
    JOBS = "jobs"


class Gateway:
    """What the process holds while it serves. `now` and `new_id` are where time and chance come from.

    `part` is what it does of all that a host does, where others do the rest.
    """

    def __init__(
        self,
        settings: Settings,
        store: StoreOptions,
        *,
        now: Callable[[], datetime] = utc_now,
        new_id: Callable[[], str] = new_id,
        observers: Collection[Observe] = (),
        part: Part = Part.WHOLE,
    ) -> None:
        self.settings = settings
        self._part = part
        self.matches = pipeline_setup(Source(settings.matches or Source.NONE))
        self._store = store
        self._now = now
        self._new_id = new_id
        self._session: aiohttp.ClientSession | None = None
        self.database: Database | None = None
        self.services: Services | None = None
        self.ingest: EarthquakeIngest | None = None
        self.metrics = StreamMetrics()
        self._ingests: set[asyncio.Task[IngestSummary]] = set()
        self.objects = object_store(
            store,
            bucket=settings.photo_bucket,
            s3_url=settings.s3_url,
            secret=settings.secret.encode(),
            base_url=lambda: settings.reached_at,
            others=_encoded(settings.other_secrets),
        )
        self.edge = Edge(
            settings,
            store,
            self.objects,
            self.metrics.registry,
            build_schema=_build_schema,
            open_context=self.open_context,
            open_store=self.open_store,
            open_session=self._http,
            now=now,
            clock=time.time if now is utc_now else lambda: now().timestamp(),
            new_id=new_id,
            observers=observers,
        )
        StoreMetrics(self.metrics.registry, lambda: None if self.database is None else self.database.client)
        self.bus = bus_at(settings.bus, store.prefix, self.edge.figures)

    def open_context(self, identity: Identity | None) -> Context:
        assert self.services is not None, "The gateway is used before it has started."
        return Context(self.services, identity)

    def _http(self) -> aiohttp.ClientSession:
        assert self._session is not None, "The gateway is used before it has started."
        return self._session

    @asynccontextmanager
    async def running(self, *, jobs: bool = True) -> AsyncIterator["Gateway"]:
        """Open the store, and all that works behind a serving gateway (`jobs`); close everything in the end."""
        serves = jobs and self._part is not Part.JOBS
        if serves:
            self.edge.known.load()
        async with AsyncExitStack() as stack:
            self._session = await stack.enter_async_context(aiohttp.ClientSession())
            self.database = await stack.enter_async_context(open_database(self._store, on_restart=self._prepare_store))
            self.database.client.on_call = self.edge.figures.call
            clock = time.monotonic if self._now is utc_now else lambda: self._now().timestamp()
            shared = self.database.client.shared = ProcessReads(clock, on=self.settings.shared_reads)
            self.objects.open()
            stack.callback(self.objects.close)
            self.edge.graphiql.bucket = self.objects.origin()
            logs = RequestLogs(self.database.client, prefix=self._store.prefix, now=self._now, token=self._new_id)
            changes = ChangeFeed(
                self.database.client,
                prefix=self._store.prefix,
                poll_interval=followed_every(self._store.store, self.settings.poll_interval),
                bus=self.bus,
                on_change=lambda change: shared.changed(self._store.prefix, change.table, change.keys),
            )
            self.ingest = self._make_ingest(logs)
            self.services = self._make_services(logs, changes)
            await self._prepare_store()
            logs.start()
            stack.push_async_callback(logs.stop)
            stack.push_async_callback(changes.aclose)
            stack.push_async_callback(self.services.remembered.aclose)
            stack.push_async_callback(self._finish_ingests)
            if self._part is Part.WHOLE:
                stack.enter_context(self.metrics_served(self.settings.metrics_port, self.settings.metrics_host))
            if jobs:
                stack.push_async_callback(_stop, [asyncio.create_task(_keep(job)) for job in self._jobs()])
            await stack.enter_async_context(self.edge.running(serving=serves))
            yield self

    @contextmanager
    def metrics_served(self, port: int | None, host: str) -> Iterator[None]:
        """Answer Prometheus at this address; with None as port, do not. Raises `Misconfigured` when it is taken."""
        with ExitStack() as stack:
            if port is not None:
                try:
                    stack.enter_context(self.metrics.served(port, host))
                except OSError as problem:
                    reason = problem.strerror or problem
                    raise Misconfigured(f"cannot answer Prometheus on {host}:{port}: {reason}.") from None
            yield

    async def _serve_metrics(self, port: int) -> None:
        """As one of several: the port may be that of a process whose place this one takes, until that has ended."""
        has_told = False
        while True:
            try:
                with self.metrics_served(port, self.settings.metrics_host):
                    await asyncio.Event().wait()
            except Misconfigured as taken:
                if not has_told:
                    logger.info("%s It is tried again.", taken)
                has_told = True
            await asyncio.sleep(METRICS_PAUSE_SECONDS)

    async def readiness(self, seconds: float) -> dict[str, Any]:
        """Whether the store answers for every table, within so many seconds. A bus that is away can be done without."""
        names = [self._store.prefix + table.name for table in TABLES]
        try:
            async with asyncio.timeout(seconds):
                found = await asyncio.gather(*[self._has_table(name) for name in names])
        except (DomainError, TimeoutError):
            return {"ready": False, "store": "unreachable"}
        except RequestRefused as refusal:
            logger.warning("The store refuses to tell of its tables: %s", refusal)
            return {"ready": False, "store": "refuses"}
        missing = [name for name, there in zip(names, found, strict=True) if not there]
        if missing:
            return {"ready": False, "store": "tables missing", "missing": missing}
        bus = {} if self.bus is None else {"bus": "away" if self.bus.is_away else "ok"}
        return {"ready": True, "store": "ok", **bus}

    async def _has_table(self, name: str) -> bool:
        assert self.database is not None
        try:
            await self.database.client.call("DescribeTable", {"TableName": name})
        except RequestRefused as refusal:
            if refusal.code != "ResourceNotFoundException":
                raise
            return False
        return True

    async def _prepare_store(self) -> None:
        """An embedded store has no administrator: its tables are made, and its demo data loaded, as needed."""
        assert self.database is not None
        if self._part is not Part.WHOLE:
            return  # it was done before
        if self._store.embedded:
            await self.database.create_tables()
        if self.settings.demo:
            await self._load_demo()

    async def _load_demo(self) -> None:
        try:
            await self.demo().load()
        except (DomainError, RequestRefused) as problem:
            # A store of one's own may come later; what is served works without the demo.
            logger.warning("The demo data could not be loaded (`gateway.py seed` loads it): %s", problem)

    def _jobs(self) -> Iterator[Callable[[], Coroutine[Any, Any, None]]]:
        if self._part is not Part.JOBS and self.edge.known.watch is not None:
            yield self.edge.known.watch
        if self._part is not Part.WHOLE and self.settings.metrics_port is not None:
            yield partial(self._serve_metrics, self.settings.metrics_port)
        if self._part is not Part.SERVING:
            yield from self._jobs_of_a_host()

    def _jobs_of_a_host(self) -> Iterator[Callable[[], Coroutine[Any, Any, None]]]:
        assert self.database is not None
        if self._store.embedded:
            yield partial(sweep_forever, self.database.client, TABLES, self._store.prefix, self._now)
        if self.settings.demo:
            yield self.demo().live
        if self.matches.source is not Source.NONE:
            yield self.cricket(self.matches).run
        if self.settings.feed_pipeline:
            yield self.feed_pipeline().run
        yield Janitor(partial(self.open_store, PIPELINE_DEADLINE_SECONDS), self.objects, now=self._now).run
        if self.settings.ingest:
            yield partial(every, INGEST_EVERY_SECONDS, partial(self._run_ingest, self.settings.ingest))

    async def _finish_ingests(self) -> None:
        """Those that clients began: a moment to end by themselves, and in any case to have their log written."""
        if self._ingests:
            await asyncio.wait(self._ingests, timeout=INGEST_STOP_SECONDS)
        await _stop([*self._ingests])

    def open_store(self, seconds: float | None = None, meter: Meter | None = None) -> Store:
        """A store for a piece of work beside clients' operations, which takes so long at the most."""
        assert self.database is not None
        deadline = Deadline(seconds or self.settings.deadline_seconds)
        return Store(
            self.database.client, prefix=self._store.prefix, deadline=deadline, token=self._new_id, meter=meter
        )

    def cricket(self, setup: PipelineSetup, provider: Provider | None = None, **given: Any) -> CricketPipeline:
        """A pipeline on this gateway's tables; `given` is for it."""
        return CricketPipeline(
            provider or setup.provider(self._http(), self._now),
            partial(self.open_store, PIPELINE_DEADLINE_SECONDS),
            setup.delivery(self._now),
            instance_id=self._instance_id(),
            now=self._now,
            on_sync=self._forget_reference_data,
            **given,
        )

    def feed_pipeline(self, **given: Any) -> FeedPipeline:
        """A consumer of the feed's changes; `given` is for it."""
        assert self.database is not None
        defaults: dict[str, Any] = {
            "fan_out_bound": self.settings.fan_out_bound,
            "metrics": self.metrics,
            "pace": pipeline_pace(self._store.store, self.settings.poll_interval),
            "now": self._now,
        }
        return FeedPipeline(
            self.database.client,
            self._store.prefix,
            partial(self.open_store, PIPELINE_DEADLINE_SECONDS),
            instance_id=self._instance_id(),
            **defaults | given,
        )

    def _instance_id(self) -> str:
        return f"{socket.gethostname()}-{os.getpid()}-{self._new_id()[:8]}"

    def _forget_reference_data(self) -> None:
        assert self.services is not None
        for table in (TEAMS, LEAGUES):
            self.services.remembered.invalidate(table)

    def demo(self) -> Demo:
        return Demo(
            self.open_store,
            self.objects,
            areas=self.settings.areas,
            categories=self.settings.categories,
            now=self._now,
            new_id=self._new_id,
            chance=random.Random(),
            is_followed=self._is_followed,
        )

    def _is_followed(self, table: Table) -> bool:
        """Whether somebody follows a table here; what other processes have to tell is not known, and may be much."""
        return self._part is Part.JOBS or (self.services is not None and self.services.changes.followers(table) > 0)

    def _make_ingest(self, logs: RequestLogs) -> EarthquakeIngest:
        assert self.database is not None
        return EarthquakeIngest(
            self.database.client,
            prefix=self._store.prefix,
            logs=logs,
            session=self._http(),
            now=self._now,
            new_id=self._new_id,
        )

    def _make_services(self, logs: RequestLogs, changes: ChangeFeed) -> Services:
        assert self.database is not None
        return Services(
            client=self.database.client,
            prefix=self._store.prefix,
            cursors=Cursors(self.settings.secret.encode(), _encoded(self.settings.other_secrets)),
            changes=changes,
            remembered=RememberedScans(self.open_store, self._now),
            request_logs=logs,
            ingest=self._ingest_for_clients,
            places=Places(self.settings.areas, self.settings.categories),
            now=self._now,
            new_id=self._new_id,
            user_ids=_user_ids(self.settings),
            objects=self.objects,
            deadline_seconds=self.settings.deadline_seconds,
        )

    async def _ingest_for_clients(self, feed: str) -> IngestSummary:
        """Clients name feeds, or URLs on the hosts that are allowed: neither our files nor our network."""
        is_url = "://" in feed
        host = urlsplit(feed).hostname if is_url else None
        if is_url and host not in self.settings.ingest_hosts:
            allowed = ", ".join(self.settings.ingest_hosts)
            raise BadUserInput(f"`feed` may be the name of a USGS feed, or a URL on: {allowed}.", field="feed")
        if not is_url:
            _check_name(feed)
        task = asyncio.create_task(self._run_ingest(feed))
        self._ingests.add(task)
        task.add_done_callback(self._ingests.discard)
        # A client's deadline ends its waiting, not the ingest.
        return await asyncio.shield(task)

    async def _run_ingest(self, feed: str) -> IngestSummary:
        assert self.ingest is not None
        return await self.ingest.run(feed)


def _encoded(secrets: Iterable[str]) -> list[bytes]:
    return [secret.encode() for secret in secrets]


def _user_ids(settings: Settings) -> UserIds:
    own = settings.user_id_secret or settings.secret
    return UserIds(own.encode(), _encoded((settings.secret, *settings.other_secrets)))


def followed_every(store: str, poll_interval: float | None) -> float:
    """How often a shard is read for subscribers, in seconds. On AWS each read is billed, and their number limited."""
    return poll_interval or (POLL_SECONDS if store == "aws" else LOCAL_POLL_SECONDS)


def pipeline_pace(store: str, poll_interval: float | None) -> Pace:
    """How often the pipeline reads a shard that has nothing new: as often as it is set, within what AWS allows."""
    seconds = poll_interval or POLL_SECONDS
    return Pace(poll_seconds=max(seconds, AWS_PIPELINE_POLL_SECONDS) if store == "aws" else seconds)


async def _stop(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Those that do not end in time are left behind: the process is to end."""
    for task in tasks:
        task.cancel()
    if not tasks:
        return
    over, stuck = await asyncio.wait(tasks, timeout=JOB_STOP_SECONDS)
    for task in over:
        if not task.cancelled() and task.exception() is not None:
            logger.error("What ran in the background failed while it ended", exc_info=task.exception())
    if stuck:
        logger.error("%d of what ran in the background do not end: %s", len(stuck), stuck)


async def _keep(job: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """A job that fails is told of, and begun again: none ends in silence."""
    while True:
        try:
            await job()
        except Exception:
            logger.exception("A job in the background failed; it begins again in %.0f s", JOB_PAUSE_SECONDS)
        await asyncio.sleep(JOB_PAUSE_SECONDS)


def _check_name(feed: str) -> None:
    try:
        feed_url(feed)
    except FeedError as problem:
        raise BadUserInput(str(problem), field="feed") from None
