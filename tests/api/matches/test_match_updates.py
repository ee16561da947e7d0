"""Matches as they are played, over WebSockets and on the real engine (CRIC-S1, CRIC-S2)."""

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from datastore.keyspace.matches.active_matches import ACTIVE_MATCHES, active_match
from datastore.matches.cricket import CricketEvent, CricketEventKind
from datastore.matches.leagues import League, Leagues
from datastore.matches.live_state import ActiveStatus, active_match_item
from resolvers.matches.match_update import CONFLATABLE
from tests.support.active_matches import begin, matches, state
from tests.support.contract import every_call
from tests.support.fixture_steps import one, put, system
from tests.support.match_updates import FIELDS, UPDATES, advance, begun, follow, nobody_follows, play_out, publish
from tests.support.served import NOON, Listener, Served, call_name

SCORES = f"subscription {{ liveScores%s {{ isSnapshot updates {{ {FIELDS} }} }} }}"
LIVE_SCORE = FIELDS[FIELDS.index("liveScore") :]


async def updates_of(listener: Listener, until: Callable[[Any], bool]) -> list[Any]:
    """The updates of `matchUpdates` up to the first one that is the last."""
    found: list[Any] = []
    while not found or not until(found[-1]):
        found.append((await listener.event())["matchUpdates"])
    return found


def is_over(update: Any) -> bool:
    return bool(update["liveScore"]["phase"] == "FINISHED")


def reached(version: int) -> Callable[[Any], bool]:
    """Whether an update is at a version, or the last."""
    return lambda update: update["version"] >= version or is_over(update)


def check_sequence(updates: list[Any]) -> None:
    """A snapshot, then every version once."""
    assert updates[0]["isSnapshot"]
    assert updates[0]["events"] == []
    assert [update["isSnapshot"] for update in updates[1:]] == [False] * (len(updates) - 1)
    first = updates[0]["version"]
    assert [update["version"] for update in updates] == list(range(first, first + len(updates)))
    assert [update["liveScore"]["version"] for update in updates] == [update["version"] for update in updates]


async def live_score(served: Served, match_id: str = "m1") -> Any:
    """What the table has."""
    answer = await served.ask(f'{{ match(id: "{match_id}") {{ {LIVE_SCORE} }} }}')
    assert answer.errors is None
    return answer.data["match"]["liveScore"]


async def version_of(listener: Listener) -> tuple[int, bool]:
    """Version of the next update, and whether it is a snapshot."""
    update = (await listener.event())["matchUpdates"]
    return update["version"], update["isSnapshot"]


# matchUpdates: the snapshot


async def test_a_match_that_was_never_polled_begins_with_its_fixture(served: Served) -> None:
    await put(served, one(status="Delayed", note="Wet outfield"))

    update = (await (await follow(served)).event())["matchUpdates"]

    assert (update["version"], update["isSnapshot"], update["conflated"], update["events"]) == (0, True, 0, [])
    assert (update["matchId"], update["leagueCode"]) == ("m1", "IPL")
    assert (update["liveScore"]["status"], update["liveScore"]["note"]) == ("Delayed", "Wet outfield")
    assert update["liveScore"]["innings"] == []


async def test_a_match_that_ended_long_ago_is_told_from_its_fixture(served: Served) -> None:
    instance = await begin(served, "m1", balls=60)
    await play_out(instance, "m1")
    last = await live_score(served)
    await system(served, 'mutation { deactivateMatch(id: "m1") { fence } }')
    served.clock.forward(days=30)

    update = (await (await follow(served)).event())["matchUpdates"]

    assert (update["isSnapshot"], update["version"]) == (True, last["version"])
    # The fixture keeps totals and figures, not the last balls.
    assert update["liveScore"] == last | {"recentBalls": []}
    assert update["liveScore"]["result"] is not None


async def test_an_update_says_what_happened_and_how_the_match_stands(served: Served) -> None:
    await begun(served, "m1")
    listener = await follow(served)
    assert await version_of(listener) == (1, True)
    wicket = CricketEvent("m1:7:wicket", CricketEventKind.WICKET, "WICKET! A Batter b A Bowler", 1, "120/3", value=None)

    await advance(served, "m1", wicket)
    update = (await listener.event())["matchUpdates"]

    assert (update["version"], update["isSnapshot"], update["conflated"]) == (2, False, 0)
    assert update["events"] == [
        {"eventId": "m1:7:wicket", "kind": "WICKET", "text": wicket.text, "score": "120/3", "ball": None}
    ]
    assert update["liveScore"]["note"] == "version 2"
    assert update["liveScore"] == await live_score(served)


