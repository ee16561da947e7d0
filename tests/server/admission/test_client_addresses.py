"""Addresses of clients: headers of trusted proxies count, and those of clients do not."""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import Message, Scope

from server.admission.client_address import behind_proxies, network_of
from server.admission.settings import Capacity, capacity_of
from server.settings import Misconfigured, Settings, from_environment
from tests.support.served import Served


async def seen_address(peer: str, trusted: tuple[str, ...], *headers: tuple[bytes, bytes]) -> tuple[str, str]:
    """Return the address and the scheme of a request that an application sees."""

    async def tell(request: Request) -> JSONResponse:
        assert request.client is not None
        return JSONResponse([request.client.host, request.url.scheme])

    app = Starlette(routes=[Route("/", tell)], middleware=behind_proxies(trusted))
    scope: Scope = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "root_path": "",
        "query_string": b"",
        "scheme": "http",
        "server": ("here", 80),
        "client": (peer, 1234),
        "headers": list(headers),
    }
    sent: list[Message] = []

    async def receive() -> Message:
        raise AssertionError("nothing is read")

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    body = sent[1]["body"].decode()
    address, scheme = body.strip('[]"').split('","')
    return address, scheme


def forwarded(*hops: str) -> tuple[bytes, bytes]:
    return b"x-forwarded-for", ", ".join(hops).encode()


@pytest.mark.parametrize(
    ("peer", "hops", "address"),
    [
        ("203.0.113.9", ["192.0.2.1"], "203.0.113.9"),
        ("10.0.0.1", ["192.0.2.1"], "192.0.2.1"),
        ("10.0.0.1", ["192.0.2.66", "192.0.2.1"], "192.0.2.1"),
        ("10.0.0.1", ["192.0.2.66", "192.0.2.1", "10.0.7.7"], "192.0.2.1"),
        ("10.0.0.1", ["10.0.0.66", "192.0.2.1"], "192.0.2.1"),
        ("10.0.0.1", ["192.0.2.1:4711"], "192.0.2.1"),
        ("10.0.0.1", ["[2001:db8::1]:4711"], "2001:db8::1"),
        ("fd00::1", ["2001:db8::1"], "2001:db8::1"),
        ("10.0.0.1", [], "10.0.0.1"),
    ],
)
async def test_the_rightmost_address_outside_of_trusted_networks_counts(
    peer: str, hops: list[str], address: str
) -> None:
    headers = [forwarded(*hops)] if hops else []
    assert (await seen_address(peer, ("10.0.0.0/8", "fd00::/8"), *headers))[0] == address


async def test_several_headers_are_one_list() -> None:
    headers = (forwarded("192.0.2.66"), forwarded("192.0.2.1"), forwarded("10.9.9.9"))
    assert (await seen_address("10.0.0.1", ("10.0.0.0/8",), *headers))[0] == "192.0.2.1"


async def test_the_scheme_comes_from_trusted_proxies_only() -> None:
    said = (b"x-forwarded-proto", b"https")
    assert (await seen_address("10.0.0.1", ("10.0.0.0/8",), said))[1] == "https"
    assert (await seen_address("203.0.113.9", ("10.0.0.0/8",), said))[1] == "http"
    assert (await seen_address("10.0.0.1", (), said))[1] == "http"
    assert (await seen_address("10.0.0.1", ("10.0.0.0/8",), (b"x-forwarded-proto", b"javascript")))[1] == "http"


@given(st.text())
def test_any_address_has_a_short_network(address: str) -> None:
    assert len(network_of(address)) <= 64


@given(st.ip_addresses(v=6), st.integers(0, 2**64 - 1))
def test_a_network_of_64_bits_is_one_client(address: Any, low: int) -> None:
    neighbour = type(address)((int(address) >> 64 << 64) | low)
    if address.ipv4_mapped is None and neighbour.ipv4_mapped is None:
        assert network_of(str(address)) == network_of(str(neighbour))
        further = type(address)(int(address) ^ (1 << 64))
        assert network_of(str(address)) != network_of(str(further))


# --- Over the wire ----------------------------------------------------------------------------------------------------


async def statuses(served: Served, *claims: str) -> list[int]:
    found = []
    for claim in claims:
        headers = {"X-Forwarded-For": claim}
        body = {"query": '{ sightings(area: "Harbor", first: 1) { edges { node { sightingId } } } }'}
        async with served.http.post(f"{served.url}/graphql", json=body, headers=headers) as response:
            found.append(response.status)
    return found


CLAIMS = [f"192.0.2.{number}" for number in range(1, 9)]


