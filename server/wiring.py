"""The components of the server in one process, from the transports to the resolvers, created from its settings."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cache, cached_property
from typing import TYPE_CHECKING, Protocol

import strawberry
from prometheus_client import CollectorRegistry

from datastore.change_streams.replay.signed_resume_ids import ResumeIds
from datastore.database import StoreOptions
from datastore.gateway.persisted_documents import StoredDocuments
from datastore.model.access_patterns import CostModel
from datastore.model.identity import Role
from datastore.objects import ObjectStore
from datastore.objects.ledger import IncomingLimits
from datastore.session.metering import Meter
from datastore.session.store import Store
from jit import cache_of
from server.admission.budgets import CallerBudgets
from server.admission.connection_limits import Connections
from server.admission.settings import Capacity
from server.admission.wiring import Admission
from server.documents.document_cache import Documents
from server.documents.persisted.sources import PersistedDocuments
from server.documents.settings import DocumentSettings, DocumentsMode
from server.http import graphiql
from server.http.cache import Caching
from server.http.endpoint import GraphQLHTTP
from server.http.responses import HttpProfile
from server.http.streams.response_stream import ResponseStreams, StreamLimits
from server.mcp.endpoint import McpEndpoint
from server.mcp.resources import Resources
from server.media.files import Media
from server.media.upload_admission import UploadAdmission
from server.observability.build_info import BuildInfo
from server.observability.execution_metrics import ExecutionMetrics
from server.observability.metrics_page import MetricsPage
from server.observability.operation_log import OperationLog, RefusalLog
from server.observability.operation_metrics import OperationMetrics
from server.operations.context import OpenContext
from server.operations.explain import Explain, Explanations
from server.operations.idempotency import Idempotency
from server.operations.report import Observe
from server.operations.runner import Runner
from server.security.jwks import OpenSession
from server.security.jwt import Tokens, TokenSettings
from server.settings import Settings
from server.shutdown import Delays
from server.subscriptions.manager import SubscriptionManager
from server.version import running_build
from server.websocket.endpoint import GraphQLWebSocket
from server.websocket.transport import SocketLimits

if TYPE_CHECKING:
    from server.observability.tracing import OperationTracing

# The deadline of a lookup in the table of documents, for which an operation waits.
DOCUMENT_SECONDS = 5.0
# The deadline of the read of a reservation, for which an upload waits.
RESERVATION_SECONDS = 10.0
DEMO_TOKEN_SECONDS = 12 * 3600.0
# Name, user id, role and verified email, by which the photo library identifies users.
DEMO_USERS = (
    ("Demo user", "demo", Role.USER, "demo@example.com"),
    ("Admin", "admin", Role.ADMIN, "admin@example.com"),
    ("System", "system", Role.SYSTEM, None),
)


class OpenStore(Protocol):
    """A function that opens a store with a deadline in seconds. The meter, if given, counts its calls."""

    def __call__(self, seconds: float, meter: Meter | None = None) -> Store: ...


@dataclass(frozen=True, slots=True)
class ServerDependencies:
    """The functions through which the server reaches the rest of the process, time and randomness."""

    #: Builds the schema, when it is first needed.
    build_schema: Callable[[], strawberry.Schema]
    #: Opens the context of an operation.
    open_context: OpenContext
    #: Opens a store for records of the server itself: idempotency keys, persisted documents and reservations.
    open_store: OpenStore
    #: Opens the HTTP session with which key sets are fetched.
    open_session: OpenSession
    cost_models: Mapping[str, CostModel]
    #: Returns the page of access patterns in Markdown.
    access_patterns: Callable[[], str]
    now: Callable[[], datetime]
    #: The same time as `now`, in seconds since 1970: it is read for each event that is delivered.
    clock: Callable[[], float]
    new_id: Callable[[], str]


class ServerComponents:
    """The components of the server, one of each for the process. Metrics are registered in `registry`.

    `observers` are called with the report of each operation.
    """

    def __init__(
        self,
        settings: Settings,
        store: StoreOptions,
        objects: ObjectStore,
        registry: CollectorRegistry,
        dependencies: ServerDependencies,
        *,
        observers: Collection[Observe] = (),
    ) -> None:
        self.settings = settings
        self._store = store
        self._dependencies = dependencies
        self._observers = observers
        self._registry = registry
        self.metrics = OperationMetrics(registry, store.prefix)
        registry.register(BuildInfo(running_build()))
        self.tokens = _tokens(settings, dependencies)
        log_refusal = RefusalLog()

        def on_refusal(status: int, code: str) -> None:
            self.metrics.http_refusal(status, code)
            log_refusal(status, code)

        self._on_refusal = on_refusal
        self.admission = _admission(settings.capacity, self.metrics, on_refusal)
        self.metrics_page = MetricsPage(registry, self.tokens.identify, settings.metrics_token)
        uploads = _upload_admission(settings.capacity, self.admission.budgets, dependencies.open_store)
        self.media = Media(objects, dependencies.now, uploads, allowed_origins=settings.allowed_origins)
        self.graphiql = graphiql.Config(
            self.demo_tokens,
            settings.reached_at,
            bucket=cache(objects.origin),
            schema=(lambda: self.documents.schema) if is_public(settings.documents) else None,
        )

    def begin_draining(self) -> None:
        """Start the shutdown: `/readyz` fails, and each connection ends with its next response."""
        self.admission.connections.begin_draining()

    @property
    def is_draining(self) -> bool:
        return self.admission.connections.draining

    async def end_streams(self, rng: random.Random, seconds: float) -> None:
        """End subscriptions so that their clients reconnect elsewhere. Requests in progress end within `seconds`."""
        streams, socket = self.http.streams, self.socket
        delays = Delays(len(streams) + len(socket), rng)
        await asyncio.gather(socket.drain(delays, seconds), streams.drain(delays, seconds))

    @asynccontextmanager
    async def running(self, *, serving: bool) -> AsyncIterator[None]:
        """Run the components for a block. If `serving`, close its streams and sockets at the end."""
        loop = asyncio.get_running_loop()
        self.metrics.gauge(
            "gateway_tasks", "Tasks of the event loop that are not done.", lambda: len(asyncio.all_tasks(loop))
        )
        async with self.admission.running():
            try:
                yield
            finally:
                if serving:
                    await self.http.streams.close()
                    await self.socket.close()
                    await self.subscriptions.aclose()
                    await self.persisted_documents.aclose()
                await self.idempotency.aclose()
                if self.tracing is not None:
                    self.tracing.close()

    @cached_property
    def documents(self) -> Documents:
        documents = Documents(
            self._dependencies.build_schema(),
            self.settings.documents.limits,
            introspection=self.settings.documents.introspection,
            max_cost=self.settings.documents.max_cost,
            compiles=self.settings.documents.compiles,
            now=self._dependencies.now,
            models=self._dependencies.cost_models,
        )
        self._registry.register(ExecutionMetrics(cache_of(documents.schema).statistics))
        return documents

    @cached_property
    def persisted_documents(self) -> PersistedDocuments:
        documents = PersistedDocuments(
            self.settings.documents,
            self.documents,
            self._document_in_table,
            self._dependencies.clock,
            self.settings.capacity.redis_url,
            self.admission.budgets,
            self.admission.lookups,
        )
        self.metrics.count(
            "gateway_unregistered_operations",
            "Operations that came with a document that is not registered, where that is logged.",
            lambda: documents.registry.unregistered,
        )
        return documents

    @cached_property
    def runner(self) -> Runner:
        return Runner(
            self.documents,
            self._dependencies.open_context,
            deadline=self.settings.deadline_seconds,
            registry=self.persisted_documents.registry,
            budgets=self.admission.budgets,
            load=self.admission.load,
            idempotency=self.idempotency,
            observers=(self.metrics.observe_operation, OperationLog(), *self._observers),
            tracing=self.tracing,
            explanations=Explanations(self._explain, self._store.prefix),
        )

    @cached_property
    def subscriptions(self) -> SubscriptionManager:
        return SubscriptionManager(
            self.runner,
            quota=self.admission.subscriptions,
            resume_ids=ResumeIds(self.settings.secret.encode(), map(str.encode, self.settings.other_secrets)),
            max_queued_bytes=self.settings.capacity.waiting_bytes,
        )

    @cached_property
    def idempotency(self) -> Idempotency:
        dependencies = self._dependencies
        return Idempotency(
            dependencies.open_store,
            deadline=self.settings.deadline_seconds,
            now=dependencies.now,
            new_id=dependencies.new_id,
        )

    @cached_property
    def tracing(self) -> "OperationTracing | None":
        if not self.settings.traces:
            return None
        from server.observability.tracing import otlp_tracing  # the import takes 0.1 s

        return otlp_tracing(self._store.prefix)

    @cached_property
    def http(self) -> GraphQLHTTP:
        return GraphQLHTTP(
            self.runner,
            self.tokens.identify,
            subscriptions=self.subscriptions,
            streams=ResponseStreams(StreamLimits(heartbeat=self.settings.heartbeat_seconds), self._dependencies.clock),
            profile=HttpProfile(self.settings.http_profile),
            allowed_origins=self.settings.allowed_origins,
            caching=Caching(self.documents.schema),
            cached_identity=self.tokens.cached_identity,
            on_refusal=self._on_refusal,
            page=self.graphiql.page,
        )

    @cached_property
    def mcp(self) -> McpEndpoint:
        dependencies, settings = self._dependencies, self.settings
        return McpEndpoint(
            self.runner,
            self.tokens.identify,
            lambda: self.persisted_documents.tools,
            Resources(
                lambda: dependencies.build_schema().as_str(),
                dependencies.access_patterns,
                is_public=is_public(settings.documents),
            ),
            budgets=self.admission.budgets,
            bodies=self.http.bodies,
            origins=(*settings.allowed_origins, *settings.own_origins),
            cached_identity=self.tokens.cached_identity,
            on_refusal=self._on_refusal,
            on_request=self.metrics.mcp_request,
        )

    @cached_property
    def socket(self) -> GraphQLWebSocket:
        return GraphQLWebSocket(
            self.runner,
            self.tokens.identify,
            subscriptions=self.subscriptions,
            allowed_origins=self.settings.allowed_origins,
            limits=SocketLimits(
                ping_every=self.settings.heartbeat_seconds,
                max_operations=self.settings.capacity.operations_per_websocket,
                waiting_bytes=self.settings.capacity.waiting_bytes,
            ),
            quota=self.admission.websockets,
            on_refusal=self._on_refusal,
            clock=self._dependencies.clock,
        )

    async def _document_in_table(self, document_id: str) -> str | None:
        found = await StoredDocuments(self._dependencies.open_store(DOCUMENT_SECONDS)).by_id(document_id)
        return None if found is None else found.text

    @property
    def _is_local_demo(self) -> bool:
        """Whether this is a demo on this machine, without AWS and a key set."""
        settings = self.settings
        return settings.demo and settings.loopback and not self._store.in_aws and not settings.jwks_url

    def summary(self, *, alone: bool = True) -> str:
        """Return the main settings in one line, for the start. With `alone`, no other process serves."""
        settings, documents, capacity = self.settings, self.settings.documents, self.settings.capacity
        shared = "in Redis" if capacity.redis_url else f"in {'this' if alone else 'each'} process"
        budgets = f"{_budget(capacity.budget_units)} ({_budget(capacity.anonymous_budget_units)} without a token)"
        parts = (
            f"documents {documents.mode}",
            f"introspection {'on' if documents.introspection else 'for admins'}",
            f"explain {self._explain}",
            f"budgets of {budgets} read units {shared}",
            f"HTTP profile {settings.http_profile}",
        )
        return ", ".join(parts)

    @property
    def _explain(self) -> Explain:
        return Explain(self.settings.explain or (Explain.USER if self._is_local_demo else Explain.ADMIN))

    def demo_tokens(self) -> list[dict[str, str]]:
        """Return tokens for GraphiQL if this is a demo on this machine, otherwise none."""
        if not self._is_local_demo:
            return []
        return [
            {"name": name, "token": self.tokens.issue(user, role, email, lifetime=DEMO_TOKEN_SECONDS)}
            for name, user, role, email in DEMO_USERS
        ]


def is_public(documents: DocumentSettings) -> bool:
    """Return whether every caller may introspect the schema."""
    return documents.introspection and documents.mode is not DocumentsMode.ENFORCE


def _budget(units: float) -> str:
    return f"{units:,g}" if units else "unlimited"


def _tokens(settings: Settings, dependencies: ServerDependencies) -> Tokens:
    accepted = TokenSettings(
        secret=None if settings.jwks_url else settings.secret,
        other_secrets=settings.other_secrets,
        jwks_url=settings.jwks_url,
        issuer=settings.issuer,
        audience=settings.audience,
        role_claim=settings.role_claim,
    )
    return Tokens(accepted, open_session=dependencies.open_session, clock=dependencies.clock)


def _admission(capacity: Capacity, metrics: OperationMetrics, on_refusal: Callable[[int, str], None]) -> Admission:
    """Create the admission control, and register its gauges."""
    connections = Connections(capacity, on_refusal=on_refusal, on_closed=metrics.websocket_closed)
    admission = Admission(capacity, connections)
    for name, (meaning, read) in admission.gauges().items():
        metrics.gauge(name, meaning, read)
    metrics.count("gateway_operations_shed", "Operations that were refused for overload.", admission.shed)
    return admission


def _upload_admission(capacity: Capacity, budgets: CallerBudgets, open_store: OpenStore) -> UploadAdmission:
    return UploadAdmission(
        open_store=lambda: open_store(RESERVATION_SECONDS),
        budgets=budgets,
        limits=IncomingLimits(capacity.incoming_bytes, capacity.incoming_bytes_per_caller),
    )