async def test_each_update_reads_its_match_anew_and_tells_the_time(served: Served) -> None:
    await begun(served, "m1", round="Group stage")
    listener = await follow(served, 'subscription { matchUpdates(matchId: "m1") { serverTime match { round } } }')
    first = await listener.event()

    await system(served, 'mutation { updateFixture(id: "m1", input: {round: "Final"}) { round } }')
    served.clock.forward(minutes=1)
    await advance(served)

    assert [first, await listener.event()] == [
        {"matchUpdates": {"serverTime": "2026-06-25T12:00:00+00:00", "match": {"round": "Group stage"}}},
        {"matchUpdates": {"serverTime": "2026-06-25T12:01:00+00:00", "match": {"round": "Final"}}},
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


async def test_what_cannot_be_followed_is_refused(served: Served) -> None:
    for field in REFUSED:
        listener = await follow(served, f"subscription {{ {field} }}")
        message = await listener.message()

        assert message["type"] == "next"
        assert [error["extensions"]["code"] for error in message["payload"]["errors"]] == ["BAD_USER_INPUT"], field
        assert (await listener.message())["type"] == "complete"


async def test_scores_of_a_league_that_does_not_exist_cannot_be_followed(served: Served) -> None:
    await Leagues(served.store(), NOON).put(League("1", "Big Bash League", "BBL"))

    known = await follow(served, 'subscription { liveScores(leagueCode: "BBL") { isSnapshot updates { version } } }')
    unknown = await follow(served, 'subscription { liveScores(leagueCode: "NOPE") { isSnapshot } }')

    scores = (await known.message())["payload"]["data"]["liveScores"]
    assert scores == {"isSnapshot": True, "updates": []}
    refusal = await unknown.message()
    assert (refusal["type"], refusal["payload"][0]["extensions"]["code"]) == ("error", "NOT_FOUND")


async def test_a_match_that_nobody_knows_cannot_be_followed(served: Served) -> None:
    listener = await follow(served)

    message = await listener.message()

    assert (message["type"], message["payload"][0]["extensions"]["code"]) == ("error", "NOT_FOUND")
    await nobody_follows(served)


# matchUpdates: every version once


@pytest.mark.parametrize("seed", [1, 2])
async def test_whenever_a_subscriber_joins_it_misses_nothing(served: Served, seed: int) -> None:
    chance = random.Random(seed)
    instance = await begin(served, "m1", balls=4)
    joins = [0, *sorted(chance.randint(0, 60) for _ in range(7))]

    async def subscriber(after: int) -> list[Any]:
        while len(instance.changes) < after:  # noqa: ASYNC110 - the poller tells no event
            await asyncio.sleep(0.001)
        await asyncio.sleep(chance.random() * 0.05)
        return await updates_of(await follow(served), is_over)

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
    # They did join at different moments.
    assert len({updates[0]["version"] for updates in followed}) >= 3


async def test_a_subscriber_whose_socket_is_cut_ends_with_the_same_state(served: Served) -> None:
    instance = await begin(served, "m1", balls=3)
    playing = asyncio.create_task(play_out(instance, "m1"))
    seen: list[list[Any]] = []

    for versions in (10, 25, 1000):
        listener = await follow(served)
        seen.append(await updates_of(listener, reached(versions)))
        # Cut, without a word of goodbye.
        listener.socket._response.connection.transport.abort()
    await playing

    for updates in seen:
        check_sequence(updates)
    for earlier, later in pairwise(seen):
        assert later[0]["version"] >= earlier[-1]["version"]
    assert seen[-1][-1]["liveScore"] == await live_score(served)


async def test_two_subscriptions_on_one_socket_do_not_mix(served: Served) -> None:
    await begun(served, "m1", "m2")
    listener = await follow(served, 'subscription { matchUpdates(matchId: "m1") { matchId version } }')
    other = {"query": 'subscription { matchUpdates(matchId: "m2") { matchId version } }'}
    await listener.socket.send_json({"id": "2", "type": "subscribe", "payload": other})
    await served.settle(ACTIVE_MATCHES, 2)
    for match_id in ("m2", "m1", "m2"):
        await advance(served, match_id)

    heard: dict[str, list[Any]] = {"1": [], "2": []}
    # A snapshot may be taken after the first changes.
    while [found[-1:] for found in heard.values()] != [[("m1", 2)], [("m2", 3)]]:
        message = await listener.message()
        heard[message["id"]].append(tuple(message["payload"]["data"]["matchUpdates"].values()))
    await listener.socket.send_json({"id": "2", "type": "complete"})
    await advance(served, "m1")

    assert heard["1"] == [("m1", 1), ("m1", 2)][-len(heard["1"]) :]
    assert heard["2"] == [("m2", 1), ("m2", 2), ("m2", 3)][-len(heard["2"]) :]
    assert (await listener.message())["payload"]["data"]["matchUpdates"] == {"matchId": "m1", "version": 3}


async def test_a_tick_that_changed_nothing_is_no_update(served: Served) -> None:
    instance = await begin(served, "m1")
    await instance.poller.tick("m1")
    listener = await follow(served)
    assert await version_of(listener) == (1, True)
    active = await state(served)

    served.clock.forward(seconds=2)
    assert await matches(served).record_tick("m1", active.fence)
    assert await matches(served).claim(active, "two") is not None
    await advance(served)

    assert await version_of(listener) == (2, False)
    assert (await state(served)).last_tick_at == NOON + timedelta(seconds=2)


async def test_a_match_that_is_taken_off_the_list_and_put_on_again_goes_on(served: Served) -> None:
    instance = await begin(served, "m1")
    for _ in range(3):
        await instance.poller.tick("m1")
    listener = await follow(served)
    version, _ = await version_of(listener)

    before = await state(served)
    await served.store().write_all(ACTIVE_MATCHES, puts=[active_match_item(replace(before, status=ActiveStatus.IDLE))])
    stored = await system(served, 'mutation { registerActiveMatch(id: "m1") { version } }')
    claimed = await matches(served).claim(await state(served), "one")
    assert claimed is not None
    await play_out(instance, "m1")
    updates = await updates_of(listener, is_over)

    assert stored.data == {"registerActiveMatch": {"version": version}}
    assert [update["version"] for update in updates] == [version + 1 + number for number in range(len(updates))]
    assert [update["isSnapshot"] for update in updates] == [False] * len(updates)
    assert updates[-1]["liveScore"] == await live_score(served)


async def test_a_deleted_match_completes_its_subscription_and_has_ended_for_others(served: Served) -> None:
    await begun(served, "m1")
    one, all_ = await follow(served), await follow(served, "subscription { liveScores { ended updates { version } } }")
    assert await version_of(one) == (1, True)
    assert (await all_.event())["liveScores"]["updates"] == [{"version": 1}]

    await served.store().write_all(ACTIVE_MATCHES, deletes=[active_match("m1")])

    assert (await one.message())["type"] == "complete"
    assert (await all_.event())["liveScores"] == {"ended": ["m1"], "updates": []}


async def test_a_change_without_a_new_version_is_a_snapshot_at_the_same_one(served: Served) -> None:
    await begun(served, "m1")
    one, all_ = await follow(served), await follow(served, SCORES % "")
    assert await version_of(one) == (1, True)
    await all_.event()

    before = await state(served)
    changed = replace(before, live=replace(before.live, note="Rain"))
    await served.store().write_all(ACTIVE_MATCHES, puts=[active_match_item(changed)])

    update = (await one.event())["matchUpdates"]
    scores = (await all_.event())["liveScores"]
    assert (update["version"], update["isSnapshot"], update["liveScore"]["note"]) == (1, True, "Rain")
    assert scores == {"isSnapshot": False, "updates": [update]}
    await advance(served)
    assert await version_of(one) == (2, False)


# matchUpdates: gaps


async def test_after_a_gap_there_is_one_snapshot_and_it_goes_on_from_there(served: Served) -> None:
    await begun(served, "m1")
    listener = await follow(served)
    assert await version_of(listener) == (1, True)

    await advance(served, by=3)
    gap = (await listener.event())["matchUpdates"]
    await advance(served)
    await advance(served)

    assert (gap["version"], gap["isSnapshot"], gap["liveScore"]["note"]) == (4, True, "version 4")
    assert [await version_of(listener) for _ in range(2)] == [(5, False), (6, False)]


async def test_what_comes_through_the_feed_after_a_snapshot_is_not_told_twice(served: Served) -> None:
    await begun(served, "m1")
    listener = await follow(served)
    assert await version_of(listener) == (1, True)

    # The feed is behind the table: the snapshot that fills the gap has the later versions already.
    publish(served, await advance(served, by=2))
    gap = await version_of(listener)
    for version in (2, 3):
        publish(served, replace(await state(served), version=version))
    await advance(served)

    assert [gap, await version_of(listener)] == [(3, True), (4, False)]


async def test_a_version_that_the_table_does_not_have_is_no_update(served: Served) -> None:
    await begun(served, "m1")
    listener = await follow(served)
    assert await version_of(listener) == (1, True)

    unknown = replace(await state(served), version=9)
    with every_call(served) as calls:
        publish(served, unknown)
        async with asyncio.timeout(5):
            while "GetItem active-matches" not in [call_name(call) for call in calls]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    await advance(served)

    assert await version_of(listener) == (2, False)


# liveScores


async def test_live_scores_begin_with_all_that_are_live(served: Served) -> None:
    await begun(served, "m2", "m1", "m3")
    await put(served, one("m4"))
    await system(served, 'mutation { deactivateMatch(id: "m3") { fence } }')
    await advance(served, "m2")

    scores = (await (await follow(served, SCORES % "")).event())["liveScores"]

    assert scores["isSnapshot"] is True
    assert [(one["matchId"], one["version"], one["isSnapshot"], one["events"]) for one in scores["updates"]] == [
        ("m1", 1, True, []),
        ("m2", 2, True, []),
    ]
    assert scores["updates"][1]["liveScore"] == await live_score(served, "m2")


async def test_where_nothing_is_live_there_is_an_empty_list_and_then_what_goes_live(served: Served) -> None:
    for interval in ("", "(minIntervalMs: 60000)"):
        listener = await follow(served, SCORES % interval)
        assert await listener.event() == {"liveScores": {"isSnapshot": True, "updates": []}}

        await begun(served, f"m{interval}")
        scores = (await listener.event())["liveScores"]

        assert scores["isSnapshot"] is False
        assert [(one["version"], one["isSnapshot"]) for one in scores["updates"]] == [(1, True)]
        await system(served, f'mutation {{ deactivateMatch(id: "m{interval}") {{ fence }} }}')


@pytest.mark.parametrize("interval", ["", "(minIntervalMs: 60000)"])
async def test_a_match_that_is_no_longer_live_is_told_and_begins_anew_when_it_is_back(
    served: Served, interval: str
) -> None:
    await begun(served, "m1", "m2")
    scores = f"subscription {{ liveScores{interval} {{ isSnapshot ended updates {{ matchId version isSnapshot }} }} }}"
    listener = await follow(served, scores)
    other = await follow(served, 'subscription { matchUpdates(matchId: "m1") { version } }')
    await served.settle(ACTIVE_MATCHES, 2)
    first = (await listener.event())["liveScores"]
    assert (len(first["updates"]), first["ended"]) == (2, [])

    await matches(served).set_idle("m1", (await state(served)).fence)
    left = (await listener.event())["liveScores"]
    await system(served, 'mutation { registerActiveMatch(id: "m1") { version } }')
    back = (await listener.event())["liveScores"]
    await system(served, 'mutation { deactivateMatch(id: "m2") { version } }')
    ended = (await listener.event())["liveScores"]

    assert left == {"isSnapshot": False, "ended": ["m1"], "updates": []}
    again = [{"matchId": "m1", "version": 1, "isSnapshot": True}]
    assert back == {"isSnapshot": False, "ended": [], "updates": again}
    assert ended == {"isSnapshot": False, "ended": ["m2"], "updates": []}
    # To a subscriber of the match nothing has changed.
    await advance(served, "m1")
    assert [(await other.event())["matchUpdates"]["version"] for _ in range(2)] == [1, 2]


async def test_a_gap_of_one_match_is_filled_and_the_others_go_on(served: Served) -> None:
    await begun(served, "m1", "m2")
    listener = await follow(served, SCORES % "")
    await listener.event()

    await advance(served, "m1", by=3)
    events = [(await listener.event())["liveScores"]]
    await advance(served, "m2")
    await advance(served, "m1")
    events += [(await listener.event())["liveScores"] for _ in range(2)]

    assert [event["isSnapshot"] for event in events] == [False] * 3
    assert [[(one["matchId"], one["version"], one["isSnapshot"]) for one in event["updates"]] for event in events] == [
        [("m1", 4, True)],
        [("m2", 2, False)],
        [("m1", 5, False)],
    ]


async def test_a_league_is_followed_by_its_code(served: Served) -> None:
    await begun(served, "m1", "m2")
    await begun(served, "b1", league_code="BBL")
    listener = await follow(served, SCORES % '(leagueCode: "BBL")')
    first = (await listener.event())["liveScores"]["updates"]

    await advance(served, "m1")
    await begun(served, "m3")
    await begun(served, "b2", league_code="BBL")
    await advance(served, "b1")
    later = [(await listener.event())["liveScores"]["updates"] for _ in range(2)]

    assert [one["matchId"] for one in first] == ["b1"]
    assert [[(one["matchId"], one["version"], one["isSnapshot"]) for one in updates] for updates in later] == [
        [("b2", 1, True)],
        [("b1", 2, False)],
    ]


async def test_five_matches_at_once_come_version_by_version(served: Served) -> None:
    ids = [f"m{number}" for number in range(5)]
    instance = await begin(served, *ids, balls=20)
    listener = await follow(served, SCORES % "")
    playing = asyncio.create_task(play_out(instance, *ids))

    last = await scores_until_over(listener, ids)
    await playing

    for match_id in ids:
        check_sequence(last[match_id])
        assert last[match_id][-1]["liveScore"] == await live_score(served, match_id)
        assert len(last[match_id]) > 10


async def scores_until_over(listener: Listener, ids: list[str]) -> dict[str, list[Any]]:
    """The updates of each match until all are over."""
    found: dict[str, list[Any]] = {match_id: [] for match_id in ids}
    while not all(updates and is_over(updates[-1]) for updates in found.values()):
        for update in (await listener.event())["liveScores"]["updates"]:
            found[update["matchId"]].append(update)
    return found


@pytest.mark.parametrize("milliseconds", [60_000, 200])
async def test_conflated_scores_lose_no_event_and_delay_no_wicket(served: Served, milliseconds: int) -> None:
    ids = ["m1", "m2"]
    instance = await begin(served, *ids, balls=3)
    plain = await follow(served, SCORES % "")
    slow = await follow(served, SCORES % f"(minIntervalMs: {milliseconds})")
    await served.settle(ACTIVE_MATCHES, 2)

    every, some, _ = await asyncio.gather(
        scores_until_over(plain, ids), scores_until_over(slow, ids), play_out(instance, *ids)
    )

    for match_id in ids:
        all_versions, told = every[match_id], some[match_id]
        check_sequence(all_versions)
        assert events_of(told) == events_of(all_versions)
        assert told[-1]["liveScore"] == all_versions[-1]["liveScore"]
        for before, after in pairwise(told):
            assert after["version"] == before["version"] + 1 + after["conflated"]
        urgent = {
            update["version"]
            for update in all_versions
            if {event["kind"] for event in update["events"]} - {kind.name for kind in CONFLATABLE}
        }
        versions = [update["version"] for update in told]
        assert urgent <= set(versions)
        assert len(versions) < len(all_versions)
        if milliseconds == 60_000:
            assert versions == [told[0]["version"], *sorted(urgent)]


def events_of(updates: list[Any]) -> list[str]:
    return [event["eventId"] for update in updates for event in update["events"]]


async def test_one_match_is_conflated_likewise(served: Served) -> None:
    await begun(served, "m1")
    query = 'subscription { matchUpdates(matchId: "m1", minIntervalMs: 60000) { version conflated events { kind } } }'
    listener = await follow(served, query)
    assert (await listener.event())["matchUpdates"]["version"] == 1
    four = CricketEvent("m1:1:four", CricketEventKind.FOUR, "FOUR!")
    result = CricketEvent("m1:result", CricketEventKind.RESULT, "Won by 3 runs")

    for events in ((four,), (), (result,)):
        await advance(served, "m1", *events)

    assert (await listener.event())["matchUpdates"] == {
        "version": 4,
        "conflated": 2,
        "events": [{"kind": "FOUR"}, {"kind": "RESULT"}],
    }


async def test_a_subscriber_that_leaves_is_forgotten_whatever_waits_for_it(served: Served) -> None:
    await begun(served, "m1")
    listeners = [
        await follow(served, SCORES % "(minIntervalMs: 60000)"),
        await follow(served, UPDATES),
        await follow(served, SCORES % ""),
    ]
    for listener in listeners:
        await listener.event()
    await advance(served)

    for listener in listeners:
        await listener.socket.close()

    await nobody_follows(served)
