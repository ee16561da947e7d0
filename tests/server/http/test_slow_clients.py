"""Connections that are slow, too large or malformed: each ends soon, with a
reason in JSON, and leaves nothing behind.
"""

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from server.admission.connection_limits import PROBES, PROBES_PER_ADDRESS, HttpConnectionLimits
from server.http.protocol import UVICORN_OPTIONS
from server.http.protocol.admitted_connection import PROBE_SECONDS
from server.operations.outcome import MASKED
from tests.support.slow_clients import GET, PATIENT, TIMED, Answers, LoopTime, Running, serve_echo
from tests.support.until import until

UPGRADE = b"Host: here\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
KEY = b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
VERSION = b"Sec-WebSocket-Version: 13\r\n"
HANDSHAKE = UPGRADE + KEY + VERSION


@pytest.fixture
async def timed(caplog: pytest.LogCaptureFixture) -> AsyncIterator[Running]:
    """Run a server whose time the test advances. It must log nothing and keep no connection."""
    async with serve_echo(TIMED, LoopTime()) as running:
        yield running
    assert not [record for record in caplog.get_records("call") if record.levelno >= logging.WARNING]


@pytest.fixture
async def patient(caplog: pytest.LogCaptureFixture) -> AsyncIterator[Running]:
    """The same with the world's time, and much of it."""
    async with serve_echo(PATIENT) as running:
        yield running
    assert not [record for record in caplog.get_records("call") if record.levelno >= logging.WARNING]


# --- Heads ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "status", "says"),
    [
        ([b"GET / HTTP/1.1\r\nHost: here\r\nX: ", b"x" * 2000, b"\r\n\r\n"], 431, "headers of a request"),
        ([b"GET / HTTP/1.1\r\nHost: here\r\nX: ", b"x" * 5000], 431, "headers of a request"),
        ([b"GET / HTTP/1.1\r\n", b"X: y\r\n" * 21, b"\r\n"], 431, "at most 20 headers"),
        ([b"GET /", b"x" * 2000, b" HTTP/1.1\r\n\r\n"], 414, "use POST"),
        ([b"GET /", b"x" * 5000], 414, "use POST"),
        ([b"GET /", b"x" * 1200, b" HTTP/1.1\r\nX: ", b"x" * 900, b"\r\n\r\n"], 414, "use POST"),
        ([b"\r\n" * 2000], 431, "headers of a request"),
    ],
)
async def test_heads_that_are_too_large(sent: list[bytes], status: int, says: str) -> None:
    async with serve_echo(HttpConnectionLimits(head_bytes=2000, head_lines=20, linger_seconds=5)) as running:
        found = (await running.exchange(*sent)).error
        assert found[:2] == (status, "BAD_USER_INPUT")
        assert says in found[2]
        assert not running.app.asked


async def test_a_head_within_the_limits_may_come_in_pieces(timed: Running) -> None:
    async with timed.client() as (reader, writer):
        come = 0
        for part in (b"GET /a HT", b"TP/1.1\r\nHo", b"st: here\r\nX: " + b"x" * 1900, b"\r\n\r"):
            writer.write(part)
            come += len(part)
            await timed.heard(come)
        writer.write(b"\n")
        assert (await reader.readuntil(b"/a")).startswith(b"HTTP/1.1 200 OK\r\n")


async def test_a_head_has_to_arrive_in_time_however_it_is_dribbled(timed: Running) -> None:
    assert timed.time is not None
    begun = b"GET / HTTP/1.1\r\nHost: here\r\nX: "
    async with timed.client(begun) as (reader, writer):
        for second in range(10):
            await timed.heard(len(begun) + second)
            timed.time.passes(1)
            writer.write(b"x")
        answer = Answers(await reader.read())
    assert answer.error == (408, "TIMEOUT", "The request's headers did not arrive within 10 seconds.")


async def test_a_silent_client_is_disconnected(timed: Running) -> None:
    assert timed.time is not None
    async with timed.client() as (reader, _):
        await timed.heard(0)
        timed.time.passes(10)
        assert await reader.read() == b""


