"""Prometheus with the alert rules beside gateways with a failing store, low limits, a wrong clock and a defect."""

import asyncio
import json
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from datastore.database import Database
from datastore.model.identity import Role
from server.security.jwt import Tokens, TokenSettings
from tests.support.command_line import GatewayProcess, serve_process
from tests.support.fault_proxy import Fault, Proxy, Seen, forward, refuse, slow
from tests.support.prometheus import (
    BY_FAULTS_OF_A_GATEWAY,
    BY_FAULTS_OF_A_STORE,
    METRICS_TOKEN,
    Prometheus,
    prometheus_program,
    running_prometheus,
)
from tests.support.redis_server import RedisServer, redis
from tests.support.repeated_requests import repeated
from tests.support.served import SECRET
from tests.support.until import until_blocking

__all__ = ["prometheus_program", "redis"]

ADA = Tokens(TokenSettings(secret=SECRET)).issue("ada", Role.USER)
SETTINGS = {
    "GATEWAY_SECRET": SECRET,
    "GATEWAY_METRICS_TOKEN": METRICS_TOKEN,
    "GATEWAY_DEMO": "0",
    "GATEWAY_BUDGET_UNITS": "0",
}
USER = '{ user(id: "ada") { userId } }'
POSTS = '{ postsByAuthor(authorId: "ada", first: 1) { edges { node { text } } } }'
SIGHTINGS = "subscription { sightingReported { sightingId description } }"
REPORT = 'reportSighting(input: {area: "Downtown", category: "Cats", description: "%s"}) { sightingId }' % ("x" * 400)
REPORTS = "mutation { " + " ".join(f"a{number}: {REPORT}" for number in range(5)) + " }"
SLOW = 'sum(gateway_operations_total{code="SLOW_SUBSCRIBER"})'
pytestmark = pytest.mark.timeout(400)


def port_of(gateway: GatewayProcess) -> int:
    return int(gateway.url.rpartition(":")[2])


def is_above(prometheus: Prometheus, most: float) -> bool:
    """Return whether more subscribers than `most` were disconnected because they read too slowly."""
    return prometheus.value(SLOW) > most


def new_document(number: int) -> str:
    """Return an operation that no client has sent before, of almost the maximum size."""
    return "{ " + " ".join(f"a{number}_{each}: areas" for each in range(300)) + " }"


def every_second(fault: Fault) -> Fault:
    """Let every second request meet the fault."""
    requests = 0

    async def answer(proxy: Proxy, seen: Seen) -> Any:
        nonlocal requests
        requests += 1
        return await (fault if requests % 2 else forward)(proxy, seen)

    return answer


@contextmanager
def subscribed_clients(gateway: GatewayProcess, number: int) -> Iterator[list[socket.socket]]:
    """Subscribe a number of clients that read no event, and yield their connections."""
    body = json.dumps({"query": SIGHTINGS}).encode()
    head = (
        "POST /graphql HTTP/1.1\r\nHost: here\r\nAccept: text/event-stream\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {ADA}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with ExitStack() as stack:
        clients = []
        for _ in range(number):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.settimeout(40)
            client.connect(("127.0.0.1", port_of(gateway)))
            client.sendall(head.encode() + body)
            assert client.recv(12) == b"HTTP/1.1 200"
            clients.append(client)
        yield clients


def leave_few_files(gateway: GatewayProcess) -> None:
    """Lower the process's limit of open files to a few more than it has open."""
    pid = gateway.process.pid
    _, most = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")) + 4, most))


async def test_faults_of_a_store_and_low_limits_make_the_alerts_fire(
    prometheus_program: str, database: Database, engine: str, tmp_path: Path
) -> None:
    limits = {"GATEWAY_MAX_CONCURRENT": "2", "GATEWAY_MAX_SUBSCRIPTIONS": "5", "GATEWAY_MAX_CONNECTIONS": "200"}
    async with Proxy(engine, remembers=False) as proxy:

        def fault(always: Fault | None) -> None:
            loop.call_soon_threadsafe(setattr, proxy, "always", always)

        def cause_and_wait() -> set[str]:
            store = ["--store", proxy.url, "--prefix", database.prefix]
            with (
                serve_process(tmp_path / "limited", *store, **SETTINGS, **limits) as gateway,
                running_prometheus(prometheus_program, tmp_path, {"gateway": [port_of(gateway)]}) as prometheus,
            ):
                prometheus.until_scraped(2)
                assert not prometheus.firing() & BY_FAULTS_OF_A_STORE
                with repeated(gateway, USER, ADA, clients=8):
                    fault(every_second(refuse(400, "ProvisionedThroughputExceededException")))
                    prometheus.until_firing("GatewayStoreRetries")
                    fault(slow(1.5))
                    prometheus.until_firing("GatewaySlow", "GatewaySheds")
                    fault(refuse(400, "AccessDeniedException"))
                    prometheus.until_firing("GatewayFault")
                fault(None)
                with subscribed_clients(gateway, 5):
                    prometheus.until_firing("GatewayNearItsSubscriptions")

                def has_few_files() -> bool:
                    leave_few_files(gateway)  # again: it closes connections that it does not need
                    return "GatewayNearItsFiles" in prometheus.firing()

                until_blocking(has_few_files)
                prometheus.until_firing("GatewayNearItsFiles")
                return prometheus.fired

        loop = asyncio.get_running_loop()
        fired = await asyncio.to_thread(cause_and_wait)
    assert fired == BY_FAULTS_OF_A_STORE


def test_a_wrong_clock_a_defect_and_clients_make_the_alerts_fire(
    prometheus_program: str, redis: RedisServer, tmp_path: Path
) -> None:
    faults = {"CLOCK_AHEAD": "9", "GATEWAY_BUS": redis.url, "GATEWAY_MAX_WAITING_BYTES": "20000"}
    script = "tests/support/faulty_gateway.py"
    with (
        serve_process(tmp_path / "faulty", script=script, **SETTINGS, **faults) as gateway,
        running_prometheus(prometheus_program, tmp_path, {"gateway": [port_of(gateway)]}) as prometheus,
    ):
        # The processor may be shared with other tests.
        os.setpriority(os.PRIO_PROCESS, gateway.process.pid, -20)
        prometheus.until_scraped(2)
        assert not prometheus.firing() & BY_FAULTS_OF_A_GATEWAY
        with repeated(gateway, USER, ADA, headers={"X-Defect": "1"}):
            prometheus.until_firing("GatewayBreaks")
        with repeated(gateway, REPORTS, ADA, pause=0.01), ExitStack() as stack:
            # A client is disconnected once, and a counter rises from its second event on.
            for _ in range(2):
                most = prometheus.value(SLOW)
                stack.enter_context(subscribed_clients(gateway, 3))
                until_blocking(partial(is_above, prometheus, most), 90)
            prometheus.until_firing("GatewayBusLags", "GatewaySlowSubscribers")
        with repeated(gateway, new_document, ADA, clients=4, pause=0):
            prometheus.until_firing("GatewayBusy")
    assert prometheus.fired == BY_FAULTS_OF_A_GATEWAY
