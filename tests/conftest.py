"""A gateway of its own for each test: real HTTP and WebSocket in front, the real engine behind."""

import asyncio
import gc
import os
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import engine_limitations
import hypothesis
import pytest
import uvicorn
from fault_proxy import Proxy, client_of
from request_rules import RequestWatch
from rights import refused
from store_engines import ENGINE, ROOT, Engines, engines_for_tests, free_port, make_tables

from datastore.database import Database, StoreOptions, open_database
from datastore.dynamodb.client import Client
from datastore.infrastructure.iam_roles import GATEWAY
from datastore.model.access_patterns import Table
from datastore.model.identity import Role
from datastore.photos.decoder_pool import DecoderPool
from datastore.session.metering import Call
from datastore.session.store import Store
from pipelines.photos.janitor import Janitor
from runtime.container import Gateway
from server.admission.settings import Capacity
from server.app import application
from server.documents.executor import GatewayExecutor
from server.http.protocol import UVICORN_OPTIONS
from server.operations.lifecycle import Report
from server.settings import Settings

REAL_DATA = ROOT.parent / "shared" / "data"
SECRET = "a secret for tests, long enough to sign with"
# Modules that take long begin first, so that no worker is left alone with one in the end.
LONG = {"test_commands", "test_serve", "test_graphiql", "test_match_takeover", "test_ingest", "test_match_replays"}
LONG |= {"test_photo_paging", "test_earthquake_pages"}
# Tests spend what they like, and a busy machine is no reason to refuse them.
UNBOUGHT = Capacity(budget_units=0, anonymous_budget_units=0, lag_seconds=0, concurrent_per_caller=0)
NOON = datetime(2026, 6, 25, 12, 0, tzinfo=UTC)

# Who started this may ignore SIGHUP (nohup does), which gateways that tests start would inherit, and heed.
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Operations are compiled at once here, so that all that is tested is compiled, or never.
GatewayExecutor.compile_after = 0 if os.environ.get("GATEWAY_EXECUTOR") == "interpreted" else 1


# No deadline for examples: their duration depends on the machine.
hypothesis.settings.register_profile("tests", deadline=None)
hypothesis.settings.load_profile("tests")

REQUESTS = RequestWatch()
REQUESTS.start()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "breaks_rules(why): sends requests that DynamoDB must refuse")


@pytest.fixture(autouse=True)
def rules_are_kept(request: pytest.FixtureRequest) -> Iterator[None]:
    """No request of a test breaks a rule of DynamoDB, whether or not the engine checks it."""
    REQUESTS.found.clear()
    yield
    if request.node.get_closest_marker("breaks_rules") is None:
        assert REQUESTS.found == []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.stem not in LONG)
    engine_limitations.apply(ENGINE.name, items)


def pytest_collection_finish() -> None:
    """What is imported by now stays: the collector need not walk through it with every test."""
    gc.collect()
    gc.freeze()


