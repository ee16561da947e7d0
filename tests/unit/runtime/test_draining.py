"""Draining: requests are answered, and subscribers are asked to reconnect."""

import asyncio
import json
import random
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from uvicorn.lifespan.off import LifespanOff
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from server.admission.connection_limits import Connections
from server.http.protocol import UVICORN_OPTIONS
from server.http.streams.response_stream import ResponseStreams
from server.shutdown import (
    ENDED_PER_SECOND,
    LONGEST_DELAY_SECONDS,
    LONGEST_SPREAD_SECONDS,
    STEP_SECONDS,
    WORKER_SECONDS,
    Delays,
    end_gradually,
)
from server.uvicorn import _Server, run_jobs_worker
from server.websocket.endpoint import SUBPROTOCOL, GraphQLWebSocket
from server.websocket.messages import restart
from tests.support.earthquake_samples import put_raw
from tests.support.http_server import served as http_serving
from tests.support.resume import told_all
from tests.support.resuming_clients import EventStreamClient, SocketClient
from tests.support.served import Served as Gateway
from tests.support.sse import blocks, next_of
from tests.support.sse import serve_event_streams as events
from tests.support.toy_sockets import ServedSockets, SocketPeer, serve_websockets, world
from tests.support.until import until
from tests.support.virtual_time import in_virtual_time
from tests.support.websocket import deaf_subscriber

FEW, MANY = 10, 5_000


def delays(streams: int = FEW) -> Delays:
    return Delays(streams, random.Random(8))


@pytest.fixture
async def server() -> ServedSockets:  # type: ignore[misc]
    async with serve_websockets() as server:
        yield server


# Delays


def test_few_clients_reconnect_at_once_and_many_spread_over_ten_seconds() -> None:
    few, many = ([kind.next_ms() for _ in range(200)] for kind in (delays(FEW), delays(MANY)))
    assert 0 <= min(few) < max(few) <= 100
    assert max(many) <= LONGEST_DELAY_SECONDS * 1000
    assert len(set(many)) > 150
    assert min(many) < 500 < 9_500 < max(many)


def test_a_close_frame_has_room_for_the_reason() -> None:
    code, reason = restart(10_000)
    assert (code, json.loads(reason)) == (1012, {"reconnectAfterMs": 10_000})
    assert len(reason.encode()) <= 123


@pytest.mark.parametrize("streams", [FEW, 500, MANY])
def test_many_streams_end_over_some_seconds_and_no_more(streams: int) -> None:
    """It runs in virtual time. Ended streams leave the collection at once, as sockets do."""
    ended: list[float] = []

    async def work() -> None:
        streams_left = {*range(streams)}

        def end(one: int) -> None:
            streams_left.discard(one)
            ended.append(asyncio.get_running_loop().time())

        await end_gradually(streams_left, end)
        assert not streams_left

    in_virtual_time(work)
    expected = min(streams / ENDED_PER_SECOND, LONGEST_SPREAD_SECONDS)
    assert expected * 0.9 - STEP_SECONDS <= ended[-1] - ended[0] <= expected
    most = max(Counter(ended).values())
    assert most <= streams * (STEP_SECONDS * 2 / expected) + 1


def test_the_time_to_end_others_does_not_extend_the_wait_for_hanging_ones() -> None:
    """It runs in virtual time, for streams and sockets alike."""
    took: list[float] = []

    class Hanging:
        is_subscription, is_over = True, False

        def close_when_answered(self, _: int) -> None: ...
        def end_with_retry(self, _: int) -> None: ...
        def end(self) -> None: ...
        def close_now(self, _: int) -> None: ...

    async def work() -> None:
        streams: Any = ResponseStreams()
        sockets: Any = SimpleNamespace(sockets=[Hanging() for _ in range(MANY)])
        sockets._open = sockets.sockets
        hanging = asyncio.create_task(asyncio.Event().wait())
        streams._open = dict.fromkeys([Hanging() for _ in range(MANY)], hanging)
        for drained in (streams.drain(delays(), 4.0), GraphQLWebSocket.drain(sockets, delays(), 4.0)):
            began = asyncio.get_running_loop().time()
            await drained
            took.append(asyncio.get_running_loop().time() - began)

    in_virtual_time(work)
    assert took == pytest.approx([4.0, 4.0], abs=2 * STEP_SECONDS)


