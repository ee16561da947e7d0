"""Resume positions of idle subscriptions: they are renewed, and no event after them is missed."""

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from datastore.keyspace.earthquakes import EARTHQUAKES
from datastore.matches.cricket_events import CricketEvent, CricketEventKind
from server.settings import Settings
from server.subscriptions.fan_out import EventFanOut
from tests.support.earthquake_samples import put_raw
from tests.support.match_updates import advance, register_at_version_1
from tests.support.resume import told_all, write_until
from tests.support.resuming_clients import CutOff, EventStreamClient, ResumingClient, SocketClient
from tests.support.served import Served

CUTS = int(os.environ.get("RESUME_CUTS", "15"))
STRONG = "subscription { earthquakeDetected(minMagnitude: 6) { eventId } }"
MATCH = 'subscription { matchUpdates(matchId: "m1") { version isSnapshot } }'
SLOW_MATCH = 'subscription { matchUpdates(matchId: "m1", minIntervalMs: 15) { version conflatedCount isSnapshot } }'
TRANSPORTS = pytest.mark.parametrize("transport", [SocketClient, EventStreamClient])


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return replace(settings, heartbeat_seconds=0.01)


async def cut_at_places(
    client: ResumingClient, url: str, over: asyncio.Event, has_all: Callable[[], bool], take: Callable[[Any], None]
) -> None:
    """Read over one connection after another, each cut at a position that came without an event, until there were
    enough.

    Then set `over`, and read until everything has arrived.
    """
    rng = random.Random(11)
    cuts = 0

    async def read() -> None:
        nonlocal cuts
        begun, wait = client.last is not None, rng.choice([1, 1, 2])
        async with client.connected(url) as events:
            async for payload in events:
                if not payload.get("begun"):
                    take(payload)
                    begun = True
                elif begun:
                    cuts += 1
                    wait -= 1
                if wait == 0 or (over.is_set() and has_all()):
                    return

    async with asyncio.timeout(50):
        while not (over.is_set() and has_all()):
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.5):
                        await read()
            except CutOff as cut:
                # After a pause of the process the pings of two heartbeats come at once.
                if cut.code != 4411:
                    raise
            if cuts >= CUTS:
                over.set()


@TRANSPORTS
async def test_each_strong_earthquake_arrives_once_at_a_client_cut_at_positions(
    served: Served, transport: type[ResumingClient]
) -> None:
    over, had = asyncio.Event(), list[str]()
    client = transport(served.http, STRONG, {})
    async with client.connected(served.url) as events:
        assert await anext(events) == {"begun": True}

    def take(payload: Any) -> None:
        had.append(payload["data"]["earthquakeDetected"]["eventId"])

    async def write(number: int) -> None:
        await put_raw(served, f"q{number}", mag=7.5 if number % 4 == 0 else 2.5)

    writing = asyncio.create_task(write_until(over, write))

    def expected() -> list[str]:
        return [f"q{number}" for number in range(0, writing.result(), 4)]

    await cut_at_places(client, served.url, over, lambda: writing.done() and had[-1:] == expected()[-1:], take)
    assert had == expected()


@TRANSPORTS
@pytest.mark.parametrize("query", [MATCH, SLOW_MATCH])
async def test_each_version_arrives_once_at_a_client_cut_at_positions(
    served: Served, transport: type[ResumingClient], query: str
) -> None:
    """Another match of the same table is played much faster."""
    await register_at_version_1(served, "m1", "m2")
    over, versions, written = asyncio.Event(), list[int](), [1]
    client = transport(served.http, query, {})

    def take(payload: Any) -> None:
        assert "resync" not in payload["extensions"]
        update = payload["data"]["matchUpdates"]
        assert update["isSnapshot"] == (not versions)
        assert not versions or update["version"] == versions[-1] + 1 + update.get("conflatedCount", 0)
        versions.append(update["version"])

    async def write(number: int) -> None:
        name = "m1" if number % 4 == 0 else "m2"
        kind = CricketEventKind.FOUR if number % 3 else CricketEventKind.WICKET
        state = await advance(served, name, CricketEvent(f"{name}:{number}", kind, "…"))
        if name == "m1":
            written[0] = state.version

    writing = asyncio.create_task(write_until(over, write))

    await cut_at_places(client, served.url, over, lambda: writing.done() and versions[-1] == written[0], take)
    assert len(versions) > 5