class Clock:
    """The time as the gateway sees it: it stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now

    def forward(self, **delta: float) -> None:
        self.now += timedelta(**delta)


@dataclass
class Answer:
    """What a client got, and the DynamoDB calls that were made for it."""

    data: Any
    errors: list[dict[str, Any]] | None
    status: int
    calls: list[Call] = field(repr=False, default_factory=list)
    headers: Mapping[str, str] = field(repr=False, default_factory=dict)

    @property
    def codes(self) -> list[str]:
        return [error["extensions"]["code"] for error in self.errors or ()]

    @property
    def made(self) -> list[str]:
        """The calls as `Operation table.index`, in alphabetical order."""
        return sorted(call_name(call) for call in self.calls)


def call_name(call: Call) -> str:
    """`Operation table.index`, the table as it is declared."""
    table = "+".join(sorted(name.split("__", 1)[1] for name in call.tables))
    return f"{call.operation} {table}" + (f".{call.index}" if call.index else "")


class Served:
    """A running gateway and a client of it."""

    def __init__(self, gateway: Gateway, url: str, http: aiohttp.ClientSession, clock: Clock) -> None:
        self.gateway = gateway
        self.url = url
        self.http = http
        self.clock = clock
        self.reports: list[Report] = []

    def token(self, user: str = "ada", role: Role = Role.USER, email: str | None = None) -> str:
        return self.gateway.edge.tokens.issue(user, role, email)

    def headers(self, user: str | None, role: Role, email: str | None = None) -> dict[str, str]:
        return {} if user is None else {"Authorization": f"Bearer {self.token(user, role, email)}"}

    async def ask(
        self,
        query: str,
        variables: dict[str, Any] | None = None,
        *,
        user: str | None = None,
        role: Role = Role.USER,
        email: str | None = None,
    ) -> Answer:
        """POST an operation, signed in as `user` (with a verified email) or not at all."""
        self.reports.clear()
        body = {"query": query, "variables": variables}
        headers = self.headers(user, role, email)
        async with self.http.post(f"{self.url}/graphql", json=body, headers=headers) as response:
            answer = await response.json(content_type=None)
        calls = [call for report in self.reports for call in report.latest]
        return Answer(answer.get("data"), answer.get("errors"), response.status, calls, response.headers)

    def store(self) -> Store:
        """A store of the test's own, to put things in place."""
        return self.gateway.open_store()

    @property
    def pictures(self) -> DecoderPool:
        """The gateway's decoders."""
        assert self.gateway.services is not None
        return self.gateway.services.decoder_pool

    async def listen(self, query: str, *, user: str | None = None, role: Role = Role.USER) -> "Listener":
        """Start a subscription; it is attached when this returns only as far as the protocol tells (see `settle`)."""
        listener = Listener(self, query, self.headers(user, role))
        await listener.start()
        return listener

    async def settle(self, table: Table, followers: int = 1) -> None:
        """Wait until that many subscribers follow the table and its stream is read."""
        services = self.gateway.services
        assert services is not None
        async with asyncio.timeout(10):
            while services.changes.followers(table) < followers:  # noqa: ASYNC110 - it is over the wire
                await asyncio.sleep(0.01)


