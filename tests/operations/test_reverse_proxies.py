"""The sample configurations of nginx and HAProxy, in front of two gateways in processes of their own."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from datastore.model.identity import Role
from server.security.jwt import Tokens, TokenSettings
from tests.support.command_line import GatewayProcess, serve_process
from tests.support.ports import free_port
from tests.support.reverse_proxies import PROXIES, ReverseProxy
from tests.support.served import SECRET
from tests.support.until import until_async

AREAS = {"query": "{ areas }"}
EVENT = {"query": '{ earthquake(id: "us1") { eventId } }'}
# HAProxy takes the gateways for ready until its second check.
CHECKS_SECONDS = 3.0
REPORT = 'mutation { reportSighting(input: {area: "Downtown", category: "Cats", description: "%s"}) { area } }'
REPORTED = "subscription { sightingReported { description } }"
SECONDS = 40.0
# Longer than HAProxy takes to notice: two checks, a second apart.
DRAIN_SECONDS = 4
ENVIRONMENT = {
    "GATEWAY_SECRET": SECRET,
    "GATEWAY_TRUSTED_PROXIES": "127.0.0.1/32",
    "GATEWAY_DRAIN_SECONDS": str(DRAIN_SECONDS),
    "GATEWAY_ANONYMOUS_BUDGET_UNITS_PER_SECOND": "0.000001",
    "GATEWAY_DEMO": "false",
}


@pytest.fixture
def gateways(tmp_path: Path) -> Iterator[tuple[GatewayProcess, GatewayProcess]]:
    data = {"GATEWAY_DATA_DIR": str(tmp_path / "data")}
    with (
        serve_process(tmp_path / "one", "--no-demo", **ENVIRONMENT, **data) as one,
        serve_process(tmp_path / "two", "--no-demo", **ENVIRONMENT, **data) as two,
    ):
        yield one, two


@pytest.fixture(params=[*PROXIES])
def proxy(
    request: pytest.FixtureRequest, tmp_path: Path, gateways: tuple[GatewayProcess, GatewayProcess]
) -> Iterator[ReverseProxy]:
    proxy = ReverseProxy(request.param, tmp_path, [int(gateway.url.rpartition(":")[2]) for gateway in gateways])
    yield proxy
    proxy.stop()


def reporter_headers() -> dict[str, str]:
    return {"Authorization": f"Bearer {Tokens(TokenSettings(secret=SECRET)).issue('ada', Role.USER)}"}


@asynccontextmanager
async def proxy_client_at(address: str) -> AsyncIterator[aiohttp.ClientSession]:
    """Open a client that connects from an address of this machine."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(local_addr=(address, 0))) as session:
        yield session


