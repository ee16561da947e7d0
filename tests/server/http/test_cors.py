"""CORS: the headers for pages of other origins, also on errors."""

from collections.abc import AsyncIterator

import aiohttp
import pytest

from server.documents.document_cache import Documents
from server.http.cors import CrossOrigin
from server.http.endpoint import GraphQLHTTP
from server.operations.runner import Runner
from tests.support.http_server import served
from tests.support.toy_schema import SCHEMA, ToyContext, identify_toy_user

APP, EVIL = "https://app.example.com", "https://evil.example.com"
ASKING = {"access-control-request-method": "POST", "access-control-request-headers": "content-type,authorization"}
UNLISTED = [
    EVIL,
    "null",
    "https://app.example.com.evil.example.com",
    "https://evil.example.com/https://app.example.com",
    "http://app.example.com",
    "https://app.example.com:8443",
    "*",
    "",
]


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
async def url() -> AsyncIterator[str]:
    async with served(app(APP, "http://localhost:3000")) as url:
        yield url


def app(*origins: str) -> CrossOrigin:
    graphql = GraphQLHTTP(Runner(Documents(SCHEMA), ToyContext), identify_toy_user, allowed_origins=origins)
    return CrossOrigin(graphql, origins)


def cors_headers(response: aiohttp.ClientResponse) -> dict[str, str]:
    headers = {name.lower(): value for name, value in response.headers.items()}
    return {name: value for name, value in headers.items() if name.startswith("access-control")}


async def test_a_listed_origin_may_send_the_headers_of_clients(url: str, session: aiohttp.ClientSession) -> None:
    async with session.options(url, headers={"origin": APP, **ASKING}) as response:
        assert (response.status, await response.read()) == (204, b"")
        sent = cors_headers(response)
    assert sent["access-control-allow-origin"] == APP
    assert sent["access-control-allow-methods"] == "GET, POST"
    assert {"content-type", "authorization", "idempotency-key", "x-explain", "apollo-require-preflight"} <= set(
        sent["access-control-allow-headers"].split(", ")
    )
    assert int(sent["access-control-max-age"]) > 0
    assert "access-control-allow-credentials" not in sent
    assert response.headers["vary"] == "origin"


@pytest.mark.parametrize("origin", [APP, "http://localhost:3000", "HTTPS://App.Example.com"])
async def test_a_listed_page_reads_answers_and_errors(url: str, session: aiohttp.ClientSession, origin: str) -> None:
    hello = b'{"query": "{ hello }"}'
    for body, headers, status in (
        (hello, {}, 200),
        (b"{", {}, 400),
        (hello, {"content-type": "text/plain"}, 415),
        (hello, {"authorization": "Bearer wrong"}, 401),
        (hello, {"authorization": "Bearer unlucky"}, 503),
        (hello, {"accept": "text/event-stream"}, 200),
    ):
        sent = {"content-type": "application/json", **headers, "origin": origin}
        async with session.post(url, data=body, headers=sent) as response:
            fields = cors_headers(response)
            assert (response.status, fields["access-control-allow-origin"]) == (status, origin)
            assert {"retry-after", "ratelimit-remaining", "etag", "idempotency-replayed"} <= set(
                fields["access-control-expose-headers"].split(", ")
            )
            assert response.headers.getall("vary") == ["accept", "origin"]


@pytest.mark.parametrize("origin", UNLISTED)
async def test_an_unlisted_origin_gets_no_headers(url: str, session: aiohttp.ClientSession, origin: str) -> None:
    async with session.options(url, headers={"origin": origin, **ASKING}) as response:
        assert (response.status, cors_headers(response)) == (405, {})
        assert "origin" in response.headers.getall("vary")
    async with session.post(url, json={"query": "{ hello }"}, headers={"origin": origin}) as response:
        assert (response.status, cors_headers(response)) == (200, {})
        assert "origin" in response.headers.getall("vary")


async def test_nothing_is_shared_unless_it_is_set_up(session: aiohttp.ClientSession) -> None:
    async with served(app()) as url:
        async with session.options(url, headers={"origin": APP, **ASKING}) as response:
            assert (response.status, cors_headers(response)) == (405, {})
            assert (await response.json())["errors"][0]["extensions"]["code"] == "BAD_USER_INPUT"
        async with session.post(url, json={"query": "{ hello }"}, headers={"origin": APP}) as response:
            assert (response.status, cors_headers(response)) == (200, {})
            assert response.headers.getall("vary") == ["accept"]
