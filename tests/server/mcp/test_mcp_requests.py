"""Requests of MCP clients: who may send them, their limits, and what is recorded about them."""

import asyncio
import json
import logging
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from mcp import MCPError

from datastore.database import StoreOptions
from datastore.keyspace.sightings import BLIP
from datastore.model.identity import Role
from server.mcp.messages import MAX_DEPTH, MAX_VALUES, METHODS
from server.operations.request import Transport
from server.settings import Settings
from tests.support.fault_proxy import Proxy, Seen, forward
from tests.support.mcp_client import PROTOCOL, connected, send_body, send_message, settings, tools_manifest
from tests.support.observability import metric_samples
from tests.support.served import Served
from tests.support.until import until

__all__ = ["settings", "tools_manifest"]

TRENDING = {"name": "trending_categories", "arguments": {}}
MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
MODERN_HEADERS = {
    "MCP-Protocol-Version": "2026-07-28",
    "Mcp-Method": "tools/call",
    "Mcp-Name": "trending_categories",
}


# Tokens and pages


async def test_a_refused_token_is_a_401_that_names_the_scheme(served: Served) -> None:
    status, answer, headers = await send_message(served, "tools/call", TRENDING, Authorization="Bearer x.y.z")

    assert (status, headers["WWW-Authenticate"]) == (401, "Bearer")
    assert (answer["jsonrpc"], answer["id"], answer["error"]["data"]["code"]) == ("2.0", 1, "UNAUTHENTICATED")
    assert served.reports == []
    with pytest.raises(ExceptionGroup) as raised:
        async with connected(served, {"Authorization": "Bearer x.y.z"}):
            pass
    found = raised.value.subgroup(MCPError)
    assert found is not None
    assert answer["error"]["message"] in repr(found.exceptions)


class TestPages:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return replace(settings, allowed_origins=("https://app.example.com",))

    async def test_only_pages_of_known_origins_may_call_tools(self, served: Served) -> None:
        port = served.gateway.settings.port
        own = [f"http://127.0.0.1:{port}", f"http://localhost:{port}", f"http://[::1]:{port}"]
        for origin in (*own, "https://app.example.com", "https://APP.example.com:443"):
            status, _, headers = await send_message(served, "tools/list", Origin=origin)
            assert (origin, status) == (origin, 200)
            assert (headers.get("Access-Control-Allow-Origin") == origin) is (origin not in own)
        # A name that points to this machine: the Host and the Origin of the page agree.
        rebound = f"evil.example:{port}"
        for origin in (f"http://{rebound}", "null", "https://evil.example", f"http://127.0.0.1:{port + 1}"):
            status, answer, _ = await send_message(served, "tools/call", TRENDING, Origin=origin, Host=rebound)
            assert (origin, status, answer["error"]["data"]["code"]) == (origin, 403, "FORBIDDEN")
        assert served.reports == []

    async def test_an_allowed_page_may_send_the_headers_of_the_protocol(self, served: Served) -> None:
        headers = {
            "Origin": "https://app.example.com",
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization,content-type,mcp-protocol-version",
        }
        async with served.http.options(f"{served.url}/mcp", headers=headers) as response:
            assert response.status == 204
            allowed = response.headers["Access-Control-Allow-Headers"].split(", ")
        assert {"mcp-method", "mcp-name", "mcp-protocol-version", "authorization"} <= {*allowed}


# Limits of a request


async def test_sessions_and_streams_are_refused(served: Served) -> None:
    async with served.http.get(f"{served.url}/mcp", headers={"Accept": "text/event-stream"}) as response:
        assert (response.status, response.headers["Allow"]) == (405, "POST")
        assert (await response.json())["error"]["data"]["code"] == "BAD_USER_INPUT"
    async with served.http.delete(f"{served.url}/mcp", headers={"Mcp-Session-Id": "1"}) as response:
        assert response.status == 405


