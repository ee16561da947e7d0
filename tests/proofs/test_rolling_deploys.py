"""Processes that are replaced while clients use them: no request is lost."""

import asyncio
import itertools
import json
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from websockets.asyncio.client import connect

from datastore.database import StoreOptions, open_database
from datastore.model.identity import Role
from server.security.jwt import Tokens, TokenSettings
from tests.support import rolling
from tests.support.balancer import Balancer
from tests.support.command_line import GatewayProcess, serve_process
from tests.support.forking import Forked
from tests.support.node_client import NodeScript, documented_client, running_script
from tests.support.served import SECRET

pytestmark = pytest.mark.timeout(180)
ASKED = {"query": "{ areas trending { sightingCount } }"}
BULKY = "{ earthquakes(first: 1000) { nodes { eventId place magnitude occurredAt } } }"
# With small budgets a load would first be refused by them.
UNLIMITED = {
    "GATEWAY_BUDGET_UNITS": "0",
    "GATEWAY_ANONYMOUS_BUDGET_UNITS": "0",
    "GATEWAY_MAX_COST": "0",
}


@pytest.fixture
def gateways(tmp_path: Path) -> Iterator[list[GatewayProcess]]:
    """Run two gateways on the same store; the first runs the engine."""
    with ExitStack() as stack:
        folder = tmp_path / "data"
        first = stack.enter_context(serve_process(folder, "--no-demo", GATEWAY_DRAIN_SECONDS="1", **UNLIMITED))
        folder_of_other = {"GATEWAY_DATA_DIR": str(folder)}
        other = serve_process(
            tmp_path / "other", "--no-demo", GATEWAY_DRAIN_SECONDS="1", **UNLIMITED, **folder_of_other
        )
        yield [first, stack.enter_context(other)]


async def test_pooled_connections_see_no_failed_request_while_one_of_two_ends(gateways: list[GatewayProcess]) -> None:
    answers: list[int] = []
    over = asyncio.Event()

    async def ask_on(session: aiohttp.ClientSession, url: str) -> None:
        while not over.is_set():
            async with session.post(f"{url}/graphql", json=ASKED) as response:
                assert "errors" not in await response.json()
                answers.append(response.status)

    async with Balancer([gateway.url for gateway in gateways]) as balancer, aiohttp.ClientSession() as session:
        asking = [asyncio.create_task(ask_on(session, balancer.url)) for _ in range(8)]
        await balancer.wait_for_ready(2)
        gateways[1].process.send_signal(signal.SIGTERM)
        await balancer.wait_for_ready(1)
        await asyncio.to_thread(gateways[1].process.wait, 25)
        at_the_end = len(answers)
        while len(answers) < at_the_end + 50 and not any(task.done() for task in asking):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        over.set()
        await asyncio.gather(*asking)
    assert gateways[1].process.returncode == 0
    assert {*answers} == {200}


# Clients and operations that hang


@asynccontextmanager
async def reading_nothing(gateway: GatewayProcess) -> AsyncIterator[None]:
    """Open a client with a large response and one with a subscription, neither of which reads."""
    port = int(gateway.url.rpartition(":")[2])
    body = json.dumps({"query": BULKY}).encode()
    head = b"POST /graphql HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    with socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        peer.connect(("127.0.0.1", port))
        peer.sendall((head % len(body) + body) * 12)
        async with connect(f"ws://127.0.0.1:{port}/graphql", subprotocols=["graphql-transport-ws"]) as following:  # type: ignore[list-item]
            following.transport.pause_reading()
            await following.send('{"type": "connection_init"}')
            yield
            following.transport.abort()


async def test_a_client_that_reads_nothing_does_not_delay_the_end(tmp_path: Path) -> None:
    with serve_process(tmp_path / "data", **UNLIMITED) as gateway:
        async with reading_nothing(gateway):
            await asyncio.sleep(0.5)
            assert await asyncio.to_thread(gateway.stop, signal.SIGTERM) < 25
        assert gateway.process.returncode == 0


def test_a_process_whose_event_loop_hangs_ends_all_the_same(tmp_path: Path) -> None:
    received = tmp_path / "received"
    assert Forked("tests/support/hanging_process.py", [], stderr=received).wait(20) == 1
    assert received.read_text() == "The process did not end within 0.1 s and is terminated.\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="has no device that takes nothing")
