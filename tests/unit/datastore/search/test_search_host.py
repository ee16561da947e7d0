"""The search index in OpenSearch: credentials, failures, bounds, and a gateway's answers during an outage."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from datastore.dynamodb.retry.circuit_breaker import BreakerConfig
from datastore.errors import Internal, Throttled, Unavailable
from datastore.search import Kind
from datastore.search.opensearch_index import MAX_CONCURRENCY, OpenSearchIndex
from datastore.search.queries import query_of
from server.settings import Settings
from tests.support.redis_tls import signed_certificate
from tests.support.search import IDS, USERS, find_posts, join, sync_index, write_searched_post
from tests.support.search_index import find_ids as find_in
from tests.support.search_index import gone, search_entry
from tests.support.search_server import SearchServer, search_server
from tests.support.served import NOON, Served

QUICK = BreakerConfig(failures=2, wait_seconds=0.01, first_probe_seconds=0.01, probe_interval=0.02, probe_timeout=1.0)
WORD = query_of("word", tags=True)


@pytest.fixture
async def server() -> AsyncIterator[SearchServer]:
    async with search_server(("ada", "p/w@:")) as server:
        yield server


@pytest.fixture
async def index(server: SearchServer) -> AsyncIterator[OpenSearchIndex]:
    index = OpenSearchIndex(f"http://ada:p%2Fw%40%3A@127.0.0.1:{server.port}", "Test-", terms=QUICK)
    yield index
    await index.aclose()


@pytest.fixture
def settings(settings: Settings, server: SearchServer) -> Settings:
    url = f"http://ada:p%2Fw%40%3A@127.0.0.1:{server.port}"
    return replace(settings, search_url=url)


async def test_the_credentials_of_the_url_are_sent(index: OpenSearchIndex, server: SearchServer) -> None:
    await index.write(Kind.POSTS, [search_entry("a", "word")])
    assert await find_in(index, "word") == ["a"]

    stranger = OpenSearchIndex(f"http://ada:wrong@127.0.0.1:{server.port}", "Test-")
    with pytest.raises(Unavailable):
        await stranger.search(Kind.POSTS, WORD, 1)
    await stranger.aclose()


@pytest.fixture
async def encrypted(tmp_path: Path) -> AsyncIterator[SearchServer]:
    """Yield a host whose certificate is signed by a private authority, `authority.pem` in the folder."""
    authority_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    (tmp_path / "authority.pem").write_bytes(signed_certificate("authority", authority_key, "authority", authority_key))
    (tmp_path / "server.pem").write_bytes(signed_certificate("server", server_key, "authority", authority_key))
    form, secret = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (tmp_path / "server.key").write_bytes(server_key.private_bytes(serialization.Encoding.PEM, form, secret))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    async with search_server(("ada", "secret"), context) as server:
        yield server


async def test_a_host_with_tls_must_show_a_certificate_that_is_trusted(
    encrypted: SearchServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"https://ada:secret@127.0.0.1:{encrypted.port}"
    stranger = OpenSearchIndex(url, "", terms=QUICK)
    with pytest.raises(Unavailable):
        await stranger.search(Kind.POSTS, WORD, 1)
    await stranger.aclose()
    assert encrypted.requests == []  # no password went to a host without a trusted certificate

    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    index = OpenSearchIndex(url, "", terms=QUICK)
    await index.write(Kind.POSTS, [search_entry("a", "word")])
    assert await find_in(index, "word") == ["a"]
    await index.aclose()


@pytest.mark.parametrize(
    ("status", "error"),
    [(400, Internal), (401, Unavailable), (403, Unavailable), (429, Throttled), (500, Unavailable), (503, Unavailable)],
)
async def test_refusals_of_the_host(
    index: OpenSearchIndex, server: SearchServer, status: int, error: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    server.failing = status
    with pytest.raises(error) as refused:
        await index.search(Kind.POSTS, WORD, 1)
    assert "127.0.0.1" not in str(refused.value)
    assert str(status) in caplog.text
    assert "p/w@:" not in caplog.text

    server.failing = None
    assert await index.search(Kind.POSTS, WORD, 1) == []


@pytest.mark.parametrize(
    ("status", "error"), [(400, Internal), (409, Unavailable), (429, Throttled), (503, Unavailable)]
)
async def test_an_entry_that_the_host_refuses_fails_its_write(
    index: OpenSearchIndex, server: SearchServer, status: int, error: type[Exception]
) -> None:
    server.refused_entries["b"] = status
    with pytest.raises(error):
        await index.write(Kind.POSTS, [search_entry("a", "word"), search_entry("b", "word")])

    server.refused_entries.clear()
    await index.write(Kind.POSTS, [search_entry("a", "word"), search_entry("b", "word")])
    assert sorted(await find_in(index, "word")) == ["a", "b"]


async def test_a_host_that_is_away_receives_only_probes_until_one_is_answered(
    index: OpenSearchIndex, server: SearchServer
) -> None:
    await server.stop()
    for _ in range(3):
        with pytest.raises(Unavailable) as refused:
            await index.search(Kind.POSTS, WORD, 1)
        assert refused.value.extensions == {"code": "UNAVAILABLE", "retryable": True}
    assert index._breaker.tripped

    await server.start()
    async with asyncio.timeout(50):
        while index._breaker.tripped:  # noqa: ASYNC110 - the breaker has no event to await
            await asyncio.sleep(0.005)
    assert await index.search(Kind.POSTS, WORD, 1) == []


async def test_the_number_of_concurrent_requests_is_limited(index: OpenSearchIndex, server: SearchServer) -> None:
    server.held = asyncio.Event()
    searches = [asyncio.create_task(index.search(Kind.POSTS, WORD, 1)) for _ in range(3 * MAX_CONCURRENCY)]
    async with asyncio.timeout(50):
        while server.most_at_once < MAX_CONCURRENCY:  # noqa: ASYNC110 - over the wire
            await asyncio.sleep(0.005)
    server.held.set()

    assert await asyncio.gather(*searches) == [[]] * (3 * MAX_CONCURRENCY)
    assert server.most_at_once == MAX_CONCURRENCY


async def test_a_write_does_not_recreate_a_deleted_index(index: OpenSearchIndex, server: SearchServer) -> None:
    await index.write(Kind.POSTS, [search_entry("a", "word")])
    build = await index.begin_rebuild()
    await index.finish_rebuild(build, "stream", NOON)
    await index.write(Kind.POSTS, [gone("a", 2)])

    assert list(server.indices) == [f"gateway-test-search-{build}"]
    assert server.indices[f"gateway-test-search-{build}"].aliases == {"gateway-test-search"}


async def test_a_gateway_searches_in_opensearch(served: Served, server: SearchServer) -> None:
    await join(served, ada="Ada Lovelace")
    await write_searched_post(served, "p1", "Hello #world")
    await sync_index(served)

    assert await find_posts(served, "hel") == ["p1"]
    assert await find_posts(served, "#world") == ["p1"]
    assert {line.split(" ")[1] for line in server.requests if line.endswith("_search")} == {
        f"/gateway-{served.gateway.search._base.removeprefix('gateway-')}/_search"  # type: ignore[attr-defined]
    }


async def test_searches_are_unavailable_while_the_host_is_away_and_nothing_else_is(
    served: Served, server: SearchServer
) -> None:
    await join(served, ada="Ada Lovelace")
    await write_searched_post(served, "p1", "word")
    await sync_index(served)
    await server.stop()

    for query in (IDS, USERS):
        answer = await served.ask(query, {"query": "word"})
        (error,) = answer.errors or [{}]
        assert error["message"] == "Search is not available at the moment; try again."
        assert error["extensions"] == {"code": "UNAVAILABLE", "retryable": True}
    assert (await served.ask('{ post(id: "p1") { text } }')).data == {"post": {"text": "word"}}
    async with served.http.get(f"{served.url}/readyz") as response:
        assert response.status == 200

    await server.start()
    async with asyncio.timeout(50):
        while (await served.ask(IDS, {"query": "word"})).errors:  # noqa: ASYNC110 - over the wire
            await asyncio.sleep(0.01)
    assert await find_posts(served, "word") == ["p1"]


def test_the_client_logs_no_requests(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert OpenSearchIndex("http://127.0.0.1:1", "")._client is not None
    assert not logging.getLogger("opensearch").isEnabledFor(logging.WARNING)
