"""`matchUpdates` completes once a match is over and off the list, over both transports (CRIC-S1)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from datastore.change_streams.shards.positioned_cursor import PositionedCursor
from datastore.change_streams.shards.shard_reader import ShardPage
from datastore.matches.cricket import MatchPhase
from datastore.model.identity import Role
from tests.support.active_matches import active_match_state, begin, matches
from tests.support.fixture_steps import ask_system, planned_match, put_fixtures
from tests.support.match_updates import advance, play_out
from tests.support.resuming_clients import EventStreamClient, ResumingClient, SocketClient
from tests.support.served import Served
from tests.support.until import until

MATCH = 'subscription { matchUpdates(matchId: "m1"%s) { version isSnapshot liveScore { phase } } }'
DEACTIVATE = 'mutation { endActiveMatch(id: "m1") { fence } }'


@pytest.fixture(params=[SocketClient, EventStreamClient], ids=["WebSocket", "SSE"])
def transport(request: pytest.FixtureRequest) -> type[ResumingClient]:
    kind: type[ResumingClient] = request.param
    return kind


@pytest.fixture(params=["", ", minIntervalMs: 50"], ids=["every version", "conflated"])
def query(request: pytest.FixtureRequest) -> str:
    return MATCH % str(request.param)


async def updates_to_the_end(events: AsyncIterator[Any]) -> list[tuple[int, str]]:
    """Return version and phase of each update until the subscription completes."""
    found = []
    async for payload in events:
        if "data" in payload:
            update = payload["data"]["matchUpdates"]
            found.append((update["version"], update["liveScore"]["phase"]))
        else:
            assert "errors" not in payload, payload
            assert payload.get("type", "complete") == "complete", payload
    return found


async def test_the_subscription_completes_when_the_match_leaves_the_list(
    served: Served, transport: type[ResumingClient], query: str
) -> None:
    instance = await begin(served, "m1", balls=24)
    client = transport(served.http, query, served.headers("ada", Role.USER))

    async with client.connected(served.url) as events:
        first = await anext(events)
        await play_out(instance, "m1")
        await ask_system(served, DEACTIVATE)
        updates = await updates_to_the_end(events)

    assert first["data"]["matchUpdates"]["isSnapshot"] or "begun" in first
    assert updates[-1][1] == "FINISHED"
    assert [version for version, _ in updates] == sorted({version for version, _ in updates})


async def test_a_subscription_to_a_finished_match_sends_a_snapshot_and_completes(
    served: Served, transport: type[ResumingClient], query: str
) -> None:
    await put_fixtures(served, planned_match("m1", status="Finished", phase=MatchPhase.FINISHED, version=7))
    client = transport(served.http, query, served.headers("ada", Role.USER))

    async with client.connected(served.url) as events:
        assert await updates_to_the_end(events) == [(7, "FINISHED")]


async def test_a_client_that_resumes_gets_its_missed_updates_before_the_completion(
    served: Served, transport: type[ResumingClient], query: str
) -> None:
    instance = await begin(served, "m1", balls=24)
    client = transport(served.http, query, served.headers("ada", Role.USER))
    async with client.connected(served.url) as events:
        before = await anext(events)
    await play_out(instance, "m1")
    await ask_system(served, DEACTIVATE)

    async with client.connected(served.url) as events:
        missed = await updates_to_the_end(events)
    version = before["data"]["matchUpdates"]["version"]
    assert missed[-1][1] == "FINISHED"
    assert missed[-1][0] > version
    if "minIntervalMs" not in query:
        assert [number for number, _ in missed] == [*range(version + 1, missed[-1][0] + 1)]


async def test_the_subscription_of_a_client_that_resumes_without_missed_updates_completes_at_once(
    served: Served, query: str
) -> None:
    await put_fixtures(served, planned_match("m1", status="Finished", phase=MatchPhase.FINISHED, version=7))
    socket = SocketClient(served.http, query, served.headers("ada", Role.USER))
    async with socket.connected(served.url) as events:
        assert await updates_to_the_end(events) == [(7, "FINISHED")]

    async with socket.connected(served.url) as events:
        assert await updates_to_the_end(events) == []


async def test_an_event_source_without_missed_updates_stops_reconnecting(served: Served, query: str) -> None:
    await put_fixtures(served, planned_match("m1", status="Finished", phase=MatchPhase.FINISHED, version=7))
    client = EventStreamClient(served.http, query, served.headers("ada", Role.USER))
    async with client.connected(served.url) as events:
        assert await updates_to_the_end(events) == [(7, "FINISHED")]

    headers = {**client.headers, "accept": "text/event-stream", "Last-Event-ID": client.last or ""}
    async with served.http.post(f"{served.url}/graphql", json={"query": query}, headers=headers) as response:
        assert response.status == 204


async def test_equal_subscribers_complete_together_although_some_replay(served: Served) -> None:
    instance = await begin(served, "m1", balls=24)
    clients = [SocketClient(served.http, MATCH % "", served.headers("ada", Role.USER)) for _ in range(3)]
    for client in clients[1:]:
        async with client.connected(served.url) as events:
            await anext(events)
        await instance.poller.tick("m1")

    async with clients[0].connected(served.url) as stays:
        await anext(stays)
        await play_out(instance, "m1")
        async with clients[1].connected(served.url) as returns, clients[2].connected(served.url) as returns_too:
            await ask_system(served, DEACTIVATE)
            ends = [await updates_to_the_end(events) for events in (stays, returns, returns_too)]

    last = ends[0][-1]
    assert last[1] == "FINISHED"
    for updates in ends:
        versions = [version for version, _ in updates]
        assert updates[-1] == last
        assert versions == [*range(versions[0], last[0] + 1)]


async def test_the_subscription_to_a_finished_but_polled_match_continues(served: Served) -> None:
    instance = await begin(served, "m1", balls=24)
    await play_out(instance, "m1")
    client = SocketClient(served.http, MATCH % "", served.headers("ada", Role.USER))

    async with client.connected(served.url) as events:
        assert (await anext(events))["data"]["matchUpdates"]["liveScore"]["phase"] == "FINISHED"
        await advance(served)  # the scorers name the player of the match
        assert not (await anext(events))["data"]["matchUpdates"]["isSnapshot"]


@pytest.fixture
def hold_reads(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Awaitable[asyncio.Event]]:
    """Return a function that holds the reads of streams until the event that it returns is set."""
    may_read, waiting = asyncio.Event(), 0
    may_read.set()
    read = PositionedCursor.read

    async def held(shard: PositionedCursor) -> ShardPage:
        nonlocal waiting
        waiting += 1
        await may_read.wait()
        waiting -= 1
        return await read(shard)

    async def hold() -> asyncio.Event:
        may_read.clear()
        await until(lambda: waiting > 0)
        return may_read

    monkeypatch.setattr(PositionedCursor, "read", held)
    return hold


async def test_the_subscription_to_a_listed_match_continues_despite_late_changes(
    served: Served, hold_reads: Callable[[], Awaitable[asyncio.Event]]
) -> None:
    instance = await begin(served, "m1", balls=24)
    await play_out(instance, "m1")
    client = SocketClient(served.http, MATCH % "", served.headers("ada", Role.USER))

    async with client.connected(served.url) as events:
        version = (await anext(events))["data"]["matchUpdates"]["version"]
        may_read = await hold_reads()
        await ask_system(served, DEACTIVATE)
        assert await matches(served).reopen(await active_match_state(served, "m1"))
        await ask_system(served, 'mutation { registerActiveMatch(id: "m1") { fence } }')
        await advance(served)
        may_read.set()
        assert (await anext(events))["data"]["matchUpdates"]["version"] == version + 1
