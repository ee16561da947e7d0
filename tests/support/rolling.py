"""Two processes behind a balancer that are replaced one after the other under subscribers and queries.

Lost events and errors are counted.
"""

import asyncio
import json
import os
import secrets
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from benchmarks import ENGINE_KEY
from benchmarks.measuring import percentile
from benchmarks.topics import earthquakes
from datastore.database import StoreOptions, open_database
from datastore.engine.access_key import VARIABLE
from tests.support.balancer import Balancer
from tests.support.ports import free_port
from tests.support.store_engines import ROOT

QUERY = {"query": "{ areas earthquakes(first: 5) { nodes { eventId magnitude } } }"}
SUBPROTOCOL = "graphql-transport-ws"
QUERY_CLIENTS = 8
RECONNECT_SECONDS = 0.2
EVENT_EVERY_SECONDS = 0.1
NO_LIMITS = {
    "GATEWAY_BUDGET_UNITS": "0",
    "GATEWAY_ANONYMOUS_BUDGET_UNITS": "0",
    "GATEWAY_MAX_CONNECTIONS_PER_ADDRESS": "0",
    "GATEWAY_MAX_WEBSOCKETS_PER_CALLER": "0",
    "GATEWAY_MAX_SUBSCRIPTIONS_PER_CALLER": "0",
    "GATEWAY_MAX_CONCURRENT_PER_CALLER": "0",
    "GATEWAY_MAX_LAG_SECONDS": "60",
    "GATEWAY_DRAIN_SECONDS": "1",
}


@dataclass(slots=True)
class Outcome:
    """The result for clients. Deliveries, losses and repeats are summed over all subscribers."""

    subscribers: int = 0
    events: int = 0
    delivered: int = 0
    lost: int = 0
    repeated: int = 0
    resyncs: int = 0
    queries: int = 0
    failed: list[str] = field(default_factory=list)
    #: The close codes of sockets.
    codes: Counter[int] = field(default_factory=Counter)
    disconnected_seconds: list[float] = field(default_factory=list)
    exit_seconds: list[float] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def is_lossless(self) -> bool:
        return not (self.lost or self.repeated or self.resyncs or self.failed)

    def text(self) -> str:
        away = self.disconnected_seconds or [0.0]
        exits = ", ".join(f"{seconds:.1f}" for seconds in self.exit_seconds)
        return "\n".join(
            [
                f"{self.subscribers} subscribers, {self.events} events: {self.delivered:,} deliveries, "
                f"{self.lost} lost, {self.repeated} repeated, {self.resyncs} resyncs",
                f"close codes {dict(self.codes)}; disconnected for {percentile(away, 0.5):.2f} s (median), "
                f"{max(away):.2f} s at most",
                f"{self.queries:,} queries, {len(self.failed)} failed {self.failed[:3] or ''}",
                f"processes exited within {exits or '–'} s; {self.seconds:.0f} s in all",
            ]
        )


class ResumingSubscriber:
    """A client of one subscription that resumes after each disconnect."""

    def __init__(self, url: str, outcome: Outcome) -> None:
        self.began = asyncio.Event()
        self.seen: list[str] = []
        self._url = url
        self._outcome = outcome
        self._after: str | None = None
        self._reconnect_seconds = RECONNECT_SECONDS
        self._disconnected_at: float | None = None

    async def follow(self, session: aiohttp.ClientSession) -> None:
        while True:
            with suppress(aiohttp.ClientError):
                async with session.ws_connect(self._url, protocols=[SUBPROTOCOL], autoping=True) as connection:
                    await connection.send_json({"type": "connection_init"})
                    await self._listen(connection)
            await asyncio.sleep(self._reconnect_seconds)
            self._reconnect_seconds = RECONNECT_SECONDS

    async def _listen(self, connection: aiohttp.ClientWebSocketResponse) -> None:
        while True:
            message = await connection.receive()
            if message.type is aiohttp.WSMsgType.TEXT:
                await self._handle(connection, json.loads(message.data))
                continue
            self._disconnected_at = time.monotonic()
            code = message.data if message.type is aiohttp.WSMsgType.CLOSE else 1006
            self._outcome.codes[code] += 1
            if code == 1012:
                self._reconnect_seconds = json.loads(message.extra or "{}")["reconnectAfterMs"] / 1000
            return

    async def _handle(self, connection: aiohttp.ClientWebSocketResponse, message: Mapping[str, Any]) -> None:
        match message["type"]:
            case "connection_ack":
                payload = {**earthquakes().requests[0], "extensions": {"resumeAfter": self._after}}
                await connection.send_json({"id": "1", "type": "subscribe", "payload": payload})
            case "ping":
                self._resume_from((message.get("payload") or {}).get("resume", {}).get("1"))
                await connection.send_json({"type": "pong"})
            case "next":
                self._take(message["payload"])
            case other:
                self._outcome.failed.append(f"{other}: {message.get('payload')}")

    def _take(self, payload: Mapping[str, Any]) -> None:
        self._resume_from(payload["extensions"]["eventId"])
        if payload.get("errors"):
            self._outcome.resyncs += 1
        else:
            self.seen.append(payload["data"]["earthquakeDetected"]["eventId"])

    def _resume_from(self, event_id: str | None) -> None:
        if event_id is not None:
            self._after = event_id
            self.began.set()
        if self._disconnected_at is not None:
            self._outcome.disconnected_seconds.append(time.monotonic() - self._disconnected_at)
            self._disconnected_at = None