@pytest.mark.parametrize(("grace", "seconds"), [(1.0, 1 + 9 + 1), (10.0, 16 + 1)])
def test_hanging_requests_leave_time_to_close_resources_whatever_the_grace(
    monkeypatch: pytest.MonkeyPatch, grace: float, seconds: float
) -> None:
    """It runs in virtual time: first streams that do not end, then requests that are not answered."""

    async def end_streams(_: random.Random, most: float) -> None:
        await asyncio.sleep(most)

    async def work() -> float:
        loop = asyncio.get_running_loop()
        monkeypatch.setattr("server.uvicorn.time", SimpleNamespace(monotonic=loop.time))
        monkeypatch.setattr("server.uvicorn.application", lambda gateway: None)
        components = SimpleNamespace(
            settings=SimpleNamespace(grace_seconds=grace), begin_draining=lambda: None, end_streams=end_streams
        )
        gateway: Any = SimpleNamespace(server=components)
        server = _Server(gateway, lambda: asyncio.sleep(0), random.Random(8))
        server.servers = []
        server.lifespan = LifespanOff(server.config)
        hanging: Any = asyncio.create_task(asyncio.Event().wait())
        server.server_state.tasks.add(hanging)
        server.begin_draining()
        await server.shutdown()
        return loop.time()

    took, _ = in_virtual_time(work)
    assert took == pytest.approx(seconds, abs=0.2)
    assert took < WORKER_SECONDS - 2


# Workers


async def test_a_job_worker_that_hangs_at_its_start_stops_on_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("server.uvicorn.end_process_in", lambda seconds: None)
    received: list[str] = []

    @asynccontextmanager
    async def running() -> AsyncIterator[None]:
        try:
            await asyncio.Event().wait()
            yield
        finally:
            received.append("closed")

    gateway: Any = SimpleNamespace(running=running)
    ours, theirs = socket.socketpair()
    with theirs:
        working = asyncio.create_task(run_jobs_worker(gateway, lambda: asyncio.sleep(0), theirs))
        await asyncio.sleep(0)
        ours.close()
        await asyncio.wait([working], timeout=2)
        assert working.done()  # a cancellation by the test would look like a stop
    assert received == ["closed"]


# WebSockets


async def test_subscribers_are_asked_to_reconnect(server: ServedSockets) -> None:
    async with server.ready() as peer:
        await peer.subscribe("1", "subscription { held }")
        await peer.next("1")
        await server.endpoint.drain(delays(), 5)
        code, reason = await peer.closed()
    assert code == 1012
    assert 0 <= json.loads(reason)["reconnectAfterMs"] <= 100


async def test_operations_of_a_socket_are_completed_and_later_messages_ignored(server: ServedSockets) -> None:
    async with server.ready() as peer:
        await peer.subscribe("1", "{ patient }")
        await peer.subscribe("2", "subscription { held }")
        await peer.next("2")
        leaving = asyncio.create_task(server.endpoint.drain(delays(), 20))
        await asyncio.sleep(0)
        await peer.subscribe("3", "mutation { change }")
        contexts = world.contexts
        world.go.set()
        assert await peer.next("1") == {"data": {"patient": "patient"}}
        assert await peer.receive() == {"id": "1", "type": "complete"}
        assert (await peer.closed())[0] == 1012
        await leaving
        assert world.contexts == contexts  # the mutation was not executed: its client sends it to another process


async def test_draining_waits_for_an_authentication_but_not_for_an_idle_socket(server: ServedSockets) -> None:
    async with server.peer() as idle, server.ready() as used:
        await until(lambda: len(server.endpoint) == 2)
        await used.subscribe("1", "{ hello }")
        await server.endpoint.drain(delays(), 5)
        await idle.wait_closed()
        assert idle.close_code == 1012
        assert (await used.closed())[0] == 1012


