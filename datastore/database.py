"""The opening of the configured store: the embedded engine, AWS, or another endpoint with DynamoDB's API."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import botocore.exceptions

from datastore.dynamodb.client import CallListener, Client, Endpoint
from datastore.dynamodb.endpoints import EndpointUnknown, addresses, is_aws_url, parse_aws_host
from datastore.dynamodb.http1 import HttpOrigin, ProxyUnusable
from datastore.dynamodb.read_cache import ReadCaches
from datastore.dynamodb.sigv4 import CredentialSource, StaticCredentials
from datastore.engine.access_key import KeyUnusable, key_in_environment
from datastore.engine.engine import Engine
from datastore.engine.programs import find_program
from datastore.infrastructure import table_updates, tables
from datastore.infrastructure.table_differences import Difference
from datastore.keyspace import TABLES

logger = logging.getLogger(__name__)

LOCAL_REGION = LOCAL_ACCESS_KEY = LOCAL_SECRET = "local"


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """The choice of a store."""

    #: "embedded", "aws" or a URL, also one of AWS.
    store: str = "embedded"
    #: The data directory of the embedded engine. Processes with the same directory share one engine. Without a
    #: directory the engine is private and keeps its data in memory.
    data_dir: Path | None = None
    #: Keep the data of the embedded engine in memory although `data_dir` lets other processes join it.
    memory: bool = False
    #: The prefix of the tables' names.
    prefix: str = ""
    region: str | None = None
    #: The host and port at which other machines reach the embedded engine.
    listen: tuple[str, int] | None = None
    #: The folder in which the engine's program is looked for.
    root: Path = Path(__file__).resolve().parent.parent

    @property
    def embedded(self) -> bool:
        return self.store == "embedded"

    @property
    def in_aws(self) -> bool:
        """Whether the tables are in AWS, which then limits and bills the requests."""
        return self.store == "aws" or is_aws_url(self.store)

    @property
    def named_region(self) -> str | None:
        """The region that the options name: for an AWS host its region, for which requests are signed, else `region`.

        Raises `StoreMisconfigured` for a host of AWS that names no region.
        """
        if self.store == "aws" or not self.in_aws:
            return self.region
        try:
            return parse_aws_host(self.store).region
        except EndpointUnknown as problem:
            raise StoreMisconfigured(str(problem)) from None


class StoreMisconfigured(Exception):
    """The store cannot be opened as configured. The message says what to set."""


class Database:
    """The opened DynamoDB, with its client and the administration of its tables."""

    def __init__(self, client: Client, endpoint: Endpoint, options: StoreOptions, engine: Engine | None) -> None:
        self.client = client
        self.prefix = options.prefix
        self.in_aws = options.in_aws
        self.engine = engine
        self.endpoint = endpoint

    async def create_tables(self) -> list[str]:
        """Create the declared tables that are missing. Return their names.

        In AWS the new tables get deletion protection and point-in-time recovery. In an embedded engine, which has no
        administrator, the existing tables are updated to their declarations.
        """
        created = await tables.create(self.client, TABLES, self.prefix, protected=self.in_aws)
        if self.in_aws:
            for name in created:
                await table_updates.recover(self.client, name)
        if self.engine is not None:
            existing = [table for table in TABLES if self.prefix + table.name not in created]
            for difference in await table_updates.update(self.client, existing, self.prefix, in_aws=False):
                logger.warning("The table %s.", difference)
        return created

    async def compare_tables(self) -> list[Difference]:
        """Return the differences between the existing tables and their declarations."""
        return await table_updates.compare(self.client, TABLES, self.prefix, in_aws=self.in_aws)

    async def update_tables(self, on_change: Callable[[Difference], None]) -> list[Difference]:
        """Apply the possible changes. Return the remaining differences. `on_change` is called before each change."""
        return await table_updates.update(self.client, TABLES, self.prefix, in_aws=self.in_aws, on_change=on_change)

    async def describe_tables(self) -> list[dict[str, Any]]:
        return await tables.describe(self.client, TABLES, self.prefix)


@asynccontextmanager
async def open_database(
    options: StoreOptions,
    *,
    on_restart: Callable[[], Awaitable[None]] | None = None,
    on_call: CallListener | None = None,
    read_caches: ReadCaches | None = None,
) -> AsyncIterator[Database]:
    """Open the store for the duration of the context.

    `on_restart` is called after a restart of the embedded engine, `on_call` after each call of the client.

    Raises:
        StoreMisconfigured: The options cannot be used.
        EngineMissing, EngineFailed: The embedded engine cannot be started.
    """
    async with AsyncExitStack() as stack:
        engine: Engine | None = None
        client: Client | None = None

        async def restarted() -> None:
            if client is not None:
                client.reset_breakers()
            if on_restart is not None:
                await on_restart()

        if options.embedded:
            program = find_program(options.root)
            engine = await stack.enter_async_context(
                Engine(program, options.data_dir, restarted, memory=options.memory, listen=options.listen)
            )
        session = _session(options)
        endpoint = _endpoint(options, session, engine)
        if engine is None:
            source = CredentialSource(credentials_of(session), lambda: credentials_of(_session(options)))
        else:
            source = CredentialSource(_EngineCredentials(engine))
        _check_proxies(endpoint)
        client = await stack.enter_async_context(
            Client(endpoint, source, recreates_tables=engine is not None, on_call=on_call, read_caches=read_caches)
        )
        yield Database(client, endpoint, options, engine)


class _EngineCredentials:
    """Credentials with the engine's current access key, which changes when another process starts the engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def get_frozen_credentials(self) -> StaticCredentials:
        return StaticCredentials(self._engine.key, LOCAL_SECRET)