async def test_empty_lines_do_not_keep_a_connection(timed: Running) -> None:
    assert timed.time is not None
    async with timed.client(GET % b"a") as (reader, writer):
        await reader.readuntil(b"/a")
        protocol = await timed.heard(0)
        writer.write(b"\r\n")
        await until(lambda: protocol._head_bytes == 2)
        timed.time.passes(10)
        assert Answers(await reader.read()).error[:2] == (408, "TIMEOUT")


async def test_a_connection_that_was_used_may_idle_longer_than_a_head_may_take(timed: Running) -> None:
    assert timed.time is not None
    async with timed.client(GET % b"a") as (reader, writer):
        await reader.readuntil(b"/a")
        timed.time.passes(20)
        writer.write(GET % b"b")
        await reader.readuntil(b"/b")


async def test_a_connection_is_closed_when_it_was_idle_for_long_and_not_while_it_is_used(timed: Running) -> None:
    assert timed.time is not None
    long = UVICORN_OPTIONS["timeout_keep_alive"]
    async with timed.client() as (reader, writer):
        for _ in range(4):
            writer.write(GET % b"a")
            await reader.readuntil(b"/a")
            timed.time.passes(long * 0.9)
        timed.time.passes(long * 0.1)
        async with asyncio.timeout(50):
            assert await reader.read() == b""


# --- Malformed --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent",
    [
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: here\r\nno colon\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: here\r\nX: a\x00b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: here\r\nX : a\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: here\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nHost: here\r\n\r\n",
        b"POST /body HTTP/1.1\r\nHost: here\r\nContent-Length: -1\r\n\r\n",
        b"POST /body HTTP/1.1\r\nHost: here\r\nContent-Length: 1x\r\n\r\nab",
        b"POST /body HTTP/1.1\r\nHost: here\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST /body HTTP/1.1\r\nHost: here\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /body HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
        b"POST /body HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        b"POST /body HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n\r\n",
        b"POST /body HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n\r\n",
        b"POST /body HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
        b"POST /body HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n",
    ],
)
async def test_malformed_requests(patient: Running, sent: bytes) -> None:
    answers = await patient.exchange(sent)
    assert answers.error[:2] == (400, "BAD_USER_INPUT")
    assert not [path for path in patient.app.asked if path != "/body"]


async def test_nonsense_after_a_request_does_not_get_its_answer(patient: Running) -> None:
    answers = await patient.exchange(GET % b"a", b"nonsense\r\n\r\n")
    assert (answers.statuses, answers.bodies) == ([200], [b"/a"])


async def test_an_upgrade_to_an_unknown_protocol_is_ignored(patient: Running) -> None:
    head = b"POST /body HTTP/1.1\r\nHost: here\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    head += b"Content-Length: 2\r\n\r\n"
    async with patient.client(GET % b"a", head, b"h") as (reader, writer):
        await reader.readuntil(b"/a")
        writer.write(b"i" + GET % b"b")
        answers = Answers(await reader.readuntil(b"/b"))
    assert answers.bodies == [b"hi", b"/b"]


async def test_many_such_upgrades_are_refused_as_other_requests_are(
    patient: Running, caplog: pytest.LogCaptureFixture
) -> None:
    wish = b"GET /%s HTTP/1.1\r\nHost: here\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n"
    answers = await patient.exchange(*[wish % b"a"] * 30)
    assert len(answers.statuses) <= PATIENT.pipelined + 1
    assert {*answers.statuses} == {200}
    answers = await patient.exchange(wish % b"a" + GET % (b"x" * 40_000))
    assert answers.statuses == [200]
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize(
    ("head", "status", "says"),
    [
        (b"HTTP/1.1\r\n", 400, "one header Host"),
        (b"HTTP/1.1\r\nHost: here\r\nHost: there\r\n", 400, "one header Host"),
        (b"HTTP/1.0\r\nHost: here\r\nHost: there\r\n", 400, "one header Host"),
        (b"HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: gzip, chunked\r\n", 501, "only Transfer-Encoding"),
        (b"HTTP/1.0\r\nTransfer-Encoding: chunked\r\n", 400, "send Content-Length"),
        (b"HTTP/2.0\r\nHost: here\r\n", 505, "supports HTTP/1.1"),
        (b"HTTP/0.9\r\nHost: here\r\n", 505, "supports HTTP/1.1"),
        (b"HTTP/1.1\r\n" + HANDSHAKE + b"Content-Length: 2\r\n", 400, "has no body"),
        (b"HTTP/1.1\r\n" + HANDSHAKE + b"Transfer-Encoding: chunked\r\n", 400, "has no body"),
    ],
)
async def test_the_end_and_the_host_of_a_request_must_be_unambiguous(
    patient: Running, head: bytes, status: int, says: str
) -> None:
    found = (await patient.exchange(b"GET /body " + head + b"\r\n", b"2\r\nhi\r\n0\r\n\r\n")).error
    assert found[:2] == (status, "BAD_USER_INPUT")
    assert says in found[2]
    assert not patient.app.asked


