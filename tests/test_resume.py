"""Subscribers that were cut off go on where they were: no gap, nothing twice, and only what they may be told now."""

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from typing import Any

import pytest
from conftest import Clock, Served, Tidied, free_port, listening
from earthquake_samples import put_raw
from resuming_clients import Client, OverEvents, OverSocket
from test_match_updates import advance, begun

from datastore.database import StoreOptions
from datastore.keyspace.earthquakes import EARTHQUAKES
from edge.settings import Settings

CUTS = int(os.environ.get("RESUME_CUTS", "30"))
MATCH = 'subscription { matchUpdates(matchId: "m1") { version isSnapshot } }'
QUAKES = "subscription { earthquakeDetected { eventId } }"
TRANSPORTS = pytest.mark.parametrize("transport", [OverSocket, OverEvents])


@pytest.fixture
async def other(served: Served, settings: Settings, store_options: StoreOptions, clock: Clock) -> AsyncIterator[Served]:
    """A second gateway on the same store."""
    async with AsyncExitStack() as stack:
        settings = replace(settings, port=free_port())
        gateway = Tidied(settings, store_options, now=clock)
        await stack.enter_async_context(gateway.running())
        await stack.enter_async_context(listening(gateway))
        yield Served(gateway, settings.url, served.http, clock)


async def cut_at_random(
    client: Client, urls: list[str], has_all: Callable[[], bool], take: Callable[[Any], None], cuts: int = CUTS
) -> None:
    """Read on one connection after another, each for a moment, and on the last until it has all."""
    chance = random.Random(7)

    async def read() -> None:
        async with client.connected(chance.choice(urls)) as events:
            async for payload in events:
                take(payload)
                if cut == cuts and has_all():
                    return

    for cut in range(cuts + 1):
        with suppress(TimeoutError):
            async with asyncio.timeout(chance.uniform(0.005, 0.08) if cut < cuts else 20):
                await read()


async def write_until(over: asyncio.Event, write: Callable[[int], Awaitable[Any]]) -> int:
    """How many were written."""
    number = 0
    while not over.is_set():
        await write(number)
        number += 1
        await asyncio.sleep(0.003)
    return number


@TRANSPORTS
@pytest.mark.parametrize("processes", [1, 2])
async def test_versions_are_contiguous_however_often_one_is_cut_off(
    served: Served, other: Served, transport: type[Client], processes: int
) -> None:
    await begun(served, "m1")
    over, versions, snapshots, written = asyncio.Event(), list[int](), list[int](), [1]
    client = transport(served.http, MATCH, {})

    def take(payload: Any) -> None:
        if payload.get("begun"):
            return
        assert "resync" not in payload["extensions"], payload
        update = payload["data"]["matchUpdates"]
        versions.append(update["version"])
        snapshots.extend([update["version"]] * update["isSnapshot"])

    async def write(_: int) -> None:
        written[0] = (await advance(served)).version

    writing = asyncio.create_task(write_until(over, write))
    urls = [served.url, other.url][:processes]

    def has_all() -> bool:
        over.set()
        return writing.done() and versions[-1] == written[0]

    await cut_at_random(client, urls, has_all, take)
    over.set()
    await writing
    async with client.connected(urls[0]) as events, asyncio.timeout(10):
        while versions[-1] < written[0]:
            take(await anext(events))
    first = versions[0]
    assert versions == [*range(first, first + len(versions))]
    assert snapshots == [first]
    assert len(versions) > CUTS