def _session(options: StoreOptions) -> Any:
    """Return a boto3 session, or for a store with an access key of its own a `_LocalSession`.

    For an engine at a URL it has the configured access key. For the embedded engine it has a placeholder, because the
    engine's key is read at each call.
    """
    if options.embedded:
        return _LocalSession(options.region or LOCAL_REGION)
    if options.in_aws:
        return _boto_session(options.named_region)
    key = _configured_key()
    if key is not None or _is_local(options.store):
        return _LocalSession(options.region or LOCAL_REGION, key or LOCAL_ACCESS_KEY)
    return _boto_session(options.region)


def _boto_session(region_name: str | None) -> Any:
    import boto3  # imported late: only a store in AWS, or with credentials of AWS, needs it

    return boto3.Session(region_name=region_name)


def _configured_key() -> str | None:
    try:
        return key_in_environment()
    except KeyUnusable as problem:
        raise StoreMisconfigured(str(problem)) from None


class _LocalSession:
    """The session of a store with an access key of its own."""

    def __init__(self, region_name: str, key: str = LOCAL_ACCESS_KEY) -> None:
        self.region_name = region_name
        self._key = key

    def get_credentials(self) -> StaticCredentials:
        return StaticCredentials(self._key, LOCAL_SECRET)


def _is_local(store: str) -> bool:
    return urlsplit(store).hostname in ("127.0.0.1", "localhost", "::1")


def _endpoint(options: StoreOptions, session: Any, engine: Engine | None) -> Endpoint:
    if engine is not None:
        return Endpoint(lambda: engine.endpoint, lambda: engine.endpoint, session.region_name)
    if not options.in_aws:
        url = _checked_url(options.store)
        return Endpoint(lambda: url, lambda: url, session.region_name or LOCAL_REGION)
    try:
        found = addresses(session, None if options.store == "aws" else _checked_url(options.store))
    except botocore.exceptions.NoRegionError:
        raise StoreMisconfigured("No AWS region: set --region or AWS_REGION.") from None
    except EndpointUnknown as problem:
        raise StoreMisconfigured(str(problem)) from None
    return Endpoint(lambda: found.tables, lambda: found.streams, session.region_name)


def _check_proxies(endpoint: Endpoint) -> None:
    """Raise `StoreMisconfigured` for an unusable proxy in the environment, before the first request."""
    try:
        for url in (endpoint.tables(), endpoint.streams()):
            HttpOrigin.of(url)  # raises `ProxyUnusable`
    except ProxyUnusable as problem:
        raise StoreMisconfigured(str(problem)) from None


def _checked_url(store: str) -> str:
    """Return scheme, host and port of the store. Raises `StoreMisconfigured` for anything else, such as a path.

    All requests of DynamoDB go to `/`. The host is not normalized, because its spelling is signed.
    """
    try:
        url = urlsplit(store)
    except ValueError:  # brackets without an address
        url = urlsplit("")
    if url.scheme not in ("http", "https") or not url.hostname or url.path.strip("/") or url.query or "@" in url.netloc:
        raise StoreMisconfigured(f'The store is "embedded", "aws" or a URL like http://localhost:8000, not {store!r}.')
    return f"{url.scheme}://{url.netloc}"


def credentials_of(session: Any) -> Any:
    """Return the credentials that botocore finds. Raises `StoreMisconfigured` if there are none."""
    credentials = session.get_credentials()
    if credentials is None:
        raise StoreMisconfigured(
            "No AWS credentials were found: set AWS_PROFILE or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )
    return credentials