@pytest.mark.parametrize("path", [b"broken", b"silent"])
async def test_an_internal_failure_is_masked(patient: Running, path: bytes, caplog: pytest.LogCaptureFixture) -> None:
    answers = await patient.exchange(GET % path + GET % b"a")
    assert answers.error == (500, "INTERNAL", MASKED)
    assert b"swordfish" not in answers.bodies[0]
    assert "x-content-type-options: nosniff" in answers.heads[0]
    assert patient.app.asked == [f"/{path.decode()}"]
    assert "Traceback" in caplog.text or "without completing its response" in caplog.text
    caplog.clear()  # beside this nothing is to be logged


async def test_older_versions_need_no_host(patient: Running) -> None:
    assert (await patient.exchange(b"GET /a HTTP/1.0\r\n\r\n")).bodies == [b"/a"]


# --- Bodies -----------------------------------------------------------------------------------------------------------


async def test_a_body_that_stops_coming(timed: Running) -> None:
    assert timed.time is not None
    head = b"POST /body HTTP/1.1\r\nHost: here\r\nContent-Length: 100\r\n\r\n"
    async with timed.client(head, b"x" * 50) as (reader, _):
        await until(lambda: timed.app.asked == ["/body"])
        timed.time.passes(10)
        assert Answers(await reader.read()).error[:2] == (408, "TIMEOUT")
    await until(lambda: timed.app.left == ["/body"])


async def test_a_body_may_take_its_time_while_it_comes(timed: Running) -> None:
    time = timed.time
    assert time is not None
    async with timed.client(b"POST /body HTTP/1.1\r\nHost: here\r\nContent-Length: 10\r\n\r\n") as (reader, writer):
        await until(lambda: timed.app.asked == ["/body"])
        protocol = await timed.heard(0)
        for _ in range(10):
            time.passes(9)
            writer.write(b"x")
            await until(lambda: protocol._last_received_at == time.time())
        assert (await reader.readuntil(b"x" * 10)).startswith(b"HTTP/1.1 200")


async def test_a_client_that_expects_100_continue(patient: Running) -> None:
    head = b"POST /%s HTTP/1.1\r\nHost: here\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    async with patient.client(head % b"body") as (reader, writer):
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"hi")
        assert (await reader.readuntil(b"hi")).startswith(b"HTTP/1.1 200")
    assert (await patient.exchange(head % b"early")).statuses == [200]


async def test_an_answer_that_does_not_wait_for_the_body_arrives(patient: Running) -> None:
    size = 5_000_000
    answers = await patient.exchange(
        b"POST /early HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n" % size, b"x" * size
    )
    assert (answers.statuses, answers.bodies) == ([200], [b"early"])


# --- Answers ----------------------------------------------------------------------------------------------------------


async def test_requests_on_one_connection_are_answered_in_their_order(patient: Running) -> None:
    async with patient.client(GET % b"wait", GET % b"b", GET % b"c") as (reader, _):
        await until(lambda: patient.app.asked == ["/wait"])
        patient.app.go.set()
        answers = Answers(await reader.readuntil(b"/c"))
    assert answers.bodies == [b"/wait", b"/b", b"/c"]