@TRANSPORTS
@pytest.mark.parametrize("processes", [1, 2])
async def test_each_earthquake_comes_once_however_often_one_is_cut_off(
    served: Served, other: Served, transport: type[Client], processes: int
) -> None:
    over, had = asyncio.Event(), list[str]()
    client = transport(served.http, QUAKES, {})
    async with client.connected(served.url) as events:
        assert await anext(events) == {"begun": True}
        await put_raw(served, "q0")
        had.append((await anext(events))["data"]["earthquakeDetected"]["eventId"])

    def take(payload: Any) -> None:
        if not payload.get("begun"):
            had.append(payload["data"]["earthquakeDetected"]["eventId"])

    writing = asyncio.create_task(write_until(over, lambda number: put_raw(served, f"q{number + 1}")))
    urls = [served.url, other.url][:processes]
    await cut_at_random(client, urls, lambda: True, take)
    over.set()
    last = await writing
    if had[-1] != f"q{last}":
        async with client.connected(urls[-1]) as events, asyncio.timeout(10):
            while had[-1] != f"q{last}":
                take(await anext(events))
    assert had == [f"q{number}" for number in range(last + 1)]
    assert len(had) > CUTS


@TRANSPORTS
async def test_a_place_that_is_not_known_is_one_resync(served: Served, transport: type[Client]) -> None:
    await begun(served, "m1")
    for query, last in ((MATCH, "nobody.0.0~7"), (QUAKES, "nobody.123abc.5")):
        client = transport(served.http, query, {})
        client.last = last
        async with client.connected(served.url) as events:
            told = await anext(events)
            if query is MATCH:
                assert told["extensions"].pop("resync")
                assert told["data"]["matchUpdates"] == {"version": 1, "isSnapshot": True}
                await advance(served)
                told = await anext(events)
                assert told["data"]["matchUpdates"] == {"version": 2, "isSnapshot": False}
            else:
                assert told["data"] is None
                assert [error["extensions"]["code"] for error in told["errors"]] == ["RESYNC"]
                await put_raw(served, "q1")
                told = await anext(events)
                assert told["data"] == {"earthquakeDetected": {"eventId": "q1"}}
            assert told["extensions"].keys() == {"eventId"}


async def test_the_place_of_another_table_is_not_known(served: Served) -> None:
    client = OverSocket(served.http, QUAKES, {})
    await begun(served, "m1")
    match = OverSocket(served.http, MATCH, {})
    async with match.connected(served.url) as events:
        await anext(events)
        await advance(served)
        await anext(events)
    assert match.last is not None
    client.last = match.last.partition("~")[0]
    async with client.connected(served.url) as events:
        assert (await anext(events))["errors"][0]["extensions"]["code"] == "RESYNC"


@TRANSPORTS
@pytest.mark.parametrize("last", ["nonsense", "a.b", "a.b.c~x", "A.b.c", "a.b.-1", "a.b.c.d", "a" * 5000])
async def test_what_is_no_id_is_refused_by_name(served: Served, transport: type[Client], last: str) -> None:
    await begun(served, "m1")
    client = transport(served.http, MATCH, {})
    client.last = last
    async with client.connected(served.url) as events:
        told = await anext(events)
    errors = told["payload"] if "payload" in told else told["errors"]
    assert errors[0]["extensions"] == {"code": "BAD_USER_INPUT", "field": "resumeAfter"}


async def test_equal_subscribers_that_go_on_join_the_others(served: Served) -> None:
    client, groups = OverSocket(served.http, QUAKES, {}), served.gateway.edge.runner._streams._groups
    stays = await served.listen(QUAKES)
    await served.settle(EARTHQUAKES)
    async with client.connected(served.url) as events:
        await anext(events)
        await put_raw(served, "q1")
        await anext(events)
    await put_raw(served, "q2")
    async with client.connected(served.url) as events:
        assert (await anext(events))["data"] == {"earthquakeDetected": {"eventId": "q2"}}
        await put_raw(served, "q3")
        assert (await anext(events))["data"] == {"earthquakeDetected": {"eventId": "q3"}}
        (group,) = groups.values()
        assert len(group._members) == 2
        assert not group._returning
        assert all(member.is_plain for member in group._members)
    for name in ("q1", "q2", "q3"):
        assert await stays.event() == {"earthquakeDetected": {"eventId": name}}
