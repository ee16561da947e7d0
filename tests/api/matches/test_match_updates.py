"""`matchUpdates` over WebSockets, on the real engine (CRIC-S1)."""

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from datastore.keyspace.matches.active_matches import ACTIVE_MATCHES, active_match
from datastore.matches.cricket_events import CricketEvent, CricketEventKind
from datastore.matches.leagues import League, Leagues
from datastore.matches.live_state import ActiveStatus
from tests.support.active_matches import active_match_state, begin, matches
from tests.support.contract import every_call
from tests.support.fixture_steps import ask_system, planned_match, put_fixtures
from tests.support.match_subscriptions import SCORES, check_sequence, is_over, live_score
from tests.support.match_updates import (
    advance,
    follow_updates,
    nobody_follows,
    play_out,
    publish,
    register_at_version_1,
)
from tests.support.served import NOON, Listener, Served, call_name


async def updates_of(listener: Listener, until: Callable[[Any], bool]) -> list[Any]:
    """Return the updates of `matchUpdates` up to the first one that satisfies `until`."""
    found: list[Any] = []
    while not found or not until(found[-1]):
        found.append((await listener.event())["matchUpdates"])
    return found


def reached(version: int) -> Callable[[Any], bool]:
    """Return a predicate: whether an update has this version, or a later one, or is the last."""
    return lambda update: update["version"] >= version or is_over(update)


async def version_of(listener: Listener) -> tuple[int, bool]:
    """Return the version of the next update, and whether it is a snapshot."""
    update = (await listener.event())["matchUpdates"]
    return update["version"], update["isSnapshot"]


# matchUpdates: the snapshot


async def test_the_snapshot_of_a_never_polled_match_is_its_fixture(served: Served) -> None:
    await put_fixtures(served, planned_match(status="Delayed", note="Wet outfield"))

    update = (await (await follow_updates(served)).event())["matchUpdates"]

    assert (update["version"], update["isSnapshot"], update["conflatedCount"], update["events"]) == (0, True, 0, [])
    assert (update["matchId"], update["leagueCode"]) == ("m1", "IPL")
    assert (update["liveScore"]["status"], update["liveScore"]["note"]) == ("Delayed", "Wet outfield")
    assert update["liveScore"]["innings"] == []


async def test_the_snapshot_of_a_match_that_ended_long_ago_is_its_fixture(served: Served) -> None:
    instance = await begin(served, "m1", balls=60)
    await play_out(instance, "m1")
    last = await live_score(served)
    await ask_system(served, 'mutation { endActiveMatch(id: "m1") { fence } }')
    served.clock.forward(days=30)

    update = (await (await follow_updates(served)).event())["matchUpdates"]

    assert (update["isSnapshot"], update["version"]) == (True, last["version"])
    # The fixture has totals and figures, but not the last balls.
    assert update["liveScore"] == last | {"recentBalls": []}
    assert update["liveScore"]["result"] is not None


async def test_an_update_has_the_events_and_the_state_of_the_match(served: Served) -> None:
    await register_at_version_1(served, "m1")
    listener = await follow_updates(served)
    assert await version_of(listener) == (1, True)
    wicket = CricketEvent("m1:7:wicket", CricketEventKind.WICKET, "WICKET! A Batter b A Bowler", 1, "120/3", value=None)

    await advance(served, "m1", wicket)
    update = (await listener.event())["matchUpdates"]

    assert (update["version"], update["isSnapshot"], update["conflatedCount"]) == (2, False, 0)
    assert update["events"] == [
        {"eventId": "m1:7:wicket", "kind": "WICKET", "text": wicket.text, "score": "120/3", "ball": None}
    ]
    assert update["liveScore"]["note"] == "version 2"
    assert update["liveScore"] == await live_score(served)


async def test_each_update_has_a_fresh_read_of_its_match_and_the_time(served: Served) -> None:
    await register_at_version_1(served, "m1", round="Group stage")
    listener = await follow_updates(served, 'subscription { matchUpdates(matchId: "m1") { sentAt match { round } } }')
    first = await listener.event()

    await ask_system(served, 'mutation { updateFixture(id: "m1", input: {round: "Final"}) { round } }')
    served.clock.forward(minutes=1)
    await advance(served)

    assert [first, await listener.event()] == [
        {"matchUpdates": {"sentAt": "2026-06-25T12:00:00.000Z", "match": {"round": "Group stage"}}},
        {"matchUpdates": {"sentAt": "2026-06-25T12:01:00.000Z", "match": {"round": "Final"}}},
    ]


REFUSED = [
    'matchUpdates(matchId: " ") { version }',
    'matchUpdates(matchId: "m1", minIntervalMs: -1) { version }',
    'matchUpdates(matchId: "m1", minIntervalMs: 60001) { version }',
    "liveScores(minIntervalMs: -1) { isSnapshot }",
    "liveScores(minIntervalMs: 60001) { isSnapshot }",
    'liveScores(leagueCode: "") { isSnapshot }',
    f'liveScores(leagueCode: "{"x" * 21}") {{ isSnapshot }}',
]