async def test_a_hanging_operation_and_a_deaf_client_do_not_delay_the_shutdown(
    server: ServedSockets, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.websocket.connection.CLOSE_REPLY_SECONDS", 0.1)
    async with server.ready() as peer, deaf_subscriber(server, "subscription { flood }"):
        await peer.subscribe("1", "{ slow }")
        await until(lambda: world.opened == 2)
        await server.endpoint.drain(delays(), 0.05)
        assert (await peer.closed())[0] == 1012
        for connection in tuple(server.uvicorn.server_state.connections):
            connection.shutdown()
        await until(lambda: not server.uvicorn.server_state.connections and world.held == 0)


async def test_a_client_that_asked_for_positions_receives_them_at_the_end(served: Gateway) -> None:
    address = f"{served.url.replace('http', 'ws')}/graphql"
    async with connect(address, subprotocols=[Subprotocol(SUBPROTOCOL)]) as socket:
        peer = SocketPeer(socket)
        await peer.send(type="connection_init")
        assert await peer.receive() == {"type": "connection_ack"}
        extensions = {"resumeAfter": None}
        await peer.subscribe("1", "subscription { sightingReported { sightingId } }", extensions=extensions)
        begun = await peer.receive()
        await served.gateway.server.end_streams(random.Random(8), 5)
        received = await peer.receive()
        assert (await peer.closed())[0] == 1012
    assert (received["type"], received["payload"]["resume"]) == ("ping", begun["payload"]["resume"])
    assert received["payload"]["resume"]["1"]
    assert 0 <= received["payload"]["reconnectAfterMs"] <= 10


WEAK = "subscription { earthquakeDetected(minMagnitude: 6) { eventId } }"


async def test_positions_that_moved_without_an_event_are_sent_at_the_end(served: Gateway) -> None:
    clients = [kind(served.http, WEAK, {}) for kind in (SocketClient, EventStreamClient)]
    async with AsyncExitStack() as stack:
        received = [await stack.enter_async_context(client.connected(served.url)) for client in clients]
        for stream in received:
            assert await anext(stream) == {"begun": True}
        begun = [client.last for client in clients]
        await put_raw(served, "q1", mag=2.5)
        await told_all(served)
        await served.gateway.server.end_streams(random.Random(8), 5)
        for stream in received:
            assert await anext(stream) == {"begun": True}
    assert begun[0] == begun[1] != clients[0].last == clients[1].last


# Server-sent events


async def test_an_event_stream_ends_with_a_retry_delay() -> None:
    async with events() as here, here.ask("subscription { held }") as response:
        stream = blocks(response)
        assert [await anext(stream) for _ in range(2)][1] == next_of(1, {"data": {"held": 0}})
        await here.streams.drain(delays(), 5)
        (last,) = [block async for block in stream]
        assert [*last] == ["retry"]
        assert 0 <= int(last["retry"]) <= 100


async def test_draining_waits_for_a_response_that_is_an_event() -> None:
    async with events() as here, here.ask("{ hello }") as response:
        await here.streams.drain(delays(), 5)
        received = [block async for block in blocks(response)]
    assert received[1] == next_of(1, {"data": {"hello": "world"}})
    assert received[-1]["event"] == "complete"


# HTTP


async def test_the_next_response_is_the_last_of_its_connection() -> None:
    async def app(scope: object, receive: object, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        await send({"type": "http.response.body", "body": b"ok"})

    connections = Connections()
    async with (
        http_serving(app, connections.lifespan_state(), **UVICORN_OPTIONS) as url,
        aiohttp.ClientSession() as session,
    ):
        async with session.get(url) as response:
            assert "connection" not in response.headers
        connections.draining = True
        async with session.get(url) as response:
            assert (await response.read(), response.headers["connection"]) == (b"ok", "close")