async def proxy_answers(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with session.post(f"{url}/graphql", json=AREAS) as response:
            return response.status == 200
    except aiohttp.ClientError:
        return False


async def running_proxy_answers(proxy: ReverseProxy, session: aiohttp.ClientSession) -> bool:
    assert proxy.process.poll() is None, proxy.log
    return await proxy_answers(session, proxy.url)


async def is_in_log(proxy: ReverseProxy, text: str) -> bool:
    return text in proxy.log


async def report_described(session: aiohttp.ClientSession, url: str, description: str) -> None:
    async with session.post(
        f"{url}/graphql", json={"query": REPORT % description}, headers=reporter_headers()
    ) as response:
        assert (await response.json())["data"]["reportSighting"], await response.text()


async def budget_behind_proxy(session: aiohttp.ClientSession, url: str, **headers: str) -> int:
    """Return the budget that is left to this client, after a query that costs a part of it."""
    async with session.post(
        f"{url}/graphql", json={"query": "{ earthquakes { nodes { eventId } } }"}, headers=headers
    ) as response:
        assert response.status == 200, await response.text()
        return int(response.headers["ratelimit-remaining"])


async def until_event(read: Any, session: aiohttp.ClientSession, url: str, description: str) -> None:
    """Report a sighting again until `read` returns an event of it: no message tells when a subscription is attached."""
    reading = asyncio.create_task(read())
    async with asyncio.timeout(SECONDS):
        while not reading.done():
            await report_described(session, url, description)
            await asyncio.wait({reading}, timeout=0.5)
    assert await reading == description


async def sockets_and_event_streams_pass(session: aiohttp.ClientSession, url: str) -> None:
    async with session.ws_connect(
        f"{url}/graphql", protocols=["graphql-transport-ws"], headers={"Origin": url}
    ) as socket:
        await socket.send_json({"type": "connection_init", "payload": reporter_headers()})
        assert (await socket.receive_json(timeout=SECONDS))["type"] == "connection_ack"
        await socket.send_json({"id": "1", "type": "subscribe", "payload": {"query": REPORTED}})

        async def next_message() -> Any:
            while (message := await socket.receive_json())["type"] == "ping":
                pass
            return message["payload"]["data"]["sightingReported"]["description"]

        await until_event(next_message, session, url, "by socket")
    headers = {"Accept": "text/event-stream", **reporter_headers()}
    async with session.post(f"{url}/graphql", json={"query": REPORTED}, headers=headers) as stream:
        assert stream.status == 200

        async def next_event() -> Any:
            async for line in stream.content:
                if line.startswith(b"data: {"):
                    return json.loads(line.removeprefix(b"data: "))["data"]["sightingReported"]["description"]
            return None

        # A proxy that buffers would pass on no single event.
        await until_event(next_event, session, url, "by stream")


@pytest.mark.proof
@pytest.mark.timeout(180)
async def test_a_proxy_with_the_sample_configuration_passes_everything_and_loses_no_request_of_a_restart(
    proxy: ReverseProxy, gateways: tuple[GatewayProcess, GatewayProcess]
) -> None:
    one, two = gateways
    async with proxy_client_at("127.0.0.1") as session, proxy_client_at("127.0.0.2") as other:
        await until_async(lambda: running_proxy_answers(proxy, session), SECONDS)
        await sockets_and_event_streams_pass(session, proxy.url)
        async with session.get(f"{proxy.url}/metrics") as response:
            assert response.status == 404
        async with session.post(f"{proxy.url}/graphql", json=AREAS, headers={"X-Request-Id": "edge-7"}) as response:
            assert response.headers["x-request-id"] == "edge-7"
        assert "edge-7" in one.output + two.output
        await until_async(lambda: is_in_log(proxy, "edge-7"), SECONDS)

        # One gateway shuts down under queries.
        one.process.send_signal(signal.SIGTERM)
        queries = 0
        while one.process.poll() is None:
            assert await proxy_answers(session, proxy.url), proxy.log
            queries += 1
            await asyncio.sleep(0.005)  # 10,000 queries would exhaust the budget of the address
        assert queries
        assert await proxy_answers(session, proxy.url), proxy.log

        # The gateway that is left has a budget for each address of a client, whatever the client writes.
        left = await budget_behind_proxy(session, proxy.url)
        assert await budget_behind_proxy(session, proxy.url, **{"X-Forwarded-For": "192.0.2.1"}) < left
        assert await budget_behind_proxy(other, proxy.url) >= left

        two.process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(two.process.wait, SECONDS)
        async with session.post(f"{proxy.url}/graphql", json=AREAS) as response:
            assert response.status == 503
            assert response.headers["retry-after"] == "1"
            assert response.content_type == "application/json"
            assert (await response.json())["errors"][0]["extensions"]["code"] == "UNAVAILABLE"


@pytest.mark.proof
@pytest.mark.parametrize("name", [*PROXIES])
async def test_clients_get_the_error_of_a_gateway_while_the_store_is_away(name: str, tmp_path: Path) -> None:
    """No gateway is ready then, and the proxy passes requests on all the same."""
    store = ("--store", f"http://127.0.0.1:{free_port()}", "--no-demo")
    secret = {"GATEWAY_SECRET": SECRET}
    with (
        serve_process(tmp_path / "one", *store, **secret) as one,
        serve_process(tmp_path / "two", *store, **secret) as two,
    ):
        assert [gateway.get("/readyz")[0] for gateway in (one, two)] == [503, 503]
        proxy = ReverseProxy(name, tmp_path, [int(gateway.url.rpartition(":")[2]) for gateway in (one, two)])
        try:
            async with proxy_client_at("127.0.0.1") as session:
                await until_async(lambda: running_proxy_answers(proxy, session), SECONDS)
                await asyncio.sleep(CHECKS_SECONDS)
                async with session.post(f"{proxy.url}/graphql", json=EVENT) as response:
                    answer = await response.json()
                assert answer["data"] == {"earthquake": None}
                assert answer["errors"][0]["path"] == ["earthquake"]
                assert answer["errors"][0]["extensions"]["code"] == "UNAVAILABLE"
                assert answer["errors"][0]["extensions"]["retryable"]
                assert await proxy_answers(session, proxy.url)
        finally:
            proxy.stop()


def unread_bytes(port: int) -> int:
    """Return the most bytes that wait in a connection to this port of the machine for its server to read them."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    waiting = [int(line[4].partition(":")[2], 16) for line in lines if int(line[1].partition(":")[2], 16) == port]
    return max(waiting, default=0)


@pytest.mark.proof
async def test_clients_get_an_error_of_the_api_when_a_gateway_is_killed_before_it_responds(
    proxy: ReverseProxy, gateways: tuple[GatewayProcess, GatewayProcess]
) -> None:
    """The request was sent, so that no other gateway gets it."""
    ports = [int(gateway.url.rpartition(":")[2]) for gateway in gateways]
    body = {**AREAS, "extensions": {"padding": "x" * 5_000}}  # more than the bytes of a check

    async def is_sent() -> bool:
        return max(map(unread_bytes, ports)) > 5_000

    async with proxy_client_at("127.0.0.1") as first, proxy_client_at("127.0.0.1") as session:
        await until_async(lambda: running_proxy_answers(proxy, first), SECONDS)
        for gateway in gateways:
            gateway.process.send_signal(signal.SIGSTOP)
        # HAProxy closes the connection of a client without a response if the one to the gateway had been used before.
        request = asyncio.create_task(session.post(f"{proxy.url}/graphql", json=body))
        await until_async(is_sent, SECONDS)
        for gateway in gateways:
            gateway.process.send_signal(signal.SIGKILL)
        async with await request as response:
            assert response.status in (502, 503)
            assert response.headers["retry-after"] == "1"
            (error,) = (await response.json())["errors"]
        assert error["extensions"] == {"code": "UNAVAILABLE", "mayHaveBeenApplied": True, "retryAfter": 1}
