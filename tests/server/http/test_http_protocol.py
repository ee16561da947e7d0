"""The HTTP/1.1 protocol against hostile input: each request ends, is bounded, and means what its head says."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from server.admission.connection_limits import HttpConnectionLimits
from tests.support.slow_clients import (
    GET,
    PATIENT,
    TIMED,
    Answers,
    EchoApplication,
    LoopTime,
    Running,
    respond,
    serve_echo,
)
from tests.support.until import until

HOST = b"Host: here\r\n"
CHUNKED = b"POST /body HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n"


class HeaderRecorder(EchoApplication):
    """Keeps the scope's headers as they were when the request began and when its response was sent."""

    def __init__(self) -> None:
        super().__init__()
        self.scopes: list[Scope] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self.scopes.append(scope)
        if scope["path"] == "/stream":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"begun", "more_body": True})
            await self.go.wait()
            await send({"type": "http.response.body", "body": b"ended"})
            return
        await super().__call__(scope, receive, send)


@pytest.fixture
async def server(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    monkeypatch.setattr("tests.support.slow_clients.EchoApplication", HeaderRecorder)
    async with serve_echo(PATIENT) as running:
        yield running


@pytest.fixture
async def timed(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Running]:
    monkeypatch.setattr("tests.support.slow_clients.EchoApplication", HeaderRecorder)
    async with serve_echo(TIMED, LoopTime()) as running:
        yield running


def scopes(server: Running) -> list[Scope]:
    app: Any = server.app
    found: list[Scope] = app.scopes
    return found


# --- Methods ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [b"/", b"/x", b"here:80", b"http://here/graphql", b"*"])
@pytest.mark.parametrize("more", [b"", b"Upgrade: websocket\r\nConnection: Upgrade\r\n", b"Content-Length: 2\r\n"])
async def test_connect_is_refused_and_ends_the_connection(server: Running, target: bytes, more: bytes) -> None:
    answers = await server.exchange(b"CONNECT %b HTTP/1.1\r\n" % target + HOST + more + b"\r\n")

    assert answers.error[:2] == (405, "BAD_USER_INPUT")
    assert "allow: GET, HEAD, OPTIONS, POST" in answers.heads[0]
    assert not server.app.asked


async def test_connect_behind_other_requests_ends_the_connection_after_their_responses(server: Running) -> None:
    answers = await server.exchange(GET % b"a", b"CONNECT / HTTP/1.1\r\n" + HOST + b"\r\n", GET % b"b")

    assert answers.bodies == [b"/a"]
    assert server.app.asked == ["/a"]


async def test_the_server_answers_others_after_connect(server: Running) -> None:
    for _ in range(4):
        await server.exchange(b"CONNECT / HTTP/1.1\r\n" + HOST + b"\r\n")
    async with server.client(GET % b"a") as (reader, _):
        assert (await reader.readuntil(b"/a")).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("method", [b"FOO", b"GETS", b"X", b"G", b"BREW"])
@pytest.mark.parametrize("at", [1, 2, 20])
async def test_an_unknown_method_is_refused_however_it_arrives(server: Running, method: bytes, at: int) -> None:
    head = method + b" /a HTTP/1.1\r\n" + HOST + b"\r\n"
    async with server.client(head[:at]) as (reader, writer), asyncio.timeout(50):
        await asyncio.sleep(0.01)
        writer.write(head[at:])
        answers = Answers(await reader.read())

    assert answers.error[:2] == (405, "BAD_USER_INPUT")


@pytest.mark.parametrize("method", [b"PUT", b"DELETE", b"PATCH", b"TRACE", b"PROPFIND"])
async def test_other_methods_are_refused_and_leave_the_connection_open(server: Running, method: bytes) -> None:
    async with server.client(method + b" /a HTTP/1.1\r\nHost: here\r\nContent-Length: 2\r\n\r\nhi") as (reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split()[0])
        error = json.loads(await reader.readexactly(length))
        writer.write(GET % b"b")
        await reader.readuntil(b"/b")

    assert head.startswith(b"HTTP/1.1 405 ")
    assert b"allow: GET, HEAD, OPTIONS, POST\r\n" in head
    assert b"x-content-type-options: nosniff\r\n" in head
    assert error["errors"][0]["extensions"]["code"] == "BAD_USER_INPUT"
    assert server.app.asked == ["/b"]


# --- Trailers ---------------------------------------------------------------------------------------------------------


async def test_trailers_are_discarded(server: Running) -> None:
    trailers = b"Authorization: Bearer t\r\nX-Forwarded-For: 1.1.1.1\r\nContent-Type: text/plain\r\nAccept: x/y\r\n"
    async with server.client(CHUNKED + b"\r\n2\r\nhi\r\n0\r\n" + trailers + b"\r\n" + GET % b"b") as (reader, _):
        answers = Answers(await reader.readuntil(b"/b"))

    assert answers.bodies == [b"hi", b"/b"]
    assert [scope["headers"] for scope in scopes(server)] == [
        [(b"host", b"here"), (b"transfer-encoding", b"chunked")],
        [(b"host", b"here")],
    ]


@pytest.mark.parametrize(
    "trailers",
    [
        b"a: b\r\n" * 101 + b"\r\n",
        b"a: " + b"b" * 9000 + b"\r\n\r\n",
        b"a" * 9000 + b": b\r\n\r\n",
        b"".join(b"a%d: %b\r\n" % (number, b"b" * 1000) for number in range(10)) + b"\r\n",
    ],
)
@pytest.mark.parametrize("size", [100_000, 700, 7])
async def test_trailers_are_bounded(server: Running, trailers: bytes, size: int) -> None:
    sent = CHUNKED + b"\r\n2\r\nhi\r\n0\r\n" + trailers
    async with server.client() as (reader, writer), asyncio.timeout(50):
        for at in range(0, len(sent), size):
            writer.write(sent[at : at + size])
            await asyncio.sleep(0)
        answers = Answers(await reader.read())

    assert answers.error[:2] == (431, "BAD_USER_INPUT")
    await until(lambda: server.app.left == ["/body"])


async def test_chunk_extensions_are_bounded(server: Running) -> None:
    async with server.client(CHUNKED + b"\r\n2;") as (reader, writer), asyncio.timeout(50):
        await until(lambda: server.app.asked == ["/body"])
        writer.write(b"x" * 9000)
        answers = Answers(await reader.read())
    assert answers.error[:2] == (431, "BAD_USER_INPUT")


async def test_small_chunks_are_read(server: Running) -> None:
    content = b"".join(b"1;some=extension\r\n%c\r\n" % number for number in range(65, 91)) * 1000
    async with server.client(CHUNKED + b"\r\n" + content + b"0\r\n\r\n") as (reader, _), asyncio.timeout(50):
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"content-length: 26000" in head
        assert await reader.readexactly(26) == bytes(range(65, 91))


async def test_a_stream_with_an_endless_request_is_ended(server: Running) -> None:
    """An endless trailer section took memory without bound while the response was a stream."""
    head = b"GET /stream HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
    async with server.client(head) as (reader, writer), asyncio.timeout(50):
        await reader.readuntil(b"begun")
        protocol: Any = next(iter(server.server.server_state.connections))
        with pytest.raises(ConnectionError):  # noqa: PT012 - which write fails depends on the system's buffers
            for number in range(10_000):
                writer.write(b"a%d: %b\r\n" % (number, b"b" * 100))
                await writer.drain()
                await asyncio.sleep(0)
        assert protocol._headers == []
    await until(lambda: not server.server.server_state.connections)
    server.app.go.set()


# --- Targets, versions, upgrades --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        (b"http://here/a", b"here", 200),
        (b"http://HERE/a", b"here", 200),
        (b"http://here:80/a", b"here:80", 200),
        (b"http://here/a", b"there", 400),
        (b"http://localhost/a", b"evil.example", 400),
        (b"http://user@here/a", b"here", 400),
        (b"*", b"here", 400),
        (b"here:80", b"here:80", 400),
    ],
)
async def test_an_absolute_target_names_the_host_of_the_request(
    server: Running, target: bytes, host: bytes, status: int
) -> None:
    answers = await server.exchange(b"GET %b HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n\r\n" % (target, host))

    assert answers.statuses == [status]
    assert server.app.asked == (["/a"] if status == 200 else [])
    for scope in scopes(server):
        assert dict(scope["headers"])[b"host"] == host