def nested_message(levels: int) -> bytes:
    return b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"_meta": %b%b}}' % (b"[" * levels, b"]" * levels)


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"x" * 262_145, 413, "at most 262,144 bytes"),
        (b'{"a": "' + b"x" * 262_144 + b'"}', 413, "at most 262,144 bytes"),
        (b"{", 400, "not valid JSON"),
        (b'[{"jsonrpc": "2.0", "id": 1, "method": "ping"}]', 400, "Batches are not supported"),
        (nested_message(MAX_DEPTH), 400, f"at most {MAX_DEPTH} levels"),
        (nested_message(100_000), 400, "not valid JSON"),
        (json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": [0] * MAX_VALUES}).encode(), 400, "values"),
        (b'{"jsonrpc": "2.0", "id": 1}', 400, ""),
        (b'{"jsonrpc": "2.0", "id": {}, "method": "ping"}', 400, "`id` must be"),
    ],
    ids=["long", "long-json", "no-json", "batch", "deep", "deeper", "wide", "no-method", "odd-id"],
)
async def test_a_body_beyond_a_limit_or_without_a_message_is_refused(
    served: Served, body: bytes, status: int, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    found, answer, _ = await send_body(served, body)

    assert found == status
    assert answer["error"]["code"] < 0
    assert words in answer["error"]["message"]
    assert served.reports == []
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def odd_messages(rng: random.Random, count: int) -> Iterator[tuple[bytes, dict[str, str]]]:
    """Yield messages whose members and headers have random values, most of them of a wrong type."""
    values: list[Any] = [
        None,
        True,
        0,
        -1,
        1e300,
        2**80,
        "",
        "x",
        "\x00",
        "é" * 300,
        [],
        [[]],
        {},
        {"name": 1},
        {"_meta": []},
    ]
    values += [{"name": "like_post"}, {"name": "like_post", "arguments": []}, {"uri": "gateway://schema.graphql#"}]
    values += [{"name": "trending_categories", "_meta": {"progressToken": {}}}, {"_meta": MODERN}, {"cursor": "x"}]
    names = [*sorted(METHODS), "subscriptions/listen", "resources/subscribe", "completion/complete", "", 1, None]
    versions = [PROTOCOL, "2026-07-28", "2024-11-05", "1999-01-01", "x" * 200, ""]
    for _ in range(count):
        message = {"jsonrpc": rng.choice(["2.0", "2.0", "2.0", "1.0", 2]), "method": rng.choice(names)}
        message |= {key: rng.choice(values) for key in ("id", "params", "result", "error") if rng.random() < 0.6}
        headers = {"MCP-Protocol-Version": rng.choice(versions)}
        if rng.random() < 0.4:
            headers |= {
                "Mcp-Method": str(rng.choice(names)),
                "Mcp-Name": rng.choice(["like_post", "=?base64?eA?=", ""]),
            }
        if rng.random() < 0.2:
            headers["Accept"] = rng.choice(["text/html", "application/json", "text/event-stream", "*/*"])
        yield json.dumps(message).encode(), headers


async def test_odd_messages_are_refused_and_never_fail(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    statuses: set[int] = set()
    for body, headers in odd_messages(random.Random(7), 400):
        async with asyncio.timeout(50):
            status, _, _ = await send_body(served, body, **headers)
        assert status < 500, (body, headers)
        statuses.add(status)

    assert {200, 202, 400, 406} <= statuses
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
    assert (await send_message(served, "tools/call", TRENDING))[0] == 200


async def test_other_media_types_and_unknown_methods_are_refused(served: Served) -> None:
    text, answer, _ = await send_body(served, b"{}", Content_Type="text/plain")
    unknown, unknown_answer, _ = await send_message(served, "tools/delete")
    notified, nothing, _ = await send_body(served, b'{"jsonrpc": "2.0", "method": "notifications/initialized"}')

    assert (text, answer["error"]["data"]["code"]) == (415, "BAD_USER_INPUT")
    assert (unknown, unknown_answer["error"]["code"]) == (200, -32601)
    assert (notified, nothing) == (202, None)
    # The version without a handshake also has streams of notifications, which this server does not offer.
    for method in ("tools/delete", "subscriptions/listen"):
        headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method}
        params = {"_meta": MODERN} if method == "tools/delete" else {"_meta": MODERN, "notifications": {}}
        status, answer, _ = await send_message(served, method, params, **headers)
        assert (status, answer["error"]["code"]) == (404, -32601)


async def test_variables_have_the_limits_of_other_requests(served: Served) -> None:
    arguments = {"area": [["x"] * 900] * 4}
    status, answer, _ = await send_message(served, "tools/call", {"name": "active_sightings", "arguments": arguments})
    assert status == 200
    assert answer["result"]["isError"]
    assert json.loads(answer["result"]["content"][0]["text"])["errors"][0]["extensions"]["code"] == "BAD_USER_INPUT"


# Admission


class TestBudgets:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        capacity = replace(settings.capacity, anonymous_budget_units=25, anonymous_budget_units_per_second=1e-6)
        return replace(settings, capacity=capacity)

    async def test_calls_and_lists_are_paid_from_the_budget_of_the_caller(self, served: Served) -> None:
        _, _, headers = await send_message(served, "tools/call", TRENDING)
        paid_by_call = 25 - float(headers["RateLimit-Remaining"])
        _, _, headers = await send_message(served, "tools/list")
        paid = 25 - float(headers["RateLimit-Remaining"])
        assert 0 < paid_by_call < paid
        async with connected(served) as session:
            await session.read_resource("gateway://schema.graphql")  # costs more than what is left
        served.reports.clear()

        for params in (TRENDING, {"name": "active_sightings", "arguments": {"area": "Downtown"}}):
            status, answer, headers = await send_message(served, "tools/call", params)
            assert (status, answer["error"]["data"]["code"]) == (429, "THROTTLED")
            assert int(headers["Retry-After"]) == answer["error"]["data"]["retryAfter"]
        assert (await send_message(served, "tools/list"))[0] == 429
        assert served.reports == []
        assert (await send_message(served, "tools/list", **served.headers("ada", Role.USER)))[0] == 200


class TestCosts:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        capacity = replace(settings.capacity, budget_units=10, budget_units_per_second=1e-6)
        return replace(settings, capacity=capacity)

    async def test_an_operation_beyond_the_budget_is_a_429_with_the_id_of_its_message(self, served: Served) -> None:
        headers = served.headers("ada", Role.USER)
        assert (await send_message(served, "tools/call", TRENDING, **headers))[0] == 200
        served.reports.clear()
        params = {"name": "active_sightings", "arguments": {"area": "Downtown", "first": 100}}
        answers = [await send_message(served, "tools/call", params, **headers)]
        modern = {**params, "_meta": MODERN}
        named = MODERN_HEADERS | {"Mcp-Name": "active_sightings"}
        answers.append(await send_message(served, "tools/call", modern, **headers, **named))

        for status, answer, found in answers:
            assert (status, answer["id"], answer["error"]["data"]["code"]) == (429, 1, "THROTTLED")
            assert int(found["Retry-After"]) > 0
        assert [report.codes for report in served.reports] == [["THROTTLED"]] * 2
        assert [report.calls for report in served.reports] == [0, 0]


class TestStore:
    @pytest.fixture
    def store_options(self, store_options: StoreOptions, proxy: Proxy) -> StoreOptions:
        """Route the gateway's calls through the proxy."""
        return replace(store_options, store=proxy.url)

    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return replace(settings, capacity=replace(settings.capacity, concurrent=1))

    async def test_an_overloaded_gateway_is_a_503(
        self, served: Served, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        load = served.gateway.server.admission.load
        monkeypatch.setattr(load, "_queue_seconds", 60)
        blocked, release = blocked_queries(proxy)
        calls = [asyncio.create_task(send_message(served, "tools/call", TRENDING)) for _ in range(2)]
        await until(lambda: (load.running, load.waiting) == (1, 1))

        status, answer, headers = await send_message(served, "tools/call", TRENDING)
        assert (status, answer["error"]["data"]["code"], headers["Retry-After"]) == (503, "UNAVAILABLE", "1")
        release()
        assert blocked()
        assert [call[0] for call in await asyncio.gather(*calls)] == [200, 200]

    @pytest.mark.parametrize("is_modern", [False, True], ids=["handshake", "stateless"])
    async def test_a_client_that_disconnects_stops_its_call(
        self, served: Served, proxy: Proxy, is_modern: bool, caplog: pytest.LogCaptureFixture
    ) -> None:
        await send_message(served, "ping")  # the SDK is imported
        blocked, release = blocked_queries(proxy)
        params = {**TRENDING, "_meta": MODERN} if is_modern else TRENDING
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": PROTOCOL,
        } | (MODERN_HEADERS if is_modern else {})
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        async with aiohttp.ClientSession() as leaving:
            call = asyncio.create_task(leaving.post(f"{served.url}/mcp", json=message, headers=headers))
            await until(blocked)
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
        await until(lambda: served.reports)
        release()

        assert [report.codes for report in served.reports] == [["CANCELLED"]]
        assert served.gateway.server.admission.load.running == 0
        assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []
        assert (await send_message(served, "tools/call", TRENDING))[0] == 200


def blocked_queries(proxy: Proxy) -> tuple[Callable[[], bool], Callable[[], None]]:
    """Block each Query of `blip`. Return whether there is one, and the function that lets them pass."""
    opened, met = asyncio.Event(), asyncio.Event()

    async def answer(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        if seen.operation == "Query" and str(seen.body["TableName"]).endswith(BLIP.name):
            met.set()
            await opened.wait()
        return await forward(proxy, seen)

    proxy.always = answer
    return met.is_set, opened.set


async def test_an_unexpected_error_is_masked(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*_: Any) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr(served.gateway.server.runner, "prepare", fails)
    status, answer, _ = await send_message(served, "tools/call", TRENDING)

    assert (status, answer["error"]["data"]["code"]) == (500, "INTERNAL")
    assert "a secret" not in json.dumps(answer)


# Records


async def test_a_call_has_the_id_of_its_request_in_the_response_and_the_log(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        _, _, headers = await send_message(served, "tools/call", TRENDING, X_Request_Id="from-an-agent")
        await send_message(served, "tools/list", Authorization="Bearer x", X_Request_Id="refused-one")

    assert headers["X-Request-Id"] == "from-an-agent"
    assert [report.transport for report in served.reports] == [Transport.MCP]
    lines = [record.getMessage() for record in caplog.records if record.name.startswith("gateway.")]
    assert len(lines) == 2
    assert "name=trending_categories" in lines[0]
    assert "transport=mcp" in lines[0]
    assert "requestId=from-an-agent" in lines[0]
    assert "requestId=refused-one" in lines[1]
    assert "code=UNAUTHENTICATED" in lines[1]
    assert [record for record in caplog.records if record.name.startswith("mcp")] == []


async def test_requests_are_counted_by_known_methods(served: Served) -> None:
    for method in ("tools/list", "tools/list", "tools/call", "anything", "anything else"):
        await send_message(served, method, TRENDING if method == "tools/call" else {})
    samples = await metric_samples(served, **served.headers("root", Role.ADMIN))

    counted = {labels: value for (name, labels), value in samples.items() if name == "gateway_mcp_requests_total"}
    assert counted == {
        (("method", "other"), ("status", "200")): 2,
        (("method", "tools/call"), ("status", "200")): 1,
        (("method", "tools/list"), ("status", "200")): 2,
    }
    operation = ("code", "OK"), ("field", "trending"), ("transport", "mcp"), ("type", "query")
    assert samples["gateway_operations_total", operation] == 1


async def test_many_calls_at_once_share_no_state(served: Served) -> None:
    people = [f"person-{number}" for number in range(12)]

    async def likes(user: str) -> Any:
        params = {"name": "report_sighting", "arguments": {"area": "Harbor", "category": "Cats", "description": user}}
        _, answer, headers = await send_message(served, "tools/call", params, **served.headers(user, Role.USER))
        assert "Mcp-Session-Id" not in headers
        return answer["result"]["structuredContent"]["reportSighting"]["reporter"]["reportTotal"]

    assert await asyncio.gather(*map(likes, people)) == [1] * len(people)
    listed = await served.ask('{ sightings(area: "Harbor", first: 50) { nodes { description reporterId } } }')
    assert {node["description"] for node in listed.data["sightings"]["nodes"]} == {*people}
    assert all(node["description"] == node["reporterId"] for node in listed.data["sightings"]["nodes"])
