"""The objects of a gateway process and their life: store, change feed, background jobs, server components."""

import asyncio
import logging
import time
import uuid
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

import strawberry

from datastore.change_streams.change_feed import ChangeFeed
from datastore.change_streams.relay import bus_at
from datastore.change_streams.replay.backfill import EMPTY_SECONDS
from datastore.change_streams.shards.read_pace import StreamReads
from datastore.database import Database, StoreOptions, open_database
from datastore.dynamodb.client import Client, RequestRefused
from datastore.dynamodb.read_cache import ReadCaches
from datastore.earthquakes.request_logs import RequestLogs
from datastore.errors import DomainError
from datastore.keyspace import TABLES, TABLES_BY_NAME
from datastore.keyspace.page import page
from datastore.model.access_patterns import Table
from datastore.model.identity import Identity
from datastore.objects.factory import object_store
from datastore.photos.encrypted_user_ids import UserIds
from datastore.primitives.tasks import stop, supervise
from datastore.search.factory import search_index
from datastore.search.sqlite_index import SqliteIndex
from datastore.session.cursors import Cursors
from datastore.session.metering import Deadline, Meter
from datastore.session.request_reads import ReadFreshness
from datastore.session.scan_cache import ScanCache
from datastore.session.store import Store
from pipelines.consumer.metrics import StreamMetrics
from pipelines.earthquakes.client_ingests import ClientIngests
from pipelines.earthquakes.ingest import EarthquakeIngest
from pipelines.feeds.search import SearchMetrics
from pipelines.matches.live.metrics import PollMetrics
from pipelines.matches.setup import MatchSource, pipeline_setup
from resolvers.earthquakes.costs import EarthquakeCosts
from resolvers.earthquakes.earthquakes import EARTHQUAKE_COSTS
from resolvers.shared.context import Context
from resolvers.shared.services import Services, SightingPlaces
from runtime.data_disk import DataDisk
from runtime.jobs import LOCAL_POLL_SECONDS, POLL_SECONDS, Background, Job, metrics_served, serve_metrics
from server.agreement.settings_agreement import SettingsAgreement
from server.documents.settings import DocumentSettings
from server.observability.store_metrics import StoreMetrics
from server.operations.report import Observe
from server.settings import KEEP_METADATA, Settings
from server.wiring import ServerComponents, ServerDependencies

if TYPE_CHECKING:
    import aiohttp

logger = logging.getLogger(__name__)


def utc_now() -> datetime:
    return datetime.now(UTC)


def new_id() -> str:
    return str(uuid.uuid4())


def _build_schema(settings: DocumentSettings) -> strawberry.Schema:
    # Not at the top of the module: without it, commands that serve nothing start in three quarters of the time.
    import schema

    return schema.build(incremental=settings.incremental, federation=settings.federation)


class ProcessPart(StrEnum):
    """The part of a host's work that a process does."""

    #: Requests and background jobs, in a single process.
    WHOLE = "whole"
    #: Requests of clients.
    SERVING = "serving"
    #: Background jobs.
    JOBS = "jobs"