def queries_at_once(served: Served, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many Queries were under way as each one began."""
    assert served.gateway.database is not None
    client, under_way, seen = served.gateway.database.client, 0, []
    call = client.call

    async def counted(operation: str, *arguments: Any, **options: Any) -> Any:
        nonlocal under_way
        under_way += operation == "Query"
        seen.append(under_way)
        try:
            return await call(operation, *arguments, **options)
        finally:
            under_way -= operation == "Query"

    monkeypatch.setattr(client, "call", counted)
    return seen


class Listener:
    """One subscription over a WebSocket of its own."""

    def __init__(self, served: Served, query: str, payload: dict[str, str]) -> None:
        self._served = served
        self._query = query
        self._payload = payload
        self.socket: Any = None

    async def start(self) -> None:
        url = self._served.url.replace("http", "ws") + "/graphql"
        self.socket = await self._served.http.ws_connect(url, protocols=["graphql-transport-ws"])
        await self.socket.send_json({"type": "connection_init", "payload": self._payload})
        assert (await self.socket.receive_json(timeout=10))["type"] == "connection_ack"
        await self.socket.send_json({"id": "1", "type": "subscribe", "payload": {"query": self._query}})

    async def message(self, timeout: float = 10) -> Any:  # noqa: ASYNC109
        """The next message that is not a ping; pings are answered."""
        while True:
            message = await self.socket.receive_json(timeout=timeout)
            if message["type"] != "ping":
                return message
            await self.socket.send_json({"type": "pong"})

    async def event(self, timeout: float = 10) -> Any:  # noqa: ASYNC109
        """The data of the next event."""
        message = await self.message(timeout)
        assert message["type"] == "next", message
        assert "errors" not in message["payload"], message
        return message["payload"]["data"]


@pytest.fixture(scope="session")
def engines() -> Iterator[Engines]:
    with engines_for_tests() as engines:
        yield engines


@pytest.fixture
def engine(engines: Engines) -> str:
    """The URL of an engine that others have used before, and will after: see `store_options`."""
    return engines.next()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def settings() -> Settings:
    """Override this to set the gateway up otherwise."""
    return Settings(
        secret=SECRET,
        port=free_port(),
        poll_interval=0.02,
        ingest_hosts=("127.0.0.1",),
        capacity=UNBOUGHT,
        # Here time stands still: nothing that is shared would ever be too old, and each test counts its own calls.
        shared_reads=False,
    )


@pytest.fixture
def store_options(engines: Engines, engine: str) -> StoreOptions:
    """Tables of the test's own, made already: their names begin with a prefix nobody else has."""
    return StoreOptions(store=engine, prefix=engines.prefix)


@pytest.fixture
async def database(store_options: StoreOptions) -> AsyncIterator[Database]:
    """The store without a gateway, its tables made."""
    async with open_database(store_options) as database:
        await make_tables(database)
        yield database


@pytest.fixture
async def proxy(engine: str) -> AsyncIterator[Proxy]:
    async with Proxy(engine) as proxy:
        yield proxy


@pytest.fixture
async def client(proxy: Proxy) -> AsyncIterator[Client]:
    async with client_of(proxy) as client:
        yield client


class Tidied(Gateway):
    """One whose photos a test tidies itself (`upload_steps.janitor`): a janitor beside it may take a note of files,
    late in its first round, before the test has written them.
    """

    def _jobs(self) -> Iterator[Callable[[], Coroutine[Any, Any, None]]]:
        return (job for job in super()._jobs() if not isinstance(getattr(job, "__self__", None), Janitor))


@pytest.fixture
async def served(settings: Settings, store_options: StoreOptions, clock: Clock) -> AsyncIterator[Served]:
    """A gateway that serves; what it does for clients is what its policy in AWS allows."""
    async with AsyncExitStack() as stack:
        reports: list[Report] = []
        beyond: set[tuple[str, str]] = set()

        def look(report: Report) -> None:
            for call in report.latest:
                beyond.update(refused(GATEWAY, call.operation, call.request))

        gateway = Tidied(settings, store_options, now=clock, observers=[reports.append, look])
        await stack.enter_async_context(gateway.running())
        await stack.enter_async_context(listening(gateway))
        http = await stack.enter_async_context(aiohttp.ClientSession())
        assert gateway.database is not None
        if not store_options.embedded:  # else it has made them itself
            await make_tables(gateway.database)
        running = Served(gateway, settings.url, http, clock)
        running.reports = reports
        yield running
        assert beyond == set()


@asynccontextmanager
async def listening(gateway: Gateway) -> AsyncIterator[None]:
    """uvicorn in front of the gateway, without its main loop, which takes a while to notice that it shall stop."""
    config = uvicorn.Config(
        application(gateway),
        host=gateway.settings.host,
        port=gateway.settings.port,
        log_level="warning",
        access_log=False,
        lifespan="off",
        timeout_graceful_shutdown=5,
        **UVICORN_OPTIONS,
    )
    config.load()
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    server.lifespan.state.update(gateway.edge.admission.connections.told())
    await server.startup()
    try:
        yield
    finally:
        await asyncio.gather(gateway.edge.socket.close(), gateway.edge.http.streams.close())
        # The clients have gone. uvicorn would look for that only ten times a second, and waits once in any case.
        for listener in server.servers:
            listener.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(2):
                while server.server_state.connections or server.server_state.tasks:  # noqa: ASYNC110 - it tells no event
                    await asyncio.sleep(0.001)
        if server.server_state.connections or server.server_state.tasks:
            await server.shutdown()


@pytest.fixture(autouse=True)
def patterns_are_used(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that makes no call of an access pattern that it declares with `pattern_coverage.covers`."""
    if not getattr(request.function, "covers", ()):
        yield
        return
    from pattern_coverage import checked

    with checked(request.getfixturevalue("served"), request.function):
        yield
