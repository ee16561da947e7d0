"""Ids of requests, and their places in traces: in the response, and in each line that is logged for the request."""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace

import aiohttp
import pytest

from datastore.keyspace.earthquakes import EARTHQUAKES
from server.app import application
from server.observability import operation_log
from server.observability.operation_log import RefusalLog
from server.request_identity import CURRENT, RequestIdentity
from server.settings import Settings
from tests.support.http_server import served as serving
from tests.support.logs import AllLines, captured_lines
from tests.support.served import Served
from tests.support.until import until

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"
APP = "https://app.example"
AREAS = {"query": "query Areas { areas }"}
# The first is too long by one character.
INVALID = ["x" * 129, "two words", "semi;colon", "\xe9", ""]


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, allowed_origins=(APP,))


@pytest.fixture
def all_lines() -> Iterator[AllLines]:
    with captured_lines() as lines:
        yield lines


async def test_a_request_keeps_the_id_and_the_trace_of_its_client(served: Served, all_lines: AllLines) -> None:
    headers = {"X-Request-Id": "edge:7/a=b+c@d.e_f-1", "traceparent": PARENT}
    async with served.http.post(f"{served.url}/graphql", json=AREAS, headers=headers) as response:
        assert response.status == 200
        assert response.headers["x-request-id"] == headers["X-Request-Id"]
        assert response.headers["traceparent"] == PARENT
    (line,) = all_lines.of(operation_log.LOGGER)
    assert (line["requestId"], line["traceId"]) == (headers["X-Request-Id"], TRACE)
    assert f"requestId={headers['X-Request-Id']}" in all_lines.texts[-1]


@pytest.mark.parametrize("path", ["/healthz", "/nothing", "/readyz", "/graphql"])
async def test_every_response_has_the_id(served: Served, path: str) -> None:
    async with served.http.get(served.url + path, headers={"X-Request-Id": "a-1"}) as response:
        assert response.headers.getall("x-request-id") == ["a-1"]
    async with served.http.get(served.url + path) as response:
        assert len(response.headers["x-request-id"]) >= 16


@pytest.mark.parametrize("given", INVALID)
async def test_an_invalid_id_is_replaced(served: Served, all_lines: AllLines, given: str) -> None:
    async with served.http.post(f"{served.url}/graphql", json=AREAS, headers={"X-Request-Id": given}) as response:
        own = response.headers["x-request-id"]
    assert own != given
    assert [line["requestId"] for line in all_lines.of(operation_log.LOGGER)] == [own]


@pytest.mark.parametrize(
    "given",
    [
        "",
        "00-0-0-00",
        f"ff-{TRACE}-00f067aa0ba902b7-01",
        PARENT + "-more",
        PARENT.upper(),
        f"00-{'0' * 32}-{'1' * 16}-01",
    ],
)
async def test_an_invalid_traceparent_is_neither_returned_nor_logged(
    served: Served, all_lines: AllLines, given: str
) -> None:
    async with served.http.post(f"{served.url}/graphql", json=AREAS, headers={"traceparent": given}) as response:
        assert response.status == 200
        assert "traceparent" not in response.headers
    (line,) = all_lines.of(operation_log.LOGGER)
    assert "traceId" not in line


async def test_equal_requests_of_a_connection_have_different_ids(served: Served) -> None:
    seen = []
    for _ in range(4):  # the head of the later ones is not parsed again
        async with served.http.post(f"{served.url}/graphql", json=AREAS) as response:
            seen.append(response.headers["x-request-id"])
    assert len(set(seen)) == 4
    assert len({request_id.partition("-")[0] for request_id in seen}) == 1


async def test_a_refused_request_is_logged_with_its_id(served: Served, all_lines: AllLines) -> None:
    headers = {"Authorization": "Bearer no-token", "X-Request-Id": "refused-1", "traceparent": PARENT}
    async with served.http.post(f"{served.url}/graphql", json=AREAS, headers=headers) as response:
        assert response.status == 401
    (line,) = all_lines.of(operation_log.REFUSALS)
    assert {name: line[name] for name in line if name != "time"} == {
        "level": "INFO",
        "logger": "gateway.refusals",
        "message": "refused",
        "status": 401,
        "code": "UNAUTHENTICATED",
        "requestId": "refused-1",
        "traceId": TRACE,
    }
    (text,) = [text for text in all_lines.texts if "gateway.refusals" in text]
    assert text.endswith(f"refused status=401 code=UNAUTHENTICATED requestId=refused-1 traceId={TRACE}")


async def test_input_that_is_no_request_is_refused_with_an_id(served: Served, all_lines: AllLines) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(served.url.rpartition(":")[2]))
    writer.write(b"GET / HTTP/1.1\r\nno host\r\n\r\n")
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    writer.close()
    (line,) = all_lines.of(operation_log.REFUSALS)
    assert (line["status"], line["code"]) == (400, "BAD_USER_INPUT")
    assert f"\r\nx-request-id: {line['requestId']}\r\n" in head


