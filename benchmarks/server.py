"""A gateway in a separate process with the configuration of `gateway.py serve --no-demo`. It reports its usage."""

import argparse
import cProfile
import io
import logging
import os
import pstats
import secrets
import socket
import sys
import sysconfig
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import uvicorn
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from benchmarks.data import NOON
from benchmarks.measuring import run
from benchmarks.processes import free_port, launched
from datastore.database import StoreOptions
from datastore.dynamodb.calls import Call
from datastore.model.identity import Role
from runtime.container import Gateway
from server.admission.settings import Capacity
from server.app import application
from server.http.protocol import UVICORN_OPTIONS
from server.security.jwt import Tokens, TokenSettings
from server.settings import Settings
from server.uvicorn import settle_garbage_collector

READS = {"GetItem", "BatchGetItem", "Query"}
USER = "reporter-00"
SECRET_VARIABLE = "GATEWAY_SECRET"
POLL_INTERVAL = 0.25
PROFILED_FUNCTIONS = 45
ROOT = Path(__file__).resolve().parent.parent
# The limits are checked as in any gateway, but are never reached.
UNREACHED = 1_000_000
UNREACHED_LIMITS = Capacity(
    budget_units=1e12,
    budget_units_per_second=1e12,
    anonymous_budget_units=1e12,
    anonymous_budget_units_per_second=1e12,
    concurrent=UNREACHED,
    concurrent_per_caller=UNREACHED,
    lag_seconds=60.0,
    connections=UNREACHED,
    connections_per_address=UNREACHED,
    websockets=UNREACHED,
    websockets_per_caller=UNREACHED,
    subscriptions=UNREACHED,
    subscriptions_per_caller=UNREACHED,
    operations_per_websocket=UNREACHED,
    websocket_messages=UNREACHED,
    websocket_messages_per_second=UNREACHED,
)


@dataclass(frozen=True, slots=True)
class Usage:
    """The server's usage since its start."""

    #: CPU seconds.
    cpu: float
    #: DynamoDB calls by operation.
    calls: Counter[str]
    #: Read units.
    units: float

    def since(self, before: "Usage") -> "Usage":
        return Usage(self.cpu - before.cpu, self.calls - before.calls, self.units - before.units)


@dataclass(frozen=True, slots=True)
class Server:
    """A running gateway."""

    url: str
    pid: int
    token: str
    #: A client session that sends the token.
    http: aiohttp.ClientSession
    #: Returns a token for any user.
    sign: Callable[[str], str]

    async def usage(self) -> Usage:
        """Return the current usage, after the background work of all requests has ended."""
        async with self.http.get(f"{self.url}/usage") as response:
            usage = await response.json()
        return Usage(usage["cpu"], Counter(usage["calls"]), usage["units"])


@asynccontextmanager
async def serving(
    store_url: str, *, poll_interval: float = POLL_INTERVAL, secret: str = "", options: Sequence[str] = ()
) -> AsyncIterator[Server]:
    """Run a gateway on a filled store until the context exits.

    Without a `secret` it gets a random one. `options` are for its command line (see `main`).
    """
    port, secret = free_port(), secret or secrets.token_urlsafe(48)
    tokens = Tokens(TokenSettings(secret=secret), clock=NOON.timestamp)

    def sign(user: str) -> str:
        return tokens.issue(user, Role.USER)

    token = sign(USER)
    command = [sys.executable, "-m", "benchmarks.server", "--store", store_url, "--port", str(port)]
    command += ["--poll-interval", str(poll_interval), *options]
    url = f"http://127.0.0.1:{port}"
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, headers={"Authorization": f"Bearer {token}"}) as http:

        async def is_ready() -> bool:
            try:
                async with http.get(f"{url}/readyz") as response:
                    return response.status == 200
            except aiohttp.ClientError:
                return False

        async with launched(command, is_ready, **{SECRET_VARIABLE: secret}) as process:
            yield Server(url, process.pid, token, http, sign)


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--store", required=True)
    arguments.add_argument("--port", type=int, required=True)
    arguments.add_argument("--poll-interval", type=float, default=POLL_INTERVAL)
    arguments.add_argument("--profile", action="store_true", help="serve a profile since the last request at /profile")
    arguments.add_argument("--log", help="the file for a log line per operation")
    given = arguments.parse_args()
    if given.log:
        logging.basicConfig(level=logging.INFO, filename=given.log)
    settings = Settings(
        secret=os.environ[SECRET_VARIABLE],
        port=given.port,
        poll_interval=given.poll_interval,
        capacity=UNREACHED_LIMITS,
        shared_reads=False,  # the compared servers read for each request, too
    )
    run(_serve(settings, StoreOptions(store=given.store), profiled=given.profile))


async def _serve(settings: Settings, options: StoreOptions, *, profiled: bool) -> None:
    gateway = Gateway(settings, options, now=lambda: NOON)
    app = application(gateway)
    app.router.routes.append(Route("/usage", _Usage(gateway).answer))
    if profiled:
        app.router.routes.append(Route("/profile", _Profile().answer))
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        lifespan="on",
        log_level="warning",
        access_log=False,
        timeout_graceful_shutdown=1,
        **UVICORN_OPTIONS,
    )
    await _Server(config).serve()


class _Server(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        settle_garbage_collector()


class _Profile:
    """Serves the functions that ran since the last request, sorted by their own CPU time."""

    def __init__(self) -> None:
        self._profile = cProfile.Profile(time.thread_time)

    async def answer(self, _: Request) -> Response:
        self._profile.disable()
        text = io.StringIO()
        if self._profile.getstats():
            pstats.Stats(self._profile, stream=text).sort_stats("tottime").print_stats(PROFILED_FUNCTIONS)
        self._profile = cProfile.Profile(time.thread_time)
        self._profile.enable()
        return Response(_shortened(text.getvalue()), media_type="text/plain")


def _shortened(text: str) -> str:
    """Return the text without the common folders of files."""
    for folder in (sysconfig.get_path("purelib"), sysconfig.get_path("stdlib"), str(ROOT)):
        text = text.replace(f"{folder}/", "")
    return text


class _Usage:
    """Counts the calls of the gateway's client, in addition to its other listeners."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._calls: Counter[str] = Counter()
        self._units = 0.0
        self._listening = False

    async def answer(self, _: Request) -> Response:
        services = self._gateway.services
        assert services is not None
        self._listen(services.client)
        await services.request_logs.drained()
        return JSONResponse({"cpu": time.process_time(), "calls": self._calls, "units": self._units})

    def _listen(self, client: Any) -> None:
        if self._listening:
            return
        self._listening = True

        def count(call: Call) -> None:
            self._calls[call.operation] += 1
            if call.operation in READS:
                self._units += call.units

        client.add_call_listener(count)


if __name__ == "__main__":
    main()
