"""Input of clients is read in turns and at a limited rate, so that no client monopolizes the process."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from datastore.primitives.token_bucket import TokenBucket
from server.admission.connection_limits import Connections
from server.admission.fairness import TURN_BYTES, FairReader
from server.admission.settings import Capacity, unlimited
from server.websocket.connection import WebSocketConnection
from server.websocket.transport import SocketLimits
from tests.support.logs import unexpected_errors
from tests.support.toy_sockets import SocketPeer, serve_websockets, upgrade, world
from tests.support.until import until

PING = bytes([0x89, 0x80, 0, 0, 0, 0])
LISTEN = "subscription { held }"


@pytest.fixture
async def turn() -> AsyncIterator[Callable[[], int]]:
    """The number of the event loop's turn."""
    loop, turns = asyncio.get_running_loop(), [0]

    def begin() -> None:
        if turns[-1] >= 0:
            turns.append(turns[-1] + 1)
            loop.call_soon(begin)

    begin()
    yield lambda: turns[-1]
    turns.append(-1)


@asynccontextmanager
async def raw_socket(port: int) -> AsyncIterator[asyncio.StreamWriter]:
    """Open a socket whose frames the test writes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(upgrade("here"))
    await reader.readuntil(b"\r\n\r\n")
    try:
        yield writer
    finally:
        writer.transport.abort()


async def test_few_frames_are_handled_in_one_turn_however_many_come(
    monkeypatch: pytest.MonkeyPatch, turn: Callable[[], int]
) -> None:
    handled: Counter[int] = Counter()
    monkeypatch.setattr(WebSocketConnection, "_pong", lambda _self, _data: handled.update([turn()]))
    anything, patient = Connections(unlimited()), SocketLimits()
    async with (
        serve_websockets(connections=anything, limits=patient) as server,
        raw_socket(server.port) as one,
        raw_socket(server.port) as other,
    ):
        one.write(PING * 20_000)
        other.write(PING * 20_000)
        await until(lambda: handled.total() == 40_000)
    assert max(handled.values()) <= TURN_BYTES // len(PING) + 1


async def test_a_peer_that_is_too_fast_waits_and_the_others_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    handled: list[WebSocketConnection] = []
    monkeypatch.setattr(WebSocketConnection, "_pong", lambda self, _data: handled.append(self))
    slow = Connections(Capacity(websocket_messages=200, websocket_messages_per_second=0.01))
    async with serve_websockets(connections=slow, limits=SocketLimits()) as server, raw_socket(server.port) as flood:
        flood.write(PING * 100_000)
        await until(lambda: len(handled) >= 200)
        async with server.ready() as peer:
            await peer.subscribe("1", "{ hello }")
            assert await peer.next("1") == {"data": {"hello": "world"}}
        assert len(handled) < 200 + TURN_BYTES
        fast = handled[0]
        assert not fast.transport.is_reading()
        assert len(fast._unread) < 300_000
        fast.transport.abort()


async def test_waiting_messages_are_read_in_order(caplog: pytest.LogCaptureFixture) -> None:
    brisk = Connections(Capacity(websocket_messages=10, websocket_messages_per_second=5_000))
    async with serve_websockets(connections=brisk) as server, server.ready() as peer:
        await asyncio.gather(*[peer.send(type="ping", payload={"n": n}) for n in range(300)])
        assert [(await pong(peer))["payload"]["n"] for _ in range(300)] == list(range(300))
    assert not unexpected_errors(caplog)


async def test_a_hundred_subscriptions_at_once_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    balances: list[float] = []
    charge = TokenBucket.charge

    def recording_charge(self: TokenBucket, tokens: float, now: float) -> float:
        balances.append(charge(self, tokens, now))
        return balances[-1]

    monkeypatch.setattr(TokenBucket, "charge", recording_charge)
    async with serve_websockets(limits=SocketLimits(), connections=Connections()) as server, server.ready() as peer:
        for n in range(100):
            await peer.subscribe(str(n), LISTEN)
        await until(lambda: world.opened == 100)
    assert balances
    assert min(balances) >= 0


async def pong(peer: SocketPeer) -> Any:
    while (message := json.loads(await peer.connection.recv()))["type"] != "pong":
        pass
    return message


def test_the_rate_of_messages_may_be_unlimited() -> None:
    for capacity in (Capacity(websocket_messages=0), Capacity(websocket_messages_per_second=0)):
        assert Connections(capacity).message_bucket(0.0).charge(10**9, 0.0) > 0


async def test_turns_go_round_and_survive_one_that_fails() -> None:
    turns, order = FairReader(10), list[str]()
    loop = asyncio.get_running_loop()
    received: list[object] = []
    loop.set_exception_handler(lambda _loop, context: received.append(context["exception"]))

    def take(name: str, again: int) -> None:
        def read(_most: int) -> int:
            order.append(name)
            if again:
                take(name, again - 1)
            return 10

        turns.enqueue(read)

    def fail(_most: int) -> int:
        raise OSError("it is broken")

    take("a", 2)
    turns.enqueue(fail)
    take("b", 1)
    await until(lambda: len(order) == 5)
    assert "".join(order) == "ababa"
    assert [str(problem) for problem in received] == ["it is broken"]