async def status_with_trailer(served: Served, trailer: str) -> int:
    """Send a query in chunks, followed by a trailer. The response is the last on its connection."""
    address = urlsplit(served.url)
    body = '{"query": "{ sightings(area: \\"Harbor\\", first: 1) { edges { node { sightingId } } } }"}'
    head = (
        f"POST /graphql HTTP/1.1\r\nHost: {address.netloc}\r\nContent-Type: application/json\r\nConnection: close\r\n"
    )
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    writer.write(f"{head}Transfer-Encoding: chunked\r\n\r\n{len(body):x}\r\n{body}\r\n0\r\n{trailer}\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    return int(answer.split(b" ", 2)[1])


class TestWithoutProxies:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        capacity = Capacity(anonymous_budget_units=1, anonymous_budget_units_per_second=0.001)
        return replace(settings, capacity=replace(capacity, websockets_per_caller=2))

    async def test_a_claimed_address_gives_no_new_budget(self, served: Served) -> None:
        assert 429 in await statuses(served, *CLAIMS)

    async def test_a_claimed_address_gives_no_more_sockets(self, served: Served) -> None:
        async with AsyncExitStack() as stack:
            for number in range(3):
                opening = served.http.ws_connect(
                    f"{served.url}/graphql",
                    protocols=["graphql-transport-ws"],
                    headers={"X-Forwarded-For": CLAIMS[number]},
                )
                if number < 2:
                    await stack.enter_async_context(opening)
                    continue
                with pytest.raises(aiohttp.WSServerHandshakeError) as refusal:
                    await opening
                assert refusal.value.status == 429


class TestBehindAProxy:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        capacity = Capacity(
            anonymous_budget_units=1,
            anonymous_budget_units_per_second=0.001,
            trusted_proxies=("127.0.0.0/8",),
        )
        return replace(settings, capacity=capacity)

    async def test_each_client_has_a_budget(self, served: Served) -> None:
        assert set(await statuses(served, *CLAIMS)) == {200}
        assert 429 in await statuses(served, *["192.0.2.1"] * 8)
        # The address that a client claims is to the left of the one that the proxy adds.
        spoofed = [f"198.51.100.{number}, 192.0.2.1" for number in range(8)]
        assert set(await statuses(served, *spoofed)) == {429}

    async def test_an_address_in_a_trailer_does_not_count(self, served: Served) -> None:
        answered = [await status_with_trailer(served, f"X-Forwarded-For: 192.0.2.{number}") for number in range(8)]
        assert answered[0] == 200
        assert 429 in answered


def test_invalid_networks_are_refused() -> None:
    capacity = capacity_of({"GATEWAY_TRUSTED_PROXIES": "10.0.0.0/8, fd00::/8"})
    assert capacity.trusted_proxies == ("10.0.0.0/8", "fd00::/8")
    with pytest.raises(Misconfigured, match=r"GATEWAY_TRUSTED_PROXIES: 10\.0\.0\.1/8 has host bits set"):
        from_environment({"GATEWAY_TRUSTED_PROXIES": "10.0.0.1/8"})


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"GATEWAY_MAX_CONCURRENT": "many"}, "GATEWAY_MAX_CONCURRENT must be a whole number, 0 or more, not 'many'."),
        ({"GATEWAY_MAX_WEBSOCKETS": "-1"}, "GATEWAY_MAX_WEBSOCKETS must be a whole number, 0 or more, not '-1'."),
        ({"GATEWAY_BUDGET_UNITS": "nan"}, "GATEWAY_BUDGET_UNITS must be a number, 0 or more, not 'nan'."),
        ({"GATEWAY_BUDGET_UNITS_PER_SECOND": "0"}, "GATEWAY_BUDGET_UNITS_PER_SECOND must be above 0"),
        ({"GATEWAY_REDIS_URL": "localhost:6379"}, "GATEWAY_REDIS_URL must be a URL of Redis that begins with redis://"),
    ],
)
def test_invalid_limits_are_refused(variables: dict[str, str], says: str) -> None:
    with pytest.raises(Misconfigured) as problem:
        from_environment(variables)
    assert str(problem.value).startswith(says)


def test_every_limit_can_be_disabled() -> None:
    assert capacity_of({"GATEWAY_BUDGET_UNITS": "0", "GATEWAY_BUDGET_UNITS_PER_SECOND": "0"}).budget_units == 0
    assert capacity_of({"GATEWAY_MAX_CONNECTIONS": "0"}).connections == 0
    assert capacity_of({}) == Capacity()
