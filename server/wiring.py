"""The edge of one process, put together from its settings: all that stands between clients and resolvers."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from functools import cache, cached_property
from typing import TYPE_CHECKING, Protocol

import strawberry
from prometheus_client import CollectorRegistry

from datastore.change_streams.replay.signed_resume_ids import ResumeIds
from datastore.database import StoreOptions
from datastore.gateway.persisted_documents import KnownDocuments
from datastore.model.access_patterns import CostModel
from datastore.model.identity import Role
from datastore.objects import ObjectStore
from datastore.objects.ledger import IncomingLimits
from datastore.session.metering import Meter
from datastore.session.store import Store
from server.admission.connection_limits import Connections
from server.admission.wiring import Admission
from server.documents.document_cache import Documents
from server.documents.persisted.sources import PersistedDocuments
from server.http import graphiql
from server.http.cache import Caching
from server.http.endpoint import GraphQLHTTP
from server.http.responses import HttpProfile
from server.http.sse import EventStreams, StreamLimits
from server.media.files import Media
from server.media.upload_admission import UploadAdmission
from server.observability.metrics_page import MetricsPage
from server.observability.operation_log import OperationLog
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
from server.websocket.endpoint import GraphQLWebSocket
from server.websocket.transport import SocketLimits

if TYPE_CHECKING:
    from server.observability.tracing import OperationTracing

# A client waits for it before its operation begins.
DOCUMENT_SECONDS = 5.0
# An uploader waits for the read of the reservation before the file is taken.
RESERVATION_SECONDS = 10.0
DEMO_TOKEN_SECONDS = 12 * 3600.0
# What each is called, the id, the role and the verified email: the photo library knows its users by that.
DEMO_USERS = (
    ("Demo user", "demo", Role.USER, "demo@example.com"),
    ("Admin", "admin", Role.ADMIN, "admin@example.com"),
    ("System", "system", Role.SYSTEM, None),
)


class OpenStore(Protocol):
    """Opens a store with a deadline in seconds. The meter, if given, counts its calls."""

    def __call__(self, seconds: float, meter: Meter | None = None) -> Store: ...


class ServerComponents:
    """One of each for the process. `now` and `new_id` are where time and chance come from.

    `clock` tells the same moments in seconds since 1970: it is looked at for every event that is delivered.

    The schema is built when it is first needed. Operations see a context of `open_context`; what the edge keeps for
    itself goes to stores of `open_store`. Key sets are fetched with sessions of `open_session`. Metrics are registered
    in `registry`.
    """

    def __init__(
        self,
        settings: Settings,
        store: StoreOptions,
        objects: ObjectStore,
        registry: CollectorRegistry,
        *,
        build_schema: Callable[[], strawberry.Schema],
        open_context: OpenContext,
        open_store: OpenStore,
        open_session: OpenSession,
        cost_models: Mapping[str, CostModel],
        now: Callable[[], datetime],
        clock: Callable[[], float],
        new_id: Callable[[], str],
        observers: Collection[Observe] = (),
    ) -> None:
        self.settings = settings
        self._store = store
        self._build_schema = build_schema
        self._open_context = open_context
        self._open_store = open_store
        self._cost_models = cost_models
        self._now = now
        self._clock = clock
        self._new_id = new_id
        self._observers = observers
        self.figures = OperationMetrics(registry, store.prefix)
        self.tokens = Tokens(
            TokenSettings(
                secret=None if settings.jwks_url else settings.secret,
                other_secrets=settings.other_secrets,
                jwks_url=settings.jwks_url,
                issuer=settings.issuer,
                audience=settings.audience,
                role_claim=settings.role_claim,
            ),
            open_session=open_session,
            clock=clock,
        )
        self.admission = Admission(
            settings.capacity,
            Connections(
                settings.capacity, on_refusal=self.figures.http_refusal, on_closed=self.figures.websocket_closed
            ),
        )
        for name, (meaning, read) in self.admission.gauges().items():
            self.figures.gauge(name, meaning, read)
        self.figures.count("gateway_operations_shed", "Operations that were refused for overload.", self.admission.shed)
        self.metrics_page = MetricsPage(registry, self.tokens.identify, settings.metrics_token)
        uploads = UploadAdmission(
            open_store=lambda: open_store(RESERVATION_SECONDS),
            budgets=self.admission.budgets,
            limits=IncomingLimits(settings.capacity.incoming_bytes, settings.capacity.incoming_bytes_per_caller),
        )
        self.media = Media(objects, now, uploads, allowed_origins=settings.allowed_origins)
        self.graphiql = graphiql.Config(
            self.demo_tokens,
            settings.reached_at,
            bucket=cache(objects.origin),
            shows_examples=settings.documents.introspection,
        )

    def begin_leaving(self) -> None:
        """Start the shutdown: `/readyz` fails, and each connection ends with its next response."""
        self.admission.connections.draining = True

    @property
    def leaving(self) -> bool:
        return self.admission.connections.draining

    async def end_streams(self, chance: random.Random, seconds: float) -> None:
        """End subscriptions so that their clients reconnect elsewhere. Requests in progress end within `seconds`."""
        streams, socket = self.http.streams, self.socket
        delays = Delays(len(streams) + len(socket), chance)
        await asyncio.gather(socket.drain(delays, seconds), streams.drain(delays, seconds))

    @asynccontextmanager
    async def running(self, *, serving: bool) -> AsyncIterator[None]:
        """Run the process's parts. If it is `serving`, connected clients are notified of the end."""
        loop = asyncio.get_running_loop()
        self.figures.gauge(
            "gateway_tasks", "Tasks of the event loop that are not done.", lambda: len(asyncio.all_tasks(loop))
        )
        async with self.admission.running():
            try:
                yield
            finally:
                if serving:
                    await self.http.streams.close()
                    await self.socket.close()
                    await self.runner.aclose()
                    await self.known.aclose()
                await self.once.aclose()
                if self.tracing is not None:
                    self.tracing.close()

    @cached_property
    def documents(self) -> Documents:
        return Documents(
            self._build_schema(),
            self.settings.documents.limits,
            introspection=self.settings.documents.introspection,
            max_cost=self.settings.documents.max_cost,
            compiles=self.settings.documents.compiles,
            now=self._now,
            models=self._cost_models,
        )

    @cached_property
    def known(self) -> PersistedDocuments:
        known = PersistedDocuments(
            self.settings.documents,
            self.documents,
            self._document_in_table,
            self._clock,
            self.settings.capacity.redis_url,
            self.admission.budgets,
            self.admission.lookups,
        )
        self.figures.count(
            "gateway_unregistered_operations",
            "Operations that came with a document that is not registered, where that is logged.",
            lambda: known.registry.unregistered,
        )
        return known

    @cached_property
    def runner(self) -> Runner:
        return Runner(
            self.documents,
            self._open_context,
            deadline=self.settings.deadline_seconds,
            registry=self.known.registry,
            budgets=self.admission.budgets,
            load=self.admission.load,
            subscriptions=self.admission.subscriptions,
            waiting_bytes=self.settings.capacity.waiting_bytes,
            resume_ids=ResumeIds(self.settings.secret.encode(), map(str.encode, self.settings.other_secrets)),
            idempotency=self.once,
            observers=(self.figures.observe_operation, OperationLog(), *self._observers),
            tracing=self.tracing,
            explanations=Explanations(self._explain, self._store.prefix),
        )

    @cached_property
    def once(self) -> Idempotency:
        return Idempotency(
            self._open_store, deadline=self.settings.deadline_seconds, now=self._now, new_id=self._new_id
        )

    @cached_property
    def tracing(self) -> "OperationTracing | None":
        if not self.settings.traces:
            return None
        from server.observability.tracing import otlp_tracing  # a tenth of a second, which only those pay who want it

        return otlp_tracing(self._store.prefix)

    @cached_property
    def http(self) -> GraphQLHTTP:
        return GraphQLHTTP(
            self.runner,
            self.tokens.identify,
            streams=EventStreams(StreamLimits(heartbeat=self.settings.heartbeat_seconds), self._clock),
            profile=HttpProfile(self.settings.http_profile),
            allowed_origins=self.settings.allowed_origins,
            caching=Caching(self.documents.schema),
            known=self.tokens.cached_identity,
            on_refusal=self.figures.http_refusal,
        )

    @cached_property
    def socket(self) -> GraphQLWebSocket:
        return GraphQLWebSocket(
            self.runner,
            self.tokens.identify,
            allowed_origins=self.settings.allowed_origins,
            limits=SocketLimits(
                ping_every=self.settings.heartbeat_seconds,
                max_operations=self.settings.capacity.operations_per_websocket,
                waiting_bytes=self.settings.capacity.waiting_bytes,
            ),
            places=self.admission.websockets,
            on_refusal=self.figures.http_refusal,
            clock=self._clock,
        )

    async def _document_in_table(self, document_id: str) -> str | None:
        found = await KnownDocuments(self._open_store(DOCUMENT_SECONDS)).by_id(document_id)
        return None if found is None else found.text

    @property
    def _is_toy(self) -> bool:
        """A demo, on this machine, with tokens of its own. What is in AWS is no toy."""
        settings = self.settings
        return settings.demo and settings.loopback and not self._store.aws and not settings.jwks_url

    def set_up(self, *, alone: bool = True) -> str:
        """What an operator wants to see at the start, in one line; `alone`: one process serves."""
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
        return Explain(self.settings.explain or (Explain.USER if self._is_toy else Explain.ADMIN))

    def demo_tokens(self) -> list[dict[str, str]]:
        """Tokens for GraphiQL: in a demo, on this machine, and nowhere else."""
        if not self._is_toy:
            return []
        return [
            {"name": name, "token": self.tokens.issue(user, role, email, lifetime=DEMO_TOKEN_SECONDS)}
            for name, user, role, email in DEMO_USERS
        ]


def _budget(units: float) -> str:
    return f"{units:,g}" if units else "unlimited"