def test_nor_does_it_hang_where_it_cannot_tell_of_it() -> None:
    """As when the terminal was closed."""
    assert Forked("tests/support/hanging_process.py", [], stderr=Path("/dev/full")).wait(20) == 1


@pytest.mark.parametrize(
    ("number", "second"),
    [(signal.SIGTERM, signal.SIGINT), (signal.SIGINT, signal.SIGINT), (signal.SIGHUP, signal.SIGTERM)],
)
def test_a_process_that_is_to_end_is_not_ready_and_serves_on_until_a_second_signal(
    tmp_path: Path, number: signal.Signals, second: signal.Signals
) -> None:
    """SIGHUP does not count as a second signal: a closed terminal often sends two."""
    with serve_process(tmp_path / "data", "--no-demo", GATEWAY_DRAIN_SECONDS="10") as gateway:
        assert gateway.get("/readyz")[0] == 200
        gateway.process.send_signal(number)
        deadline = time.monotonic() + 50
        while (received := gateway.get("/readyz"))[0] == 200:
            assert time.monotonic() < deadline
        assert (received[0], json.loads(received[2])) == (503, {"ready": False, "draining": True})
        gateway.process.send_signal(signal.SIGHUP)
        assert gateway.get("/healthz")[0] == 200
        assert gateway.data("{ areas }")["areas"]
        gateway.process.send_signal(second)
        gateway.process.wait(40)
        assert gateway.process.returncode == 128 + second


# Rolling deployments


async def test_replacing_both_of_two_processes_loses_no_event_and_no_query() -> None:
    outcome = await rolling.measure(rolling.two_processes, 60)
    assert outcome.is_lossless, outcome.text()
    assert outcome.events > 0
    assert outcome.delivered == outcome.subscribers * outcome.events
    assert outcome.codes[1012] >= 60  # each socket was on one of them


AREAS = ("Harbor", "Downtown")
REPORT = "mutation ($input: ReportSightingInput!) { reportSighting(input: $input) { id } }"


async def test_the_documented_client_resumes_two_subscriptions_on_one_socket_over_a_rolling_restart() -> None:
    """From its first event on, each subscription receives every sighting of its area once and in order."""
    token = Tokens(TokenSettings(secret=SECRET)).issue("bob", Role.USER)
    reported: dict[str, list[str]] = {area: [] for area in AREAS}
    received: dict[str, list[str]] = {area: [] for area in AREAS}
    connected = 0
    over = asyncio.Event()

    async def report_until_over(url: str) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        async with aiohttp.ClientSession(headers=headers, connector=aiohttp.TCPConnector(force_close=True)) as session:
            for number in itertools.count():
                area = AREAS[number % 2]
                sighting = {"area": area, "category": "Cats", "description": str(number)}
                async with session.post(
                    f"{url}/graphql", json={"query": REPORT, "variables": {"input": sighting}}
                ) as answer:
                    assert "errors" not in await answer.json()
                reported[area].append(str(number))
                if over.is_set() and area == AREAS[-1]:
                    return
                await asyncio.sleep(0.05)

    async def listen(client: NodeScript, until: Callable[[], bool]) -> None:
        nonlocal connected
        while not until():
            match await client.said():
                case {"area": area, "description": description}:
                    received[area].append(description)
                case said:
                    assert said in ("connected", "closed")
                    connected += said == "connected"

    def missed(area: str) -> list[str]:
        """Return the sightings after the last one received."""
        return reported[area][reported[area].index(received[area][-1]) + 1 :]

    async with open_database(StoreOptions()) as database:
        assert database.engine is not None
        await database.create_tables()
        async with rolling.two_processes(database.engine.endpoint, SECRET) as service:
            url = service.url.replace("http", "ws") + "/graphql"
            async with running_script("resume.js", url=url, snippet=documented_client(), areas=AREAS) as client:
                reporting = asyncio.create_task(report_until_over(service.url))
                await listen(client, lambda: all(received.values()))
                replacing = asyncio.ensure_future(service.replace(rolling.Outcome()))
                await listen(client, replacing.done)
                await replacing
                over.set()
                await reporting
                await listen(client, lambda: not any(map(missed, AREAS)))
    assert connected >= 2
    for area in AREAS:
        assert received[area] == reported[area][reported[area].index(received[area][0]) :]