async def test_an_impossible_subscription_is_refused(served: Served) -> None:
    for field in REFUSED:
        listener = await follow_updates(served, f"subscription {{ {field} }}")
        message = await listener.message()

        assert message["type"] == "next"
        assert [error["extensions"]["code"] for error in message["payload"]["errors"]] == ["BAD_USER_INPUT"], field
        assert (await listener.message())["type"] == "complete"


async def test_scores_of_a_league_that_does_not_exist_cannot_be_followed(served: Served) -> None:
    await Leagues(served.store(), NOON).put(League("1", "Big Bash League", "BBL"))

    known = await follow_updates(
        served, 'subscription { liveScores(leagueCode: "BBL") { isSnapshot updates { version } } }'
    )
    unknown = await follow_updates(served, 'subscription { liveScores(leagueCode: "NOPE") { isSnapshot } }')

    scores = (await known.message())["payload"]["data"]["liveScores"]
    assert scores == {"isSnapshot": True, "updates": []}
    refusal = await unknown.message()
    assert (refusal["type"], refusal["payload"][0]["extensions"]["code"]) == ("error", "NOT_FOUND")


async def test_an_unknown_match_cannot_be_followed(served: Served) -> None:
    listener = await follow_updates(served)

    message = await listener.message()

    assert (message["type"], message["payload"][0]["extensions"]["code"]) == ("error", "NOT_FOUND")
    await nobody_follows(served)


# matchUpdates: every version once


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_subscriber_misses_no_version_whenever_it_joins(served: Served, seed: int) -> None:
    rng = random.Random(seed)
    instance = await begin(served, "m1", balls=4)
    joins = [0, *sorted(rng.randint(0, 60) for _ in range(7))]

    async def subscriber(after: int) -> list[Any]:
        while len(instance.changes) < after:  # noqa: ASYNC110 - the poller signals no event
            await asyncio.sleep(0.001)
        await asyncio.sleep(rng.random() * 0.05)
        return await updates_of(await follow_updates(served), is_over)

    followed, _ = await asyncio.gather(
        asyncio.gather(*[subscriber(after) for after in joins]), play_out(instance, "m1")
    )

    last = await live_score(served)
    assert len(instance.changes) > 60
    events = {change.active.version: change.active.events for change in instance.changes}
    for updates in followed:
        check_sequence(updates)
        assert updates[-1]["liveScore"] == last
        for update in updates[1:]:
            assert [event["eventId"] for event in update["events"]] == [
                event.event_id for event in events[update["version"]]
            ]
    # The subscribers joined at different versions.
    assert len({updates[0]["version"] for updates in followed}) >= 3


async def test_a_subscriber_with_lost_connections_ends_with_the_same_state(served: Served) -> None:
    instance = await begin(served, "m1", balls=3)
    playing = asyncio.create_task(play_out(instance, "m1"))
    seen: list[list[Any]] = []

    for versions in (10, 25, 1000):
        listener = await follow_updates(served)
        seen.append(await updates_of(listener, reached(versions)))
        # Drop the connection without a close frame.
        listener.socket._response.connection.transport.abort()
    await playing

    for updates in seen:
        check_sequence(updates)
    for earlier, later in pairwise(seen):
        assert later[0]["version"] >= earlier[-1]["version"]
    assert seen[-1][-1]["liveScore"] == await live_score(served)


async def test_two_subscriptions_on_one_socket_are_separate(served: Served) -> None:
    await register_at_version_1(served, "m1", "m2")
    listener = await follow_updates(served, 'subscription { matchUpdates(matchId: "m1") { matchId version } }')
    other = {"query": 'subscription { matchUpdates(matchId: "m2") { matchId version } }'}
    await listener.socket.send_json({"id": "2", "type": "subscribe", "payload": other})
    await served.settle(ACTIVE_MATCHES, 2)
    for match_id in ("m2", "m1", "m2"):
        await advance(served, match_id)

    received: dict[str, list[Any]] = {"1": [], "2": []}
    # A snapshot may be taken after the first changes.
    while [found[-1:] for found in received.values()] != [[("m1", 2)], [("m2", 3)]]:
        message = await listener.message()
        received[message["id"]].append(tuple(message["payload"]["data"]["matchUpdates"].values()))
    await listener.socket.send_json({"id": "2", "type": "complete"})
    await advance(served, "m1")

    assert received["1"] == [("m1", 1), ("m1", 2)][-len(received["1"]) :]
    assert received["2"] == [("m2", 1), ("m2", 2), ("m2", 3)][-len(received["2"]) :]
    assert (await listener.message())["payload"]["data"]["matchUpdates"] == {"matchId": "m1", "version": 3}


