"""A gateway under test with a client, and the responses with their DynamoDB calls."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest
import uvicorn

from datastore.dynamodb.calls import Call
from datastore.model.access_patterns import Table
from datastore.model.identity import Role
from datastore.photos.decoder import DecoderPool
from datastore.session.store import Store
from pipelines.photos.janitor import Janitor
from runtime.container import Gateway
from server.admission.settings import Capacity
from server.agreement.settings_agreement import SettingsAgreement
from server.app import application
from server.http.protocol import UVICORN_OPTIONS
from server.operations.report import Report
from tests.support.store_engines import ROOT

REAL_DATA = ROOT.parent / "shared" / "data"
SECRET = "a secret for tests, long enough to sign with"
# Tests have no budget, and a busy machine does not refuse their operations.
UNBOUGHT = Capacity(budget_units=0, anonymous_budget_units=0, lag_seconds=0, concurrent_per_caller=0)
NOON = datetime(2026, 6, 25, 12, 0, tzinfo=UTC)


class Clock:
    """The gateway's clock, which stands still until a test moves it."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        return self.now

    def forward(self, **delta: float) -> None:
        self.now += timedelta(**delta)


@dataclass
class Answer:
    """A response with the DynamoDB calls that were made for it."""

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
    """Return `Operation table.index` with the table's declared name."""
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
        return self.gateway.server.tokens.issue(user, role, email)

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
        """POST an operation, signed in as `user` (with a verified email) or anonymously."""
        self.reports.clear()
        body = {"query": query, "variables": variables}
        headers = self.headers(user, role, email)
        async with self.http.post(f"{self.url}/graphql", json=body, headers=headers) as response:
            answer = await response.json(content_type=None)
        calls = [call for report in self.reports for call in report.latest_calls]
        return Answer(answer.get("data"), answer.get("errors"), response.status, calls, response.headers)

    def store(self) -> Store:
        """Return a store for the test's own reads and writes."""
        return self.gateway.open_store()

    @property
    def pictures(self) -> DecoderPool:
        """Return the gateway's decoders."""
        assert self.gateway.services is not None
        return self.gateway.services.decoder_pool

    async def listen(self, query: str, *, user: str | None = None, role: Role = Role.USER) -> "Listener":
        """Start a subscription. The protocol does not tell when it is attached: see `settle`."""
        listener = Listener(self, query, self.headers(user, role))
        await listener.start()
        return listener

    async def settle(self, table: Table, followers: int = 1) -> None:
        """Wait until the table has this number of subscribers and its stream is read."""
        services = self.gateway.services
        assert services is not None
        async with asyncio.timeout(50):
            while services.changes.followers(table) < followers:  # noqa: ASYNC110 - it is over the wire
                await asyncio.sleep(0.01)


def queries_at_once(served: Served, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record, for each Query, the number of Queries in flight when it began."""
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
    """A subscription over its own WebSocket."""

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
        """Return the next message that is not a ping. Answer pings."""
        while True:
            message = await self.socket.receive_json(timeout=timeout)
            if message["type"] != "ping":
                return message
            await self.socket.send_json({"type": "pong"})

    async def event(self, timeout: float = 10) -> Any:  # noqa: ASYNC109
        """Return the data of the next event."""
        message = await self.message(timeout)
        assert message["type"] == "next", message
        assert "errors" not in message["payload"], message
        return message["payload"]["data"]


class Tidied(Gateway):
    """A gateway without a janitor and without the comparison of settings.

    The test runs them (`upload_steps.janitor`, `SettingsAgreement.compare`): a janitor in the background could take a
    note of files late in its first round, before the test has written them, and both make calls of their own.
    """

    def _jobs(self) -> Iterator[Callable[[], Coroutine[Any, Any, None]]]:
        own = (Janitor, SettingsAgreement)
        return (job for job in super()._jobs() if not isinstance(getattr(job, "__self__", None), own))


@asynccontextmanager
async def listening(gateway: Gateway) -> AsyncIterator[None]:
    """Run uvicorn in front of the gateway, without uvicorn's main loop, which notices a stop only after a while."""
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
    server.lifespan.state.update(gateway.server.admission.connections.lifespan_state())
    await server.startup()
    try:
        yield
    finally:
        await asyncio.gather(gateway.server.socket.close(), gateway.server.http.streams.close())
        # The clients have gone. uvicorn would notice that only at its next check, ten times a second.
        for listener in server.servers:
            listener.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(2):
                while server.server_state.connections or server.server_state.tasks:  # noqa: ASYNC110 - it tells no event
                    await asyncio.sleep(0.001)
        if server.server_state.connections or server.server_state.tasks:
            await server.shutdown()