async def test_too_many_requests_on_one_connection_are_not_kept() -> None:
    requests = [GET % b"wait", *[GET % b"%d" % number for number in range(50)]]
    async with (
        serve_echo(HttpConnectionLimits(pipelined=4, linger_seconds=5)) as toy,
        toy.client(*requests) as (reader, _),
    ):
        await until(lambda: toy.app.asked == ["/wait"])
        toy.app.go.set()
        answers = Answers(await reader.read())
    assert answers.bodies == [b"/wait", b"/0", b"/1", b"/2", b"/3"]
    assert "connection: close" in answers.heads[-1]


@asynccontextmanager
async def deaf_connection(toy: Running, sent: bytes) -> AsyncIterator[socket.socket]:
    """A client that does not read."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(client, ("127.0.0.1", toy.port))
        await loop.sock_sendall(client, sent)
        yield client


@pytest.mark.parametrize("more", [b"", b"Connection: close\r\n"])
async def test_a_client_that_does_not_read_is_disconnected(timed: Running, more: bytes) -> None:
    async with deaf_connection(timed, b"GET /large HTTP/1.1\r\nHost: here\r\n" + more + b"\r\n"):
        await until(lambda: timed.app.asked == ["/large"])
        await timed.empty()


async def test_a_slow_reader_gets_everything(timed: Running) -> None:
    assert timed.time is not None
    size, got = 20_000_000, 0
    async with timed.client(GET % b"large") as (reader, _):
        head = await reader.readuntil(b"\r\n\r\n")
        transport = (await timed.heard(0)).transport
        while got < size:
            unread = transport.get_write_buffer_size()
            got += len(await reader.read(1_000_000))
            if unread and unread - transport.get_write_buffer_size() >= TIMED.least_bytes:
                timed.time.passes(10)
    assert b"20000000" in head


# --- How many ---------------------------------------------------------------------------------------------------------


async def test_an_address_has_a_limit_of_connections() -> None:
    async with serve_echo(PATIENT, connections_per_address=2) as toy, toy.client(GET % b"a") as (reader, _):
        await reader.readuntil(b"/a")
        async with toy.client():
            await until(lambda: toy.connections.open == 2)
            answers = await toy.exchange(GET % b"c")
            assert answers.error[:2] == (429, "THROTTLED")
            assert "retry-after: 5" in answers.heads[0]
        await until(lambda: toy.connections.open == 1)
        async with toy.client(GET % b"d") as (again, _):
            await again.readuntil(b"/d")


@pytest.mark.parametrize("limits", [{"connections_per_address": 1}, {"connections": 1}])
@pytest.mark.parametrize("path", [b"healthz", b"readyz"])
async def test_health_is_answered_beyond_every_limit_of_connections(limits: Any, path: bytes) -> None:
    async with serve_echo(PATIENT, **limits) as toy, toy.client(GET % b"wait"):
        await until(lambda: toy.app.asked == ["/wait"])
        for _ in range(PROBES + 1):
            answers = await toy.exchange(GET % path, GET % path)
            assert (answers.statuses, answers.bodies) == ([200], [b"/" + path])
            assert "connection: close" in answers.heads[0]
        for other in (GET % b"graphql", b"POST /readyz HTTP/1.1\r\nHost: here\r\nContent-Length: 0\r\n\r\n"):
            assert (await toy.exchange(other)).statuses == [429 if "connections_per_address" in limits else 503]
        assert toy.connections.open == 1


async def test_connections_beyond_the_limit_that_send_nothing_are_refused_and_limited() -> None:
    time = LoopTime()
    async with serve_echo(TIMED, time, connections_per_address=1) as toy, toy.client(GET % b"wait"):
        await until(lambda: toy.app.asked == ["/wait"])
        async with AsyncExitStack() as stack:
            silent = [await stack.enter_async_context(toy.client()) for _ in range(PROBES_PER_ADDRESS)]
            await until(lambda: len(toy.server.server_state.connections) == PROBES_PER_ADDRESS + 1)
            beyond, _ = await stack.enter_async_context(toy.client())
            assert (await beyond.read()).startswith(b"HTTP/1.1 429 ")
            time.passes(PROBE_SECONDS)
            for reader, _ in silent:
                assert (await reader.read()).startswith(b"HTTP/1.1 429 ")
        await until(lambda: len(toy.server.server_state.connections) == 1)
        assert (await toy.exchange(GET % b"readyz")).statuses == [200]


async def test_the_process_has_a_limit_of_connections_including_sockets() -> None:
    upgrade = b"GET / HTTP/1.1\r\nHost: here\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    upgrade += b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    async with serve_echo(PATIENT, connections=1) as toy:
        async with toy.client(upgrade) as (reader, _):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
            assert (await toy.exchange(GET % b"b")).error[:2] == (503, "UNAVAILABLE")
        await toy.empty()
        async with toy.client(GET % b"c") as (reader, _):
            await reader.readuntil(b"/c")


async def test_a_proxy_has_any_number() -> None:
    app_options: Any = {"trusted_proxies": ("127.0.0.0/8",)}
    async with serve_echo(PATIENT, connections_per_address=1, **app_options) as toy:  # noqa: SIM117
        async with toy.client(GET % b"a") as (one, _), toy.client(GET % b"b") as (two, _):
            await one.readuntil(b"/a")
            await two.readuntil(b"/b")


# --- Opening handshakes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET / HTTP/1.1\r\n" + UPGRADE + KEY, 400),
        (b"GET / HTTP/1.1\r\n" + UPGRADE + KEY + b"Sec-WebSocket-Version: 8\r\n", 400),
        (b"GET / HTTP/1.1\r\n" + UPGRADE + VERSION, 400),
        (b"GET / HTTP/1.1\r\n" + UPGRADE + VERSION + b"Sec-WebSocket-Key: x\r\n", 400),
        (b"POST / HTTP/1.1\r\n" + UPGRADE + VERSION + KEY, 405),
        (b"GET / HTTP/1.1\r\n" + UPGRADE + VERSION + KEY + b"Cookie: " + b"x" * 9000 + b"\r\n", 431),
        (b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\n" + UPGRADE + VERSION + KEY, 414),
    ],
)
async def test_handshakes_that_fail(patient: Running, head: bytes, status: int) -> None:
    async with patient.client(head, b"\r\n") as (reader, _), asyncio.timeout(50):
        raw = await reader.read()
    answers = Answers(raw.replace(b"Content-Length", b"content-length"))
    [payload] = json.loads(answers.bodies[0])["errors"]
    assert (answers.statuses, payload["extensions"]["code"]) == ([status], "BAD_USER_INPUT")
    assert "Content-Type: application/json; charset=utf-8" in answers.heads[0]


async def test_a_handshake_on_a_connection_that_has_an_answer_to_come(patient: Running) -> None:
    upgrade = b"GET / HTTP/1.1\r\n" + UPGRADE + VERSION + KEY + b"\r\n"
    async with patient.client(GET % b"wait", upgrade) as (reader, _):
        await until(lambda: patient.app.asked == ["/wait"])
        patient.app.go.set()
        answers = Answers(await reader.read())
    assert (answers.statuses, answers.bodies) == ([200], [b"/wait"])


async def test_a_handshake_on_a_connection_with_an_unread_response(patient: Running) -> None:
    async with patient.client(GET % b"large") as (reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        writer.write(b"GET / HTTP/1.1\r\n" + HANDSHAKE + b"\r\n")
        await asyncio.sleep(0.05)
        answers = Answers(head + await reader.read())
    assert answers.statuses == [200, 400]


@pytest.mark.parametrize("goodbye", [b"\x88\x80\0\0\0\0", b"", None])
async def test_a_socket_of_uvicorns_that_is_not_read_is_dropped(
    patient: Running, goodbye: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is closed with more to be read than there is room for, by both or (None) by the server alone."""
    monkeypatch.setattr("server.websocket.protocol.CLOSE_SECONDS", 0.1 if goodbye is not None else 60)
    monkeypatch.setattr("server.websocket.protocol.CLOSE_REPLY_SECONDS", 0.1)
    async with deaf_connection(patient, b"GET /large HTTP/1.1\r\n" + HANDSHAKE + b"\r\n") as client:
        await asyncio.sleep(0.05)
        if goodbye:
            await asyncio.get_running_loop().sock_sendall(client, goodbye)
        elif goodbye == b"":
            client.shutdown(socket.SHUT_WR)
        else:
            for connection in tuple(patient.server.server_state.connections):
                connection.shutdown()
        await patient.empty()
