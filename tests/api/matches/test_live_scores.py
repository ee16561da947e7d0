"""`liveScores` over WebSockets, on the real engine (CRIC-S2), and conflation."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from datastore.keyspace.matches.active_matches import ACTIVE_MATCHES
from datastore.matches.cricket_events import CricketEvent, CricketEventKind
from resolvers.matches.match_update import CONFLATABLE
from tests.support.active_matches import active_match_state, begin, matches
from tests.support.fixture_steps import ask_system, planned_match, put_fixtures
from tests.support.match_subscriptions import SCORES, check_sequence, is_over, live_score
from tests.support.match_updates import (
    UPDATES,
    advance,
    follow_updates,
    nobody_follows,
    play_out,
    register_at_version_1,
)
from tests.support.served import Listener, Served

# liveScores


async def test_live_scores_begin_with_all_live_matches(served: Served) -> None:
    await register_at_version_1(served, "m2", "m1", "m3")
    await put_fixtures(served, planned_match("m4"))
    await ask_system(served, 'mutation { endActiveMatch(id: "m3") { fence } }')
    await advance(served, "m2")

    scores = (await (await follow_updates(served, SCORES % "")).event())["liveScores"]

    assert scores["isSnapshot"] is True
    assert [(one["matchId"], one["version"], one["isSnapshot"], one["events"]) for one in scores["updates"]] == [
        ("m1", 1, True, []),
        ("m2", 2, True, []),
    ]
    assert scores["updates"][1]["liveScore"] == await live_score(served, "m2")


async def test_without_live_matches_the_list_is_empty_until_one_goes_live(served: Served) -> None:
    for interval in ("", "(minIntervalMs: 60000)"):
        listener = await follow_updates(served, SCORES % interval)
        assert await listener.event() == {"liveScores": {"isSnapshot": True, "updates": []}}

        await register_at_version_1(served, f"m{interval}")
        scores = (await listener.event())["liveScores"]

        assert scores["isSnapshot"] is False
        assert [(one["version"], one["isSnapshot"]) for one in scores["updates"]] == [(1, True)]
        await ask_system(served, f'mutation {{ endActiveMatch(id: "m{interval}") {{ fence }} }}')


@pytest.mark.parametrize("interval", ["", "(minIntervalMs: 60000)"])
async def test_a_match_that_is_no_longer_live_is_reported_and_begins_with_a_snapshot_when_it_returns(
    served: Served, interval: str
) -> None:
    await register_at_version_1(served, "m1", "m2")
    scores = f"""subscription {{ liveScores{interval} {{
      isSnapshot removedMatchIds updates {{ matchId version isSnapshot }}
    }} }}"""
    listener = await follow_updates(served, scores)
    other = await follow_updates(served, 'subscription { matchUpdates(matchId: "m1") { version } }')
    await served.settle(ACTIVE_MATCHES, 2)
    first = (await listener.event())["liveScores"]
    assert (len(first["updates"]), first["removedMatchIds"]) == (2, [])

    await matches(served).set_idle("m1", (await active_match_state(served)).fence)
    left = (await listener.event())["liveScores"]
    await ask_system(served, 'mutation { registerActiveMatch(id: "m1") { version } }')
    back = (await listener.event())["liveScores"]
    await ask_system(served, 'mutation { endActiveMatch(id: "m2") { version } }')
    ended = (await listener.event())["liveScores"]

    assert left == {"isSnapshot": False, "removedMatchIds": ["m1"], "updates": []}
    again = [{"matchId": "m1", "version": 1, "isSnapshot": True}]
    assert back == {"isSnapshot": False, "removedMatchIds": [], "updates": again}
    assert ended == {"isSnapshot": False, "removedMatchIds": ["m2"], "updates": []}
    # A subscriber of the match receives no update of that.
    await advance(served, "m1")
    assert [(await other.event())["matchUpdates"]["version"] for _ in range(2)] == [1, 2]


async def test_a_gap_of_one_match_is_filled_and_the_others_continue(served: Served) -> None:
    await register_at_version_1(served, "m1", "m2")
    listener = await follow_updates(served, SCORES % "")
    await listener.event()

    await advance(served, "m1", by=3)
    events = [(await listener.event())["liveScores"]]
    await advance(served, "m2")
    await advance(served, "m1")
    events += [(await listener.event())["liveScores"] for _ in range(2)]

    assert [event["isSnapshot"] for event in events] == [False] * 3
    assert [
        [(update["matchId"], update["version"], update["isSnapshot"]) for update in event["updates"]]
        for event in events
    ] == [
        [("m1", 4, True)],
        [("m2", 2, False)],
        [("m1", 5, False)],
    ]


async def test_a_league_is_followed_by_its_code(served: Served) -> None:
    await register_at_version_1(served, "m1", "m2")
    await register_at_version_1(served, "b1", league_code="BBL")
    listener = await follow_updates(served, SCORES % '(leagueCode: "BBL")')
    first = (await listener.event())["liveScores"]["updates"]

    await advance(served, "m1")
    await register_at_version_1(served, "m3")
    await register_at_version_1(served, "b2", league_code="BBL")
    await advance(served, "b1")
    later = [(await listener.event())["liveScores"]["updates"] for _ in range(2)]

    assert [update["matchId"] for update in first] == ["b1"]
    assert [
        [(update["matchId"], update["version"], update["isSnapshot"]) for update in updates] for updates in later
    ] == [
        [("b2", 1, True)],
        [("b1", 2, False)],
    ]


async def test_five_concurrent_matches_are_sent_version_by_version(served: Served) -> None:
    ids = [f"m{number}" for number in range(5)]
    instance = await begin(served, *ids, balls=20)
    listener = await follow_updates(served, SCORES % "")
    playing = asyncio.create_task(play_out(instance, *ids))

    last = await scores_until_over(listener, ids)
    await playing

    for match_id in ids:
        check_sequence(last[match_id])
        assert last[match_id][-1]["liveScore"] == await live_score(served, match_id)
        assert len(last[match_id]) > 10


async def scores_until_over(listener: Listener, ids: list[str]) -> dict[str, list[Any]]:
    """Return the updates of each match until all are over."""
    found: dict[str, list[Any]] = {match_id: [] for match_id in ids}
    while not all(updates and is_over(updates[-1]) for updates in found.values()):
        for update in (await listener.event())["liveScores"]["updates"]:
            found[update["matchId"]].append(update)
    return found


@pytest.mark.proof
@pytest.mark.parametrize("milliseconds", [60_000, 200])
async def test_conflated_scores_lose_no_event_and_delay_no_wicket(served: Served, milliseconds: int) -> None:
    ids = ["m1", "m2"]
    instance = await begin(served, *ids, balls=3)
    plain = await follow_updates(served, SCORES % "")
    slow = await follow_updates(served, SCORES % f"(minIntervalMs: {milliseconds})")
    await served.settle(ACTIVE_MATCHES, 2)

    every, some, _ = await asyncio.gather(
        scores_until_over(plain, ids), scores_until_over(slow, ids), play_out(instance, *ids)
    )

    for match_id in ids:
        all_versions, conflated = every[match_id], some[match_id]
        check_sequence(all_versions)
        assert event_ids_of_updates(conflated) == event_ids_of_updates(all_versions)
        assert conflated[-1]["liveScore"] == all_versions[-1]["liveScore"]
        for before, after in pairwise(conflated):
            assert after["version"] == before["version"] + 1 + after["conflatedCount"]
        urgent = {
            update["version"]
            for update in all_versions
            if {event["kind"] for event in update["events"]} - {kind.name for kind in CONFLATABLE}
        }
        versions = [update["version"] for update in conflated]
        assert urgent <= set(versions)
        assert len(versions) < len(all_versions)
        if milliseconds == 60_000:
            assert versions == [conflated[0]["version"], *sorted(urgent)]


def event_ids_of_updates(updates: list[Any]) -> list[str]:
    return [event["eventId"] for update in updates for event in update["events"]]


async def test_updates_of_one_match_are_conflated_too(served: Served) -> None:
    await register_at_version_1(served, "m1")
    query = (
        'subscription { matchUpdates(matchId: "m1", minIntervalMs: 60000) { version conflatedCount events { kind } } }'
    )
    listener = await follow_updates(served, query)
    assert (await listener.event())["matchUpdates"]["version"] == 1
    four = CricketEvent("m1:1:four", CricketEventKind.FOUR, "FOUR!")
    result = CricketEvent("m1:result", CricketEventKind.RESULT, "Won by 3 runs")

    for events in ((four,), (), (result,)):
        await advance(served, "m1", *events)

    assert (await listener.event())["matchUpdates"] == {
        "version": 4,
        "conflatedCount": 2,
        "events": [{"kind": "FOUR"}, {"kind": "RESULT"}],
    }


async def test_a_subscriber_that_leaves_is_removed_with_its_waiting_events(served: Served) -> None:
    await register_at_version_1(served, "m1")
    listeners = [
        await follow_updates(served, SCORES % "(minIntervalMs: 60000)"),
        await follow_updates(served, UPDATES),
        await follow_updates(served, SCORES % ""),
    ]
    for listener in listeners:
        await listener.event()
    await advance(served)

    for listener in listeners:
        await listener.socket.close()

    await nobody_follows(served)
