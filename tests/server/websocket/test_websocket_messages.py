"""Messages of graphql-transport-ws: malformed ones, their sizes, their frames, and pings."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.admission.connection_limits import Connections
from server.admission.settings import unlimited
from server.websocket.messages import ProtocolError, read_message, requested_operation
from server.websocket.transport import SocketLimits
from tests.support.logs import unexpected_errors
from tests.support.toy_sockets import ServedSockets, SocketPeer, serve_websockets, upgrade, world
from tests.support.until import until
from tests.support.websocket import deaf_subscriber


@pytest.fixture
async def server(caplog: pytest.LogCaptureFixture) -> AsyncIterator[ServedSockets]:
    async with serve_websockets() as served:
        yield served
    assert not unexpected_errors(caplog)


@pytest.mark.parametrize(
    "message",
    [
        b"\x00",
        b'{"type": "ping"}',
        "",
        "{",
        "null",
        "[]",
        "1",
        '"ping"',
        "{}",
        '{"type": 1}',
        '{"type": null}',
        '{"type": ["ping"]}',
        '{"type": "nonsense"}',
        '{"type": "next", "id": "1", "payload": {}}',
        '{"type": "connection_ack"}',
        '{"type": "start", "id": "1", "payload": {"query": "{ hello }"}}',
        '{"type": "connection_init", "payload": 1}',
        '{"type": "connection_init", "payload": []}',
        '{"type": "ping", "payload": "x"}',
        '{"type": "pong", "payload": false}',
        '{"type": "complete"}',
        '{"type": "complete", "id": 1}',
        '{"type": "complete", "id": ""}',
        '{"type": "subscribe", "payload": {"query": "{ hello }"}}',
        '{"type": "subscribe", "id": "", "payload": {"query": "{ hello }"}}',
        '{"type": "subscribe", "id": "1"}',
        '{"type": "subscribe", "id": "1", "payload": []}',
        '{"type": "subscribe", "id": "1", "payload": {}}',
        '{"type": "subscribe", "id": "1", "payload": {"query": null}}',
        '{"type": "subscribe", "id": "1", "payload": {"query": ["{ hello }"], "documentId": "a"}}',
        '{"type": "subscribe", "id": "1", "payload": {"documentId": ""}}',
        '{"type": "subscribe", "id": "1", "payload": {"documentId": 1}}',
        '{"type": "subscribe", "id": "%s", "payload": {"query": "{ hello }"}}' % ("x" * 257),
        '{"type": "subscribe", "id": null, "payload": {"query": "{ hello }"}}',
        '{"type": "subscribe", "id": ["1"], "payload": {"query": "{ hello }"}}',
        '{"type": "subscribe", "id": "1", "payload": {"query": "{ hello }", "variables": []}}',
        '{"type": "subscribe", "id": "1", "payload": {"query": "{ hello }", "variables": "{}"}}',
        '{"type": "subscribe", "id": "1", "payload": {"query": "{ hello }", "operationName": 1}}',
        '{"type": "subscribe", "id": "1", "payload": {"query": "{ hello }", "extensions": []}}',
        '{"type": "subscribe", "id": "1", "payload": {"query": "{ hello }", "variables": {"n": NaN}}}',
        '{"type": "subscribe", "id": "1", "payload": {"query": "{ hello }", "variables": {"n": %s}}}' % ("9" * 5000),
        '{"type": "subscribe", "id": "\\ud800", "payload": {"query": "{ hello }"}}',
        '{"type": "ping"}\x00',
        "[" * 50_000,
        '{"type":"ping","payload":' + '{"a":' * 5000 + "1" + "}" * 5001,
    ],
)
async def test_malformed_messages(server: ServedSockets, message: str | bytes) -> None:
    for initialise in (False, True):
        async with server.peer() as connection:
            if initialise:
                await connection.send('{"type": "connection_init"}')
                await connection.recv()
            await connection.send(message)
            code, reason = await SocketPeer(connection).closed()
            assert code == 4400
            assert reason.startswith("Invalid message: ")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)

TYPES = st.sampled_from(["connection_init", "ping", "pong", "subscribe", "complete", "next", ""])

FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "query": JSON | st.just("{ hello }"),
        "variables": JSON,
        "operationName": JSON,
        "extensions": JSON,
        "documentId": JSON,
    },
)

MESSAGES = st.fixed_dictionaries({}, optional={"type": TYPES | JSON, "id": JSON, "payload": FIELDS | JSON})


@given(MESSAGES.map(json.dumps) | JSON.map(json.dumps) | st.text(max_size=40))
def test_a_message_is_well_formed_or_4400(text: str) -> None:
    code = 0
    try:
        message = read_message(text)
        if message.type == "subscribe":
            requested_operation(message)
    except ProtocolError as broken:
        code = broken.close_code.code
    assert code == 4400 or (code == 0 and isinstance(json.loads(text), dict))


async def test_text_that_is_not_utf8(server: ServedSockets) -> None:
    async with server.ready() as peer:
        await peer.connection.send(b"\xff\xfe", text=True)
        assert (await peer.closed())[0] == 1007


async def test_messages_hold_64_kilobytes_however_many_frames_they_come_in(server: ServedSockets) -> None:
    ping = '{"type": "ping", "payload": {"a": "%s"}}'
    largest = ping % ("x" * (65_536 - len(ping) + 2))
    for message in (largest, [largest[:30_000], largest[30_000:]]):
        async with server.ready() as peer:
            await peer.connection.send(message)
            assert (await peer.receive())["type"] == "pong"
    for message in (largest + " ", [largest, " "]):
        async with server.ready() as peer:
            await peer.connection.send(message)
            assert (await peer.closed())[0] == 1009


async def test_a_peer_hears_that_its_message_is_too_large_when_it_has_sent_it(server: ServedSockets) -> None:
    size = 5_000_000
    for _ in range(5):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(upgrade("x"))
        await reader.readuntil(b"\r\n\r\n")
        writer.write(bytes([0x81, 0x80 | 127]) + size.to_bytes(8, "big") + bytes(4) + b"x" * size)
        await writer.drain()
        async with asyncio.timeout(50):
            frame = await reader.read()
        assert (frame[0], frame[2:4]) == (0x88, (1009).to_bytes(2, "big"))
        writer.close()


async def test_a_message_has_a_limit_of_frames(server: ServedSockets) -> None:
    hello = json.dumps({"type": "connection_init"})
    for frames, code in ((1000, None), (1100, 1009)):
        async with server.peer() as connection:
            await connection.send([hello, *[""] * frames])
            if code is None:
                assert json.loads(await connection.recv()) == {"type": "connection_ack"}
            else:
                assert await SocketPeer(connection).closed() == (code, "a message in more than 1,024 frames")


async def test_pings_of_a_peer_that_does_not_read_are_not_all_answered() -> None:
    ping = bytes([0x89, 0x80 | 125, 0, 0, 0, 0]) + bytes(125)
    anything = Connections(unlimited())
    async with (
        serve_websockets(limits=SocketLimits(ping_every=600, send_timeout=600), connections=anything) as server,
        deaf_subscriber(server, "subscription { held }") as ask,
    ):
        for _ in range(60):
            await ask(ping * 1000)
        await ask({"type": "subscribe", "id": "2", "payload": {"query": "subscription { held }"}})
        await until(lambda: world.opened == 2)
        (connection,) = server.uvicorn.server_state.connections
        assert connection.transport.get_write_buffer_size() < 1_000_000


async def test_messages_are_not_compressed(server: ServedSockets) -> None:
    async with server.ready(compression="deflate") as peer:
        assert not peer.connection.protocol.extensions


async def test_malformed_messages_leave_nothing_behind(server: ServedSockets) -> None:
    async def shout(message: str) -> None:
        async with server.peer() as connection:
            await connection.send(message)
            assert (await SocketPeer(connection).closed())[0] == 4400

    async def rounds(count: int) -> None:
        for _ in range(count):
            await asyncio.gather(*[shout(message) for message in ("[" * 65_000, "9" * 65_000, '{"a":' * 13_000)])

    await rounds(10)
    before = resident_pages()
    await rounds(30)
    assert (resident_pages() - before) * os.sysconf("SC_PAGE_SIZE") < 4_000_000


def resident_pages() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1])


async def test_unknown_fields_of_messages_are_ignored(server: ServedSockets) -> None:
    async with server.peer() as connection:
        peer = SocketPeer(connection)
        await peer.send(type="ping", id="1", payload=None)
        assert await peer.receive() == {"type": "pong"}
        await peer.send(type="pong", payload=None)
        await peer.send(type="complete", id="never begun", payload=[1])
        await peer.send(type="connection_init", id=5, payload=None, more={"a": 1})
        assert await peer.receive() == {"type": "connection_ack"}
        payload = {"query": "{ hello }", "variables": None, "operationName": None, "extensions": None, "more": [1]}
        await peer.send(type="subscribe", id="1", payload=payload, more=1)
        assert await peer.next("1") == {"data": {"hello": "world"}}
