"""Changes of `cricket-fixtures` reach subscribers of a match (CRIC-S1, CRIC-S2)."""

from typing import Any

import pytest

from datastore.keyspace.matches.fixtures import FIXTURES
from datastore.matches.cricket import MatchPhase
from datastore.model.identity import Role
from tests.support.active_matches import begin
from tests.support.fixture_steps import planned_match, put_fixtures, stored_fixture, update_fixture
from tests.support.match_updates import follow_updates, play_out, register_at_version_1
from tests.support.resuming_clients import EventStreamClient, ResumingClient, SocketClient
from tests.support.served import Served

FIELDS = "version isSnapshot liveScore { note phase } match { note venue { name } playerOfMatch }"
ONE = f'subscription {{ matchUpdates(matchId: "m1") {{ {FIELDS} }} }}'
SCORES = f"subscription {{ liveScores {{ removedMatchIds updates {{ {FIELDS} }} }} }}"


async def write_attributes(served: Served, **attributes: Any) -> None:
    """Change attributes of the fixture as another program does. Return the new item."""
    item = await stored_fixture(served)
    assert item is not None
    await served.store().write_all(FIXTURES, puts=[item | attributes])


async def next_update(listener: Any) -> Any:
    return (await listener.event())["matchUpdates"]


async def test_a_change_of_an_upcoming_match_is_a_snapshot(served: Served) -> None:
    await put_fixtures(served, planned_match("m1"))
    listener = await follow_updates(served, ONE)
    assert (await next_update(listener))["liveScore"]["note"] is None

    await write_attributes(served, note="Rain is expected")
    by_other = await next_update(listener)
    answer = await update_fixture(served, note="No rain")
    by_operator = await next_update(listener)

    assert answer.errors is None
    assert (by_other["version"], by_other["isSnapshot"]) == (0, True)
    assert by_other["liveScore"]["note"] == by_other["match"]["note"] == "Rain is expected"
    assert by_operator["liveScore"]["note"] == by_operator["match"]["note"] == "No rain"


async def test_a_sync_sends_an_update_of_a_match_that_is_not_polled(served: Served) -> None:
    await put_fixtures(served, planned_match("m1", version=3, note="Day 1"))
    listener = await follow_updates(served, ONE)
    assert (await next_update(listener))["version"] == 3

    await put_fixtures(served, planned_match("m1", note="Day 2"))

    snapshot = await next_update(listener)
    assert (snapshot["version"], snapshot["isSnapshot"], snapshot["liveScore"]["note"]) == (4, True, "Day 2")


async def test_the_subscription_completes_when_a_fixture_is_over(served: Served) -> None:
    await put_fixtures(served, planned_match("m1"))
    listener = await follow_updates(served, ONE)
    await next_update(listener)

    await write_attributes(served, status="Aban.", phase="abandoned")

    assert (await next_update(listener))["liveScore"]["phase"] == "ABANDONED"
    assert (await listener.message())["type"] == "complete"


async def test_a_change_of_a_live_match_is_a_snapshot_at_its_version(served: Served) -> None:
    await register_at_version_1(served, "m1", status="1st Innings", phase=MatchPhase.LIVE)
    listener, scores = await follow_updates(served, ONE), await follow_updates(served, SCORES)
    await next_update(listener)
    await scores.event()

    await write_attributes(served, note="Play resumes at three")

    snapshot = await next_update(listener)
    assert (snapshot["version"], snapshot["isSnapshot"]) == (1, True)
    assert snapshot["match"]["note"] == "Play resumes at three"
    assert (await scores.event())["liveScores"] == {"removedMatchIds": [], "updates": [snapshot]}


async def test_a_change_of_a_finished_match_that_is_on_the_list_is_a_snapshot(served: Served) -> None:
    instance = await begin(served, "m1", balls=24)
    await play_out(instance, "m1")
    listener = await follow_updates(served, ONE)
    before = await next_update(listener)

    await write_attributes(served, playerOfMatch="77")

    after = await next_update(listener)
    assert after == before | {"match": before["match"] | {"playerOfMatch": "77"}}


async def test_changes_of_hidden_attributes_send_no_event(served: Served) -> None:
    await put_fixtures(served, planned_match("m1"))
    listener = await follow_updates(served, ONE)
    await next_update(listener)

    await write_attributes(
        served, fence=4, revision=9, updatedAt="2026-06-25T12:00:01Z", archivedAt=None, ofAnotherProgram=1
    )
    await put_fixtures(served, planned_match("m1"))  # a sync without changes
    await put_fixtures(served, planned_match("m2", note="Another match"))
    await write_attributes(served, note="Seen")

    assert (await next_update(listener))["liveScore"]["note"] == "Seen"


async def test_a_poller_that_writes_the_fixture_adds_no_update(served: Served) -> None:
    instance = await begin(served, "m1", balls=24)
    listener = await follow_updates(served, ONE)
    updates = [await next_update(listener)]

    await play_out(instance, "m1")
    while updates[-1]["liveScore"]["phase"] != "FINISHED":
        updates.append(await next_update(listener))

    first = updates[0]["version"]
    assert [one["version"] for one in updates] == [*range(first, first + len(updates))]
    assert [one["isSnapshot"] for one in updates[1:]] == [False] * (len(updates) - 1)


@pytest.mark.parametrize("transport", [SocketClient, EventStreamClient], ids=["WebSocket", "SSE"])
async def test_a_change_missed_while_away_is_in_the_snapshot_on_return(
    served: Served, transport: type[ResumingClient]
) -> None:
    await put_fixtures(served, planned_match("m1"))
    client = transport(served.http, ONE, served.headers("ada", Role.USER))
    async with client.connected(served.url) as events:
        await anext(events)

    await write_attributes(served, note="Rain")

    async with client.connected(served.url) as events:
        async for payload in events:
            if "data" in payload:
                break
    assert payload["data"]["matchUpdates"]["liveScore"]["note"] == "Rain"
    assert payload["data"]["matchUpdates"]["isSnapshot"]


async def test_resuming_after_a_change_of_the_fixture_brings_the_next_version(served: Served) -> None:
    instance = await begin(served, "m1", balls=24)
    client = SocketClient(served.http, ONE, served.headers("ada", Role.USER))
    async with client.connected(served.url) as events:
        version = (await anext(events))["data"]["matchUpdates"]["version"]
        await write_attributes(served, playerOfMatch="77")
        assert (await anext(events))["data"]["matchUpdates"]["version"] == version

    await instance.poller.tick("m1")

    async with client.connected(served.url) as events:
        async for payload in events:
            if "data" in payload:
                break
    update_missed = payload["data"]["matchUpdates"]
    assert (update_missed["version"], update_missed["isSnapshot"]) == (version + 1, False)