class Gateway:
    """The container of the objects of a gateway process. `running` opens the store and all objects that need it.

    `now` and `new_id` are the sources of time and of random ids. `part` is the work of this process, if other processes
    of the host do the rest.
    """

    def __init__(
        self,
        settings: Settings,
        store: StoreOptions,
        *,
        now: Callable[[], datetime] = utc_now,
        new_id: Callable[[], str] = new_id,
        observers: Collection[Observe] = (),
        part: ProcessPart = ProcessPart.WHOLE,
    ) -> None:
        self.settings = settings
        self._part = part
        self.match_setup = pipeline_setup(MatchSource(settings.matches or MatchSource.NONE))
        self.store_options = store
        self.now = now
        self.new_id = new_id
        self._session: aiohttp.ClientSession | None = None
        self.database: Database | None = None
        self.services: Services | None = None
        self.ingest: EarthquakeIngest | None = None
        self.background = Background(self)
        self.metrics = StreamMetrics()
        self.search_metrics = SearchMetrics(self.metrics.registry)
        self.poll_metrics = PollMetrics(self.metrics.registry)
        self.objects = object_store(
            store,
            bucket=settings.photo_bucket,
            s3_url=settings.s3_url,
            secret=settings.secret.encode(),
            base_url=lambda: settings.reached_at,
            other_secrets=_encoded(settings.other_secrets),
        )
        self.server = ServerComponents(
            settings,
            store,
            self.objects,
            self.metrics.registry,
            ServerDependencies(
                build_schema=partial(_build_schema, settings.documents),
                open_context=self.open_context,
                open_store=self.open_store,
                open_session=self.http,
                cost_models={EARTHQUAKE_COSTS: EarthquakeCosts(self.open_store)},
                access_patterns=page,
                now=now,
                clock=time.time if now is utc_now else lambda: now().timestamp(),
                new_id=new_id,
            ),
            observers=observers,
        )
        StoreMetrics(self.metrics.registry, lambda: None if self.database is None else self.database.client)
        self.agreement = SettingsAgreement(
            settings, self.open_store, self.metrics.registry, now=now, run=uuid.uuid4().hex
        )
        self.bus = bus_at(settings.bus, store.prefix, self.server.metrics)
        self.reads = StreamReads()
        self.reads.show_in(self.server.metrics)
        self.server.metrics.gauge(
            "gateway_unknown_variables",
            "Variables of the environment that begin as a setting and are none.",
            lambda: len(settings.unknown_variables),
        )
        self.data_disk = self._observe_data_disk()

    def _observe_data_disk(self) -> DataDisk | None:
        """Return the disk of the data directory, which is on `/metrics`; None without data on this machine."""
        store = self.store_options
        if store.data_dir is None or store.in_aws or store.memory:
            return None
        disk = DataDisk(store.data_dir)
        self.metrics.registry.register(disk)
        return disk

    @property
    def client(self) -> Client:
        assert self.database is not None, "The gateway is used before it has started."
        return self.database.client

    def open_context(
        self, identity: Identity | None, freshness: ReadFreshness = ReadFreshness.OWN, compiled: bool = False
    ) -> Context:
        assert self.services is not None, "The gateway is used before it has started."
        return Context(self.services, identity, freshness, compiled)

    def http(self) -> "aiohttp.ClientSession":
        """Return the session for requests to other services. It is created by the first call."""
        assert self.database is not None, "The gateway is used before it has started."
        if self._session is None:
            import aiohttp  # imported late: many gateways send no such requests

            self._session = aiohttp.ClientSession()
        return self._session

    async def _close_session(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    @asynccontextmanager
    async def running(self, *, jobs: bool = True) -> AsyncIterator["Gateway"]:
        """Open the store during the context. With `jobs`, also prepare serving and start the jobs, as `part` says."""
        serves = jobs and self._part is not ProcessPart.JOBS
        if serves:
            self.server.persisted_documents.load()
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._close_session)
            clock = time.monotonic if self.now is utc_now else lambda: self.now().timestamp()
            read_caches = ReadCaches(clock, enabled=self.settings.shared_reads)
            self.database = await stack.enter_async_context(
                open_database(
                    self.store_options,
                    on_restart=self._prepare_store,
                    on_call=self.server.metrics.observe_call,
                    read_caches=read_caches,
                )
            )
            self.objects.open(self.client.store_clock)
            stack.callback(self.objects.close)
            self.search = search_index(self.store_options, self.settings.search_url)
            stack.push_async_callback(self.search.aclose)
            logs = RequestLogs(self.client, prefix=self.store_options.prefix, now=self.now, token=self.new_id)
            changes = self._change_feed(read_caches)
            self.ingest = EarthquakeIngest(
                self.client,
                prefix=self.store_options.prefix,
                logs=logs,
                open_session=self.http,
                now=self.now,
                new_id=self.new_id,
            )
            client_ingests = ClientIngests(self.ingest, self.settings.ingest_hosts)
            self.services = self._make_services(logs, changes, client_ingests)
            await self._prepare_store()
            logs.start()
            stack.push_async_callback(logs.stop)
            stack.push_async_callback(changes.aclose)
            if serves and self.bus is not None:
                await self.bus.start()
            stack.push_async_callback(self.services.scan_cache.aclose)
            stack.push_async_callback(self.services.decoder_pool.aclose)
            stack.push_async_callback(client_ingests.finish)
            if self._part is ProcessPart.WHOLE:
                port, host = self.settings.metrics_port, self.settings.metrics_host
                stack.enter_context(metrics_served(self.metrics, port, host))
            if (
                jobs
                and self._part is not ProcessPart.SERVING
                and self.store_options.memory
                and isinstance(self.search, SqliteIndex)
            ):
                self.search.discard()  # it was built from tables in memory, which are gone
            if jobs:
                stack.push_async_callback(stop, [asyncio.create_task(supervise(job)) for job in self._jobs()])
            await stack.enter_async_context(self.server.running(serving=serves))
            yield self

    def _change_feed(self, read_caches: ReadCaches) -> ChangeFeed:
        """Return the feed of the tables' changes, which also removes changed items from the caches of reads."""
        prefix, in_aws = self.store_options.prefix, self.store_options.in_aws
        return ChangeFeed(
            self.client,
            prefix=prefix,
            poll_interval=followed_every(in_aws, self.settings.poll_interval),
            bus=self.bus,
            reads=self.reads,
            empty_seconds=EMPTY_SECONDS if in_aws else 0.0,  # the engine returns no empty pages
            on_change=lambda change: read_caches.invalidate_changed(prefix, TABLES_BY_NAME[change.table], change.keys),
        )

    async def readiness(self, seconds: float) -> dict[str, Any]:
        """Return the state for `/readyz`: ready if every table exists and the store answers within `seconds`.

        A store whose disk is full is ready, because it serves reads.

        An unavailable bus or Redis of the budgets is reported, but does not make the process unready.
        """
        names = [self.store_options.prefix + table.name for table in TABLES]
        try:
            async with asyncio.timeout(seconds):
                exist = await asyncio.gather(*[self._has_table(name) for name in names])
        except (DomainError, TimeoutError):
            return {"ready": False, "store": "unreachable"}
        except RequestRefused as refusal:
            logger.warning("The store refused DescribeTable: %s", refusal)
            return {"ready": False, "store": "refuses"}
        missing = [name for name, exists in zip(names, exist, strict=True) if not exists]
        if missing:
            return {"ready": False, "store": "tables missing", "missing": missing}
        store = "disk full" if self.client.disk.is_full else "ok"
        return {"ready": True, "store": store, **self._shared_state(), **self.agreement.state}

    def _shared_state(self) -> dict[str, object]:
        """Return the states of the services that a gateway works without, by their names in `/readyz`."""
        state: dict[str, object] = {}
        if self.settings.unknown_variables:
            state["unknownVariables"] = list(self.settings.unknown_variables)
        if self.bus is not None:
            state["bus"] = "away" if self.bus.is_away else "ok"
        if (budgets := self.server.admission.budgets_state) is not None:
            state["budgets"] = budgets
        return state

    async def _has_table(self, name: str) -> bool:
        try:
            await self.client.call("DescribeTable", {"TableName": name})
        except RequestRefused as refusal:
            if refusal.code != "ResourceNotFoundException":
                raise
            return False
        return True

    async def _prepare_store(self) -> None:
        """Create the tables of an embedded store, which has no administrator, and load the demo data, as needed."""
        assert self.database is not None
        if self._part is not ProcessPart.WHOLE:
            return  # the supervisor does it before it starts this worker
        if self.store_options.embedded:
            await self.database.create_tables()
        if self.settings.demo:
            await self._load_demo()

    async def _load_demo(self) -> None:
        try:
            await self.background.demo().load()
        except (DomainError, RequestRefused) as problem:
            # The store may be started later than the gateway, which works without the demo data.
            logger.warning("The demo data could not be loaded (`gateway.py seed` loads it): %s", problem)

    def _jobs(self) -> Iterator[Job]:
        if self._part is not ProcessPart.JOBS:
            yield self.agreement.watch
            if self.server.persisted_documents.watch is not None:
                yield self.server.persisted_documents.watch
        if self._part is not ProcessPart.WHOLE and self.settings.metrics_port is not None:
            yield partial(serve_metrics, self.metrics, self.settings.metrics_port, self.settings.metrics_host)
        if self._part is not ProcessPart.SERVING:
            yield from self.background.jobs()

    def open_store(self, seconds: float | None = None, meter: Meter | None = None) -> Store:
        """Return a store for work other than clients' operations. Its deadline is `seconds`, or the setting's."""
        deadline = Deadline(seconds or self.settings.deadline_seconds)
        return Store(
            self.client,
            prefix=self.store_options.prefix,
            deadline=deadline,
            token=self.new_id,
            meter=meter,
            now=self.now,
        )

    def has_subscribers(self, table: Table) -> bool:
        """Return whether the changes of a table have subscribers in this process.

        A worker for jobs returns True: it does not know the subscribers of the other processes.
        """
        return self._part is ProcessPart.JOBS or (
            self.services is not None and self.services.changes.followers(table) > 0
        )

    def _make_services(self, logs: RequestLogs, changes: ChangeFeed, ingests: ClientIngests) -> Services:
        return Services(
            client=self.client,
            prefix=self.store_options.prefix,
            cursors=Cursors(self.settings.secret.encode(), _encoded(self.settings.other_secrets)),
            changes=changes,
            scan_cache=ScanCache(self.open_store, self.now),
            request_logs=logs,
            ingest=ingests.run,
            places=SightingPlaces(self.settings.areas, self.settings.categories),
            now=self.now,
            new_id=self.new_id,
            user_ids=_user_ids(self.settings),
            objects=self.objects,
            search=self.search,
            deadline_seconds=self.settings.deadline_seconds,
            keeps_metadata=self.settings.photo_metadata == KEEP_METADATA,
        )


def _encoded(secrets: Iterable[str]) -> list[bytes]:
    return [secret.encode() for secret in secrets]


def _user_ids(settings: Settings) -> UserIds:
    own = settings.user_id_secret or settings.secret
    return UserIds(own.encode(), _encoded((settings.secret, *settings.other_secrets)))


def followed_every(aws: bool, poll_interval: float | None) -> float:
    """Return the seconds between reads of a shard for subscribers. AWS bills each read, and limits their number."""
    return poll_interval or (POLL_SECONDS if aws else LOCAL_POLL_SECONDS)