# Processes


@dataclass(frozen=True, slots=True)
class ReplaceableService:
    """A service of several processes."""

    url: str
    #: Replaces all processes.
    replace: Callable[[Outcome], Awaitable[None]]


@asynccontextmanager
async def two_processes(store: str, secret: str | None = None) -> AsyncIterator[ReplaceableService]:
    """Run two processes on ports of their own behind a balancer. `secret` signs their tokens, by default a new one."""
    ports = [free_port() for _ in range(2)]
    secret = secret or secrets.token_urlsafe(48)
    running = [await started_gateway(store, port, secret) for port in ports]
    try:
        async with Balancer([f"http://127.0.0.1:{port}" for port in ports]) as balancer:

            async def replace(outcome: Outcome) -> None:
                for number, port in enumerate(ports):
                    began = time.monotonic()
                    running[number].send_signal(signal.SIGTERM)
                    await running[number].wait()
                    outcome.exit_seconds.append(time.monotonic() - began)
                    running[number] = await started_gateway(store, port, secret)
                    await balancer.wait_for_ready(2)

            yield ReplaceableService(balancer.url, replace)
    finally:
        await ended(running)


async def started_gateway(store: str, port: int, secret: str) -> asyncio.subprocess.Process:
    """Start `gateway.py serve` without effective limits."""
    command = [sys.executable, "gateway.py", "serve", "--store", store, "--no-demo", "--port", str(port)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GATEWAY_")}
    given = environment | NO_LIMITS | {"GATEWAY_SECRET": secret, VARIABLE: ENGINE_KEY}
    return await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=given, stderr=sys.stderr)


async def ended(processes: Sequence[asyncio.subprocess.Process]) -> None:
    for process in processes:
        if process.returncode is None:
            process.terminate()
    await asyncio.gather(*[process.wait() for process in processes])


# The load


async def measure(service_of: Callable[[str], Any], subscribers: int) -> Outcome:
    """Replace all processes once while `subscribers` subscribers and some clients with queries are connected."""
    outcome = Outcome(subscribers)
    began = time.monotonic()
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(open_database(StoreOptions()))
        assert database.engine is not None
        await database.create_tables()
        service = await stack.enter_async_context(service_of(database.engine.endpoint))
        publish = await earthquakes().publisher(database.client)
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        clients = [ResumingSubscriber(f"{service.url}/graphql", outcome) for _ in range(subscribers)]
        tasks = [asyncio.create_task(client.follow(session)) for client in clients]
        finished = asyncio.Event()
        published: list[str] = []
        work = [asyncio.create_task(_query(session, service.url, outcome, finished)) for _ in range(QUERY_CLIENTS)]
        try:
            await asyncio.gather(*[client.began.wait() for client in clients])
            work.append(asyncio.create_task(_publish(publish, published, finished)))
            await service.replace(outcome)
            finished.set()
            await asyncio.gather(*work)
            await _wait_until_received(clients, published)
        finally:
            for task in (*tasks, *work):
                task.cancel()
            await asyncio.gather(*tasks, *work, return_exceptions=True)
    _count(outcome, clients, published)
    outcome.seconds = time.monotonic() - began
    return outcome


async def _publish(publish: Any, published: list[str], finished: asyncio.Event) -> None:
    while not finished.is_set():
        await publish(published.append)
        await asyncio.sleep(EVENT_EVERY_SECONDS)


async def _query(session: aiohttp.ClientSession, url: str, outcome: Outcome, finished: asyncio.Event) -> None:
    while not finished.is_set():
        try:
            async with session.post(f"{url}/graphql", json=QUERY) as response:
                answer = await response.json()
                if response.status != 200 or "errors" in answer:
                    outcome.failed.append(f"{response.status} {answer}")
        except aiohttp.ClientError as problem:
            outcome.failed.append(repr(problem))
        outcome.queries += 1
        await asyncio.sleep(0.02)


async def _wait_until_received(clients: Sequence[ResumingSubscriber], published: Sequence[str]) -> None:
    """Wait until all subscribers have received the last event, for at most 20 seconds."""
    with suppress(TimeoutError):
        async with asyncio.timeout(20):
            while any(client.seen[-1:] != [published[-1]] for client in clients):  # noqa: ASYNC110
                await asyncio.sleep(0.05)


def _count(outcome: Outcome, clients: Sequence[ResumingSubscriber], published: Sequence[str]) -> None:
    outcome.events = len(published)
    for client in clients:
        seen = Counter(client.seen)
        outcome.delivered += len(client.seen)
        outcome.lost += sum(event not in seen for event in published)
        outcome.repeated += sum(count - 1 for count in seen.values())