async def pings(served: Served, query: str, extensions: Any, happen: Callable[[], Awaitable[Any]]) -> list[Any]:
    """Return the positions in the pings after the start, and those during `happen` and the ten pings after it."""
    async with served.http.ws_connect(
        served.url.replace("http", "ws") + "/graphql", protocols=["graphql-transport-ws"]
    ) as socket:
        await socket.send_json({"type": "connection_init"})
        assert (await socket.receive_json(timeout=10))["type"] == "connection_ack"
        for id in ("1", "2"):
            payload = {"query": query, "extensions": extensions}
            await socket.send_json({"id": id, "type": "subscribe", "payload": payload})
        # A client that answers no ping in the meantime would be disconnected.
        settling = asyncio.ensure_future(served.settle(EARTHQUAKES))
        received: list[Any] = []
        rest = 10
        happening: asyncio.Task[Any] | None = None
        while rest:
            message = await socket.receive_json(timeout=10)
            assert message["type"] == "ping", message
            await socket.send_json({"type": "pong"})
            received.append(message.get("payload"))
            if happening is None:
                if not settling.done():
                    continue
                settling.result()
                if not extensions or sum(len(one["resume"]) for one in received if one) >= 2:
                    happening = asyncio.ensure_future(happen())
            else:
                rest = rest - 1 if happening.done() and received[-1] is None else 10
        return received


async def test_a_ping_has_the_positions_that_moved_and_no_others(served: Served) -> None:
    async def happen() -> None:
        for number in range(3):
            await put_raw(served, f"q{number}", mag=2.5)

    received = await pings(served, STRONG, {"resumeAfter": None}, happen)
    places = {id: [one["resume"][id] for one in received if one and id in one["resume"]] for id in ("1", "2")}
    assert received[-10:] == [None] * 10
    for ids in places.values():
        assert 2 <= len(ids) == len(set(ids)) <= 4  # the start, and at most one for each change
    assert places["1"][-1] == places["2"][-1]


async def test_a_client_that_did_not_ask_for_positions_receives_none(served: Served) -> None:
    received = await pings(served, STRONG, {}, lambda: put_raw(served, "q1", mag=2.5))
    assert set(received) == {None}


@TRANSPORTS
async def test_no_position_is_sent_while_an_event_is_built(
    served: Served, transport: type[ResumingClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    may_go_on, really = asyncio.Event(), EventFanOut.deliver

    async def made(*arguments: Any) -> Any:
        await may_go_on.wait()
        return await really(*arguments)

    monkeypatch.setattr(EventFanOut, "deliver", made)
    client = transport(served.http, STRONG, {})
    async with client.connected(served.url) as events:
        assert await anext(events) == {"begun": True}
        coming = asyncio.ensure_future(anext(events))
        await put_raw(served, "q1", mag=7.5)
        await put_raw(served, "q2", mag=2.5)
        await told_all(served)
        await asyncio.wait([coming], timeout=0.1)  # ten heartbeats
        assert not coming.done()
        may_go_on.set()
        assert (await coming)["data"] == {"earthquakeDetected": {"eventId": "q1"}}
        assert await anext(events) == {"begun": True}
    await put_raw(served, "q3", mag=7.5)
    async with client.connected(served.url) as events:
        assert (await anext(events))["data"] == {"earthquakeDetected": {"eventId": "q3"}}


async def test_positions_that_do_not_fit_into_a_ping_are_sent_with_the_next(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.websocket.operation.POSITION_CHARACTERS_PER_PING", 1)

    async def happen() -> None:
        await put_raw(served, "q1", mag=2.5)

    received = [one["resume"] for one in await pings(served, STRONG, {"resumeAfter": None}, happen) if one]
    assert {len(one) for one in received} == {1}
    assert {id for one in received[2:] for id in one} == {"1", "2"}


@TRANSPORTS
@pytest.mark.parametrize("query", [STRONG, SLOW_MATCH])
async def test_a_client_that_resumes_without_a_gap_receives_positions(
    served: Served, transport: type[ResumingClient], query: str
) -> None:
    await register_at_version_1(served, "m1", "m2")
    client = transport(served.http, query, {})
    async with client.connected(served.url) as events:
        await anext(events)
    last = client.last
    async with client.connected(served.url) as events, asyncio.timeout(50):
        coming = asyncio.ensure_future(anext(events))
        await put_raw(served, "q1", mag=2.5)
        await advance(served, "m2")
        assert await coming == {"begun": True}
    assert client.last is not None
    assert client.last != last
    assert client.last.partition("~")[2] == str(last).partition("~")[2]