def test_the_lines_of_refused_requests_are_limited(all_lines: AllLines) -> None:
    now = 0.0
    refusals = RefusalLog(lambda: now)
    for _ in range(operation_log.REFUSED_LINES + 7):
        refusals(401, "UNAUTHENTICATED")
    assert len(all_lines.of(operation_log.REFUSALS)) == operation_log.REFUSED_LINES
    now = 1.0
    refusals(429, "THROTTLED")
    assert all_lines.logged[-1]["omitted"] == 7


async def test_an_error_within_a_request_is_logged_with_its_id(
    served: Served, all_lines: AllLines, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: object) -> None:
        raise RuntimeError("broken inside")

    monkeypatch.setattr("resolvers.shared.context.Context.teams", property(fail))
    query = {"query": '{ team(id: "1") { name } }'}
    headers = {"X-Request-Id": "broken-1"}
    async with served.http.post(f"{served.url}/graphql", json=query, headers=headers) as response:
        assert "errors" in await response.json()
    (line,) = [line for line in all_lines.logged if line["level"] == "ERROR"]
    assert line["requestId"] == "broken-1"
    assert "RuntimeError: broken inside" in line["message"]


async def test_a_task_that_outlives_its_request_writes_lines_without_the_id(all_lines: AllLines) -> None:
    identity = RequestIdentity(b"over-1")
    CURRENT.set(identity)
    log, ends = logging.getLogger("of.a.task"), asyncio.Event()

    async def write_twice() -> None:
        log.info("during")
        await ends.wait()
        log.info("after")

    task = asyncio.create_task(write_twice())
    await until(lambda: all_lines.of("of.a.task"))
    identity.is_over = True
    ends.set()
    await task
    during, after = all_lines.of("of.a.task")
    assert during["requestId"] == "over-1"
    assert "requestId" not in after


async def test_operations_of_a_websocket_have_the_id_of_its_handshake(served: Served, all_lines: AllLines) -> None:
    url = served.url.replace("http", "ws") + "/graphql"
    headers = {"X-Request-Id": "socket-1", "traceparent": PARENT}
    async with served.http.ws_connect(url, protocols=["graphql-transport-ws"], headers=headers) as socket:
        assert socket._response.headers["x-request-id"] == "socket-1"
        assert socket._response.headers["traceparent"] == PARENT
        await socket.send_json({"type": "connection_init"})
        await socket.receive_json()
        await socket.send_json({"id": "1", "type": "subscribe", "payload": AREAS})
        assert (await socket.receive_json())["type"] == "next"
        other = PARENT.replace(TRACE, "1" * 32)
        payload = {"query": "subscription { earthquakeDetected { place } }", "extensions": {"traceparent": other}}
        await socket.send_json({"id": "2", "type": "subscribe", "payload": payload})
        await served.settle(EARTHQUAKES)
    await until(lambda: len(all_lines.of(operation_log.LOGGER)) == 2)
    lines = all_lines.of(operation_log.LOGGER)
    assert [(line["requestId"], line["traceId"]) for line in lines] == [("socket-1", TRACE), ("socket-1", "1" * 32)]


async def test_a_refused_handshake_is_logged_with_an_id(served: Served, all_lines: AllLines) -> None:
    url = served.url.replace("http", "ws") + "/graphql"
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await served.http.ws_connect(url, headers={"Origin": "https://other.example"})
    (line,) = all_lines.of(operation_log.REFUSALS)
    assert refused.value.headers is not None
    assert (line["status"], line["requestId"]) == (403, refused.value.headers["x-request-id"])


async def test_pages_of_other_origins_may_send_and_read_the_id(served: Served) -> None:
    preflight = {"Origin": APP, "Access-Control-Request-Method": "POST"}
    async with served.http.options(f"{served.url}/graphql", headers=preflight) as response:
        assert "x-request-id" in response.headers["access-control-allow-headers"].split(", ")
    async with served.http.post(f"{served.url}/graphql", json=AREAS, headers={"Origin": APP}) as response:
        assert "x-request-id" in response.headers["access-control-expose-headers"].split(", ")


async def test_other_servers_return_and_log_the_id(served: Served, all_lines: AllLines) -> None:
    headers = {"X-Request-Id": "elsewhere-1", "traceparent": PARENT}
    async with (
        serving(application(served.gateway), http="h11") as url,
        served.http.post(url, json=AREAS, headers=headers) as response,
    ):
        assert response.headers.getall("x-request-id") == ["elsewhere-1"]
        assert response.headers["traceparent"] == PARENT
    (line,) = all_lines.of(operation_log.LOGGER)
    assert (line["requestId"], line["traceId"]) == ("elsewhere-1", TRACE)
