"""WebSockets on another server, which passes messages by ASGI only."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from server import asgi
from server.websocket.protocol import UVICORN_WS_OPTIONS
from server.websocket.transport import TAKE_OVER, SocketLimits
from tests.support.logs import unexpected_errors
from tests.support.toy_sockets import IMPATIENT, ServedSockets, SocketPeer, serve_websockets, world
from tests.support.until import until
from tests.support.websocket import deaf_subscriber

ELSEWHERE = {**UVICORN_WS_OPTIONS, "ws": "websockets-sansio"}


@pytest.fixture
async def server(caplog: pytest.LogCaptureFixture) -> AsyncIterator[ServedSockets]:
    async with serve_websockets(server_options=ELSEWHERE) as served:
        yield served
    assert not unexpected_errors(caplog)


async def test_operations(server: ServedSockets) -> None:
    async with server.ready({"Authorization": "Bearer ann"}) as peer:
        await peer.subscribe("1", "{ me }")
        assert await peer.next("1") == {"data": {"me": "ann"}}
        assert await peer.receive() == {"type": "complete", "id": "1"}
        await peer.subscribe("1", "subscription { count(to: 40) }")
        assert [(await peer.next("1"))["data"]["count"] for _ in range(40)] == list(range(40))
        assert (await peer.receive())["type"] == "complete"
        await peer.subscribe("1", "{ nope }")
        assert (await peer.receive())["type"] == "error"
        await peer.send(type="ping", payload={"a": 1})
        assert await peer.receive() == {"type": "pong", "payload": {"a": 1}}


@pytest.mark.parametrize("message", [b"\x00", "{"])
async def test_malformed_messages(server: ServedSockets, message: Any) -> None:
    async with server.ready() as peer:
        await peer.connection.send(message)
        assert (await peer.closed())[0] == 4400


async def test_how_a_socket_ends(server: ServedSockets) -> None:
    hasty = replace(IMPATIENT, init_timeout=0.2)
    async with serve_websockets(server_options=ELSEWHERE, limits=hasty) as other, other.peer() as connection:
        assert await SocketPeer(connection).closed() == (4408, "Connection initialisation timeout")
    async with server.peer(subprotocols=None) as connection:
        assert await SocketPeer(connection).closed() == (4406, "Subprotocol not acceptable")


async def test_messages_wait_while_the_peer_is_identified(server: ServedSockets) -> None:
    async with server.peer() as connection:
        peer = SocketPeer(connection)
        await peer.send(type="connection_init", payload={"Authorization": "Bearer ann"})
        await peer.subscribe("1", "{ me }")
        assert await peer.receive() == {"type": "connection_ack"}
        assert await peer.next("1") == {"data": {"me": "ann"}}


async def test_a_peer_that_reads_slowly_gets_everything(server: ServedSockets) -> None:
    async with server.ready(max_queue=1) as peer:
        await peer.subscribe("1", "subscription { flood }")
        for _ in range(50):
            assert len((await peer.next("1"))["data"]["flood"]) == 200_000
            await asyncio.sleep(0.001)


async def test_a_peer_that_does_not_read_is_dropped() -> None:
    async with (
        serve_websockets(server_options=ELSEWHERE, limits=IMPATIENT) as server,
        deaf_subscriber(server, "subscription { flood }"),
    ):
        await until(lambda: world.opened == 1)
        await until(lambda: not server.endpoint.sockets and not world.held)


async def test_a_peer_that_vanishes_takes_its_operations_along(server: ServedSockets) -> None:
    async with server.ready() as peer:
        await peer.subscribe("1", "subscription { held }")
        await until(lambda: world.held == 1)
        peer.connection.transport.abort()
        await until(lambda: world.held == 0 and not server.endpoint.sockets)


async def test_the_server_says_that_it_goes() -> None:
    async with serve_websockets(server_options=ELSEWHERE, limits=SocketLimits()) as server, server.ready() as peer:
        await peer.subscribe("1", "subscription { held }")
        await peer.next("1")
        await server.endpoint.close()
        assert await peer.closed() == (1001, "The server is shutting down")


async def test_a_cancelled_server_task_leaves_nothing() -> None:
    async with serve_websockets(server_options=ELSEWHERE) as server, server.ready() as peer:
        await peer.subscribe("1", "subscription { held }")
        await peer.next("1")
        for task in tuple(server.uvicorn.server_state.tasks):
            task.cancel()
        assert (await peer.closed())[0] == 1001


@pytest.mark.parametrize("options", [{}, {"extensions": None}, {"extensions": {"tls": {}}}])
async def test_a_server_need_not_have_extensions(options: Scope) -> None:
    async def note(scope: Scope, receive: Receive, send: Send) -> None:
        offered.append({*scope["extensions"]})

    async def unused(*_: Any) -> Any:
        raise AssertionError

    offered: list[set[str]] = []
    scope = {"type": "websocket", **options}
    assert asgi.is_from_other_server(scope)
    await asgi.serve(note, scope, unused, unused)
    assert offered == [{TAKE_OVER, *(options.get("extensions") or ())}]