@pytest.mark.parametrize("protocol", [b"x", b"websocket", b"h2c"])
async def test_http_1_0_has_no_upgrade(server: Running, protocol: bytes) -> None:
    answers = await server.exchange(
        b"GET /a HTTP/1.0\r\nHost: here\r\nConnection: Upgrade\r\nUpgrade: %b\r\n\r\n" % protocol
    )

    assert answers.bodies == [b"/a"]
    assert scopes(server)[0]["http_version"] == "1.0"


async def test_a_trailer_does_not_end_the_connection(server: Running) -> None:
    sent = CHUNKED + b"\r\n2\r\nhi\r\n0\r\nConnection: close\r\n\r\n"
    async with server.client(sent + GET % b"b") as (reader, _), asyncio.timeout(50):
        assert Answers(await reader.readuntil(b"/b")).bodies == [b"hi", b"/b"]


async def test_an_ignored_upgrade_keeps_the_other_connection_options(server: Running) -> None:
    sent = b"GET /a HTTP/1.1\r\nHost: here\r\nConnection: Upgrade, close\r\nUpgrade: h2c\r\n\r\n"
    answers = await server.exchange(sent, GET % b"b")

    assert answers.bodies == [b"/a"]
    headers = [(b"host", b"here"), (b"connection", b"Upgrade, close"), (b"upgrade", b"h2c")]
    assert scopes(server)[0]["headers"] == headers


