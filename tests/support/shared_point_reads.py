"""Point reads of several requests of one process."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web

from datastore.database import Database
from datastore.dynamodb.client import Client
from datastore.dynamodb.read_cache import ReadCaches
from datastore.keyspace.sightings import BLIP
from datastore.model.access_patterns import AccessPattern, Who
from datastore.model.composite_keys import Key
from datastore.session.metering import Deadline
from datastore.session.request_reads import ReadFreshness
from datastore.session.store import Store
from tests.support.fault_proxy import (
    Proxy,
    Seen,
    client_of,
)
from tests.support.served import NOON, Clock
from tests.support.until import until

READ = AccessPattern("T-1", "", BLIP, ("GetItem", "BatchGetItem"), Who.ANY)

HOT = replace(READ, id="T-2", shared_ms=250)

LATEST = replace(READ, id="T-3", consistent=True)

WRITE = AccessPattern("T-4", "", BLIP, ("PutItem",), Who.ANY)

Open = Callable[..., Store]


def key(number: int = 1) -> Key:
    return Key("P", f"S#{number}")


def valued_item(value: int, number: int = 1) -> dict[str, Any]:
    return {"PK": "P", "SK": f"S#{number}", "value": value, "more": "x"}


@pytest.fixture
async def client(proxy: Proxy, clock: Clock) -> AsyncIterator[Client]:
    async with client_of(proxy, read_caches=ReadCaches(lambda: clock().timestamp())) as client:
        yield client


@pytest.fixture
def open_store(client: Client, database: Database) -> Open:
    """Return a function that opens stores of requests of one process, which uses the proxy."""

    def store(sharing: ReadFreshness = ReadFreshness.CACHED, seconds: float = 10) -> Store:
        opened = Store(
            client, prefix=database.prefix, deadline=Deadline(seconds), token=lambda: "token", now=lambda: NOON
        )
        opened.freshness = sharing
        return opened

    return store


@pytest.fixture
def elsewhere(database: Database) -> Store:
    """Return a store of another process, which does not use the proxy."""
    return Store(
        database.client, prefix=database.prefix, deadline=Deadline(60), token=lambda: "token", now=lambda: NOON
    )


async def value(store: Store, pattern: AccessPattern = READ, number: int = 1) -> int | None:
    found = await store.get(pattern, key(number))
    return None if found is None else int(found["value"])


class RequestGate:
    """Holds `held` requests, with the engine's responses at their arrival, until it is opened."""

    def __init__(self, proxy: Proxy, held: int = 1) -> None:
        self._open = asyncio.Event()
        self._waiting = 0
        proxy.faults.extend([self] * held)

    async def __call__(self, proxy: Proxy, seen: Seen) -> web.StreamResponse:
        status, headers, content = await proxy.ask(seen)
        self._waiting += 1
        await self._open.wait()
        return web.Response(status=status, headers=headers, body=content)

    async def holds(self, count: int = 1) -> None:
        await until(lambda: self._waiting == count)

    def open(self) -> None:
        self._open.set()
