"""A gateway of its own for each test: real HTTP and WebSocket in front, the real engine behind."""

import gc
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import hypothesis
import pytest

from datastore.database import Database, StoreOptions, open_database
from datastore.dynamodb.client import Client
from datastore.infrastructure.iam_roles import GATEWAY
from datastore.search import sqlite_index
from server.documents.document_cache import GatewayExecutor
from server.operations.report import Report
from server.settings import Settings
from tests.support import engine_limitations, engine_modules, markers
from tests.support.fault_proxy import Proxy, client_of
from tests.support.markers import NoProcesses
from tests.support.ports import free_port
from tests.support.request_rules import RequestWatch
from tests.support.rights import refused
from tests.support.served import SECRET, UNBOUGHT, Clock, Served, Tidied, listening
from tests.support.store_engines import ENGINE, Engines, engines_for_tests, make_tables

# Modules that take long begin first, so that no worker is left alone with one in the end.
LONG = {"test_commands", "test_earthquake_pages", "test_graphiql", "test_ingest", "test_match_replays", "test_serve"}
# Of the proofs.
LONG |= {"test_hangs", "test_http_differential", "test_photo_paging", "test_rolling_deploys", "test_full_disk"}

# Who started this may ignore SIGHUP (nohup does), which gateways that tests start would inherit, and heed.
if hasattr(signal, "SIGHUP"):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# Operations are compiled at once here, so that all that is tested is compiled, or never.
GatewayExecutor.compile_after = 0 if os.environ.get("GATEWAY_EXECUTOR") == "interpreted" else 1


# The embedded search index measures its bounds by the wall clock, and a busy machine is no reason to fail.
sqlite_index.SEARCH_SECONDS = sqlite_index.BUSY_SECONDS = 50.0

# No deadline for examples: their duration depends on the machine.
hypothesis.settings.register_profile("tests", deadline=None)
hypothesis.settings.load_profile("tests")

NO_PROCESSES = NoProcesses() if os.environ.get("TEST_FAST") else None
REQUESTS = RequestWatch()
REQUESTS.start()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "breaks_rules(why): sends requests that DynamoDB must refuse")
    for name, meaning in markers.MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")


@pytest.fixture(autouse=True)
def rules_are_kept(request: pytest.FixtureRequest) -> Iterator[None]:
    """No request of a test breaks a rule of DynamoDB, whether or not the engine checks it."""
    REQUESTS.found.clear()
    yield
    if request.node.get_closest_marker("breaks_rules") is None:
        assert REQUESTS.found == []


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Do not import the modules of which `make test-fast` runs no test."""
    is_module = collection_path.name.startswith("test_") and collection_path.suffix == ".py"
    return True if NO_PROCESSES is not None and is_module and engine_modules.is_slow(collection_path) else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.stem not in LONG)
    engine_limitations.apply(ENGINE.name, items)
    markers.apply(items)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    if NO_PROCESSES is not None:
        NO_PROCESSES.is_on = True
    yield
    if NO_PROCESSES is not None:
        NO_PROCESSES.is_on = False


def pytest_collection_finish() -> None:
    """What is imported by now stays: the collector need not walk through it with every test."""
    gc.collect()
    gc.freeze()


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


@pytest.fixture
async def served(settings: Settings, store_options: StoreOptions, clock: Clock) -> AsyncIterator[Served]:
    """A gateway that serves; what it does for clients is what its policy in AWS allows."""
    async with AsyncExitStack() as stack:
        reports: list[Report] = []
        beyond: set[tuple[str, str]] = set()

        def look(report: Report) -> None:
            for call in report.latest_calls:
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
        assert beyond == set(), (
            "The policies forbid these calls. Add each operation to its pattern in datastore/keyspace/, "
            "and a pattern without a field to its process in datastore/infrastructure/iam_roles.py."
        )


@pytest.fixture(autouse=True)
def patterns_are_used(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that makes no call of an access pattern that it declares with `pattern_coverage.covers`."""
    if not getattr(request.function, "covers", ()):
        yield
        return
    from tests.support.pattern_coverage import checked

    with checked(request.getfixturevalue("served"), request.function):
        yield