async def test_a_tick_without_a_change_sends_no_update(served: Served) -> None:
    instance = await begin(served, "m1")
    await instance.poller.tick("m1")
    listener = await follow_updates(served)
    assert await version_of(listener) == (1, True)
    active = await active_match_state(served)

    served.clock.forward(seconds=2)
    assert await matches(served).record_tick("m1", active.fence)
    assert await matches(served).claim(active, "two") is not None
    await advance(served)

    assert await version_of(listener) == (2, False)
    assert (await active_match_state(served)).last_tick_at == NOON + timedelta(seconds=2)


async def test_a_match_that_is_paused_and_registered_again_continues(served: Served) -> None:
    instance = await begin(served, "m1")
    for _ in range(3):
        await instance.poller.tick("m1")
    listener = await follow_updates(served)
    version, _ = await version_of(listener)

    before = await active_match_state(served)
    await served.store().write_all(ACTIVE_MATCHES, puts=[replace(before, status=ActiveStatus.IDLE).item()])
    stored = await ask_system(served, 'mutation { registerActiveMatch(id: "m1") { version } }')
    claimed = await matches(served).claim(await active_match_state(served), "one")
    assert claimed is not None
    await play_out(instance, "m1")
    updates = await updates_of(listener, is_over)

    assert stored.data == {"registerActiveMatch": {"version": version}}
    assert [update["version"] for update in updates] == [version + 1 + number for number in range(len(updates))]
    assert [update["isSnapshot"] for update in updates] == [False] * len(updates)
    assert updates[-1]["liveScore"] == await live_score(served)


async def test_a_deleted_match_completes_its_subscription_and_ends_in_live_scores(served: Served) -> None:
    await register_at_version_1(served, "m1")
    one, all_ = (
        await follow_updates(served),
        await follow_updates(served, "subscription { liveScores { removedMatchIds updates { version } } }"),
    )
    assert await version_of(one) == (1, True)
    assert (await all_.event())["liveScores"]["updates"] == [{"version": 1}]

    await served.store().write_all(ACTIVE_MATCHES, deletes=[active_match("m1")])

    assert (await one.message())["type"] == "complete"
    assert (await all_.event())["liveScores"] == {"removedMatchIds": ["m1"], "updates": []}


async def test_a_change_without_a_new_version_is_a_snapshot_of_the_same_version(served: Served) -> None:
    await register_at_version_1(served, "m1")
    one, all_ = await follow_updates(served), await follow_updates(served, SCORES % "")
    assert await version_of(one) == (1, True)
    await all_.event()

    before = await active_match_state(served)
    changed = replace(before, live=replace(before.live, note="Rain"))
    await served.store().write_all(ACTIVE_MATCHES, puts=[changed.item()])

    update = (await one.event())["matchUpdates"]
    scores = (await all_.event())["liveScores"]
    assert (update["version"], update["isSnapshot"], update["liveScore"]["note"]) == (1, True, "Rain")
    assert scores == {"isSnapshot": False, "updates": [update]}
    await advance(served)
    assert await version_of(one) == (2, False)


# matchUpdates: gaps


async def test_a_gap_is_filled_by_one_snapshot_and_updates_continue_from_there(served: Served) -> None:
    await register_at_version_1(served, "m1")
    listener = await follow_updates(served)
    assert await version_of(listener) == (1, True)

    await advance(served, by=3)
    gap = (await listener.event())["matchUpdates"]
    await advance(served)
    await advance(served)

    assert (gap["version"], gap["isSnapshot"], gap["liveScore"]["note"]) == (4, True, "version 4")
    assert [await version_of(listener) for _ in range(2)] == [(5, False), (6, False)]


async def test_a_change_after_its_snapshot_is_not_sent_twice(served: Served) -> None:
    await register_at_version_1(served, "m1")
    listener = await follow_updates(served)
    assert await version_of(listener) == (1, True)

    # The stream is behind the table, so the snapshot that fills the gap includes the later versions.
    publish(served, await advance(served, by=2))
    gap = await version_of(listener)
    for version in (2, 3):
        publish(served, replace(await active_match_state(served), version=version))
    await advance(served)

    assert [gap, await version_of(listener)] == [(3, True), (4, False)]


async def test_a_version_that_the_table_does_not_have_is_no_update(served: Served) -> None:
    await register_at_version_1(served, "m1")
    listener = await follow_updates(served)
    assert await version_of(listener) == (1, True)

    unknown = replace(await active_match_state(served), version=9)
    with every_call(served) as calls:
        publish(served, unknown)
        async with asyncio.timeout(50):
            while "GetItem active-matches" not in [call_name(call) for call in calls]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    await advance(served)

    assert await version_of(listener) == (2, False)