async def test_pipelined_upgrades_that_are_ignored_are_requests_of_their_own(server: Running) -> None:
    one = b"POST /body HTTP/1.1\r\nHost: here\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 1\r\n\r\n%d"
    async with server.client(b"".join(one % number for number in range(8))) as (reader, _), asyncio.timeout(50):
        answers = Answers(await reader.readuntil(b"\r\n\r\n7"))

    assert answers.bodies == [b"%d" % number for number in range(8)]


# --- After the last request -------------------------------------------------------------------------------------------


async def test_nothing_is_read_behind_the_last_request(server: Running) -> None:
    answers = await server.exchange(b"GET /a HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n", GET % b"b")

    assert (answers.bodies, server.app.asked) == ([b"/a"], ["/a"])


async def test_input_behind_the_last_request_is_bounded(timed: Running) -> None:
    sent = b"GET /wait HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n"
    async with timed.client(sent) as (reader, writer):
        await until(lambda: timed.app.asked == ["/wait"])
        with pytest.raises(ConnectionError):  # noqa: PT012 - which write fails depends on the system's buffers
            for _ in range(1000):
                writer.write(b"x" * 10_000)
                await writer.drain()
            await reader.read()
    timed.app.go.set()


async def test_a_client_that_read_the_last_response_slowly_and_stays_is_dropped(timed: Running) -> None:
    assert timed.time is not None
    sent = b"GET /large HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n"
    async with timed.client(sent) as (reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        transport: Any = next(iter(timed.server.server_state.connections)).transport
        unread = transport.get_write_buffer_size()
        await reader.readexactly(1_000_000)
        await until(lambda: transport.get_write_buffer_size() < unread)
        timed.time.passes(TIMED.linger_seconds)
        await reader.readexactly(19_000_000)
        await until(lambda: not transport.get_write_buffer_size())
        await timed.empty()
        writer.close()


@pytest.mark.parametrize("path", [b"wait", b"stream"])
async def test_a_response_is_delivered_before_the_connection_is_closed_for_a_late_error(
    server: Running, path: bytes
) -> None:
    async with server.client(GET % path, b"nonsense\r\n\r\n") as (reader, _), asyncio.timeout(50):
        await until(lambda: len(scopes(server)) == 1)
        server.app.go.set()
        received = await reader.read()

    assert received.count(b"HTTP/1.1 200 OK") == 1
    assert received.endswith(b"/wait" if path == b"wait" else b"ended\r\n0\r\n\r\n")


async def test_a_request_may_be_answered_before_its_content_arrives(server: Running) -> None:
    """The content is not read as another request."""
    head = b"POST /early HTTP/1.1\r\nHost: here\r\nContent-Length: 100\r\n\r\n"
    answers = await server.exchange(head, GET % b"b")

    assert (answers.bodies, server.app.asked) == ([b"early"], ["/early"])


async def test_limits_are_read_from_the_connections_of_the_process() -> None:
    async with serve_echo(HttpConnectionLimits(trailer_bytes=10, linger_seconds=5)) as running:
        answers = await running.exchange(CHUNKED + b"\r\n0\r\na: b\r\nc: d\r\n\r\n")
    assert answers.error[0] == 431


async def test_headers_of_a_response_are_validated(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    async def split(self: EchoApplication, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"x-echo", b"a\r\nset-cookie: b")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await respond(send, b"")

    monkeypatch.setattr(HeaderRecorder, "__call__", split)
    assert (await server.exchange(GET % b"a")).error[:2] == (500, "INTERNAL")


# --- Repeated heads ---------------------------------------------------------------------------------------------------

REPEATED = b"POST /body HTTP/1.1\r\nHost: here\r\nContent-Length: 3\r\nX-Case: kept \r\n\r\n"


async def answers_in_turn(server: Running, *requests: tuple[bytes, ...]) -> list[bytes]:
    """Send each request in the given pieces after the response to the previous one. Return the bodies."""
    bodies = []
    async with server.client() as (reader, writer), asyncio.timeout(50):
        for pieces in requests:
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.01)
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
            bodies.append(await reader.readexactly(length))
    return bodies


async def test_a_request_with_the_head_of_the_one_before_has_its_own_content(server: Running) -> None:
    bodies = await answers_in_turn(server, *[(REPEATED + content,) for content in (b"one", b"two", b"\r\n\r", b"six")])

    assert bodies == [b"one", b"two", b"\r\n\r", b"six"]
    first, *others = scopes(server)
    assert all(other["headers"] == first["headers"] for other in others)
    assert all(other["headers"] is not first["headers"] for other in others)  # an application may change its own


async def test_other_requests_may_lie_between_equal_heads(server: Running) -> None:
    whole, other = (REPEATED + b"one",), (REPEATED.replace(b"kept", b"other") + b"two",)
    in_pieces, get = (REPEATED, b"t", b"en"), (GET % b"a",)

    bodies = await answers_in_turn(server, whole, in_pieces, whole, get, get, whole, other, whole)

    assert bodies == [b"one", b"ten", b"one", b"/a", b"/a", b"one", b"two", b"one"]
    assert [dict(scope["headers"]).get(b"x-case") for scope in scopes(server)] == [
        *([b"kept"] * 3),
        *([None] * 2),
        *(b"kept", b"other", b"kept"),
    ]


async def test_requests_may_be_pipelined_behind_a_repeated_head(server: Running) -> None:
    async with server.client(REPEATED + b"one") as (reader, writer), asyncio.timeout(50):
        await reader.readuntil(b"one")
        writer.write(REPEATED + b"two" + REPEATED + b"six" + GET % b"a" + REPEATED[:20])
        await reader.readuntil(b"/a")
        writer.write(REPEATED[20:] + b"ten")
        await reader.readuntil(b"ten")

    assert server.app.asked == ["/body", "/body", "/body", "/a", "/body"]


async def test_a_repeated_head_before_the_response_waits_for_its_turn(server: Running) -> None:
    async with server.client(GET % b"b") as (reader, writer), asyncio.timeout(50):
        await reader.readuntil(b"/b")
        writer.write(GET % b"wait")
        await until(lambda: "/wait" in server.app.asked)
        writer.write(GET % b"wait")
        await asyncio.sleep(0.01)
        assert server.app.asked == ["/b", "/wait"]
        server.app.go.set()
        await reader.readuntil(b"/wait")
        await reader.readuntil(b"/wait")

    assert server.app.asked == ["/b", "/wait", "/wait"]


async def test_a_repeated_head_of_the_last_request_ends_the_connection(server: Running) -> None:
    head = b"GET /a HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n"
    answers = await server.exchange(head, head)

    assert (answers.bodies, server.app.asked) == ([b"/a"], ["/a"])


async def test_a_declared_length_may_have_more_digits_than_an_int_is_read_from(server: Running) -> None:
    head = REPEATED.replace(b"Length: 3", b"Length: " + b"0" * 5_000 + b"3")

    assert await answers_in_turn(server, (head + b"one",), (head + b"two",)) == [b"one", b"two"]
