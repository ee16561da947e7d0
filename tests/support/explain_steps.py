"""Explained operations, compared with the requests that the engine received."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import orjson
import pytest
from aiohttp import web

from datastore.database import StoreOptions
from datastore.dynamodb.transport import STREAM_OPERATIONS
from datastore.model.identity import Role
from server.settings import Settings
from tests.support.fault_proxy import Proxy, Seen
from tests.support.ports import free_port
from tests.support.served import SECRET, Served

SIGHTINGS = '{ sightings(area: "Downtown") { nodes { area } } }'


@dataclass
class EngineWire:
    """The requests to the engine and the units that it reported."""

    requests: list[tuple[str, float]] = field(default_factory=list)

    @property
    def units(self) -> float:
        return sum(units for _, units in self.requests)

    @property
    def operations(self) -> list[str]:
        return sorted(operation for operation, _ in self.requests)


@contextmanager
def watch_engine(proxy: Proxy) -> Iterator[EngineWire]:
    """Record the requests to the engine, except logs and the change feed, which no operation is charged with."""
    wire = EngineWire()

    async def answer(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        status, headers, content = await proxy.ask(seen)
        is_log = seen.body.get("Item", {}).get("entity") == {"S": "LOG"}
        if seen.operation not in STREAM_OPERATIONS | {"DescribeTable"} and not is_log:
            consumed = orjson.loads(content).get("ConsumedCapacity") or []
            entries = [consumed] if isinstance(consumed, dict) else consumed
            wire.requests.append((seen.operation, sum(entry["CapacityUnits"] for entry in entries)))
        return web.Response(body=content, status=status, headers=headers)

    proxy.always = answer
    yield wire
    proxy.always = None


def explaining(query: str) -> dict[str, Any]:
    return {"query": query, "extensions": {"explain": True}}


@pytest.fixture
async def socket(served: Served) -> AsyncIterator[Any]:
    """Open a WebSocket of a user."""
    url = served.url.replace("http", "ws") + "/graphql"
    async with served.http.ws_connect(url, protocols=["graphql-transport-ws"]) as socket:
        await socket.send_json({"type": "connection_init", "payload": served.headers("ada", Role.USER)})
        assert (await socket.receive_json(timeout=10))["type"] == "connection_ack"
        yield socket


async def receive_message(socket: Any) -> dict[str, Any]:
    message: dict[str, Any] = await socket.receive_json(timeout=10)
    return message


@pytest.fixture
def settings(request: pytest.FixtureRequest) -> Settings:
    """Settings that let every signed-in caller have explanations, unless a test says otherwise."""
    explain = getattr(request, "param", "user")
    return Settings(secret=SECRET, port=free_port(), poll_interval=0.02, explain=explain, shared_reads=False)


@pytest.fixture
def store_options(proxy: Proxy, store_options: StoreOptions) -> StoreOptions:
    return replace(store_options, store=proxy.url)
