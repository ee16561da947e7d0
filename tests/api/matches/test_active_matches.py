"""Active matches, their live scores, and locks, on the real engine (AM-1 … AM-7, LOCK-4)."""

import asyncio
import dataclasses
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from datastore.keyspace.matches import active_matches as keys
from datastore.keyspace.matches.active_matches import ACTIVE_MATCHES, active_match
from datastore.keyspace.matches.locks import LOCKS
from datastore.matches.fixtures import Fixtures
from datastore.matches.live_state import ActiveStatus
from datastore.matches.locks import Locks
from datastore.model.identity import Role
from datastore.model.timestamps import iso
from pipelines.matches.live.poller import TickOutcome
from resolvers.shared.global_ids import global_id
from tests.support.active_matches import active_match_state, begin, matches
from tests.support.fixture_steps import ask_system, planned_match, put_fixtures, store_played_match
from tests.support.served import NOON, Answer, Served

STATE = """
  matchId leagueCode status instanceId fence version lastTickAt updatedAt previousBallId changed expiresAt
  liveScore { version updatedAt status phase innings { runs } batting { name } bowling { name } recentBalls { label } }
  events { kind } match { matchId version }
"""
ACTIVE = f'{{ activeMatch(id: "m1") {{ {STATE} }} }}'
REGISTER = f'mutation {{ registerActiveMatch(id: "m1") {{ {STATE} }} }}'
DEACTIVATE = 'mutation { endActiveMatch(id: "m1") { status fence version expiresAt liveScore { version } } }'
DELETE = 'mutation { deleteActiveMatch(id: "m1") { matchId status version } }'
ALL = "{ activeMatches { matchId status } }"
LIVE = "{ liveMatches { matchId leagueCode version liveScore { version status innings { runs } } match { round } } }"
MOMENT = "2026-06-25T12:00:00.000Z"


# AM-3: register


async def test_a_match_is_registered_with_its_current_state(served: Served) -> None:
    await store_played_match(served, planned_match())

    answer = await ask_system(served, REGISTER)

    assert answer.made == [
        "GetItem active-matches",
        "GetItem cricket-fixtures",  # the consistent read is for the write, the other for the field `match`
        "GetItem cricket-fixtures",
        "PutItem active-matches",
    ]
    assert answer.data["registerActiveMatch"] == {
        "matchId": "m1",
        "leagueCode": "IPL",
        "status": "ACTIVE",
        "instanceId": None,
        # The fixture has fence 2 and version 7: registering changes the owner, not the state.
        "fence": 3,
        "version": 7,
        "lastTickAt": None,
        "updatedAt": MOMENT,
        "previousBallId": None,
        "changed": [],
        "expiresAt": None,
        "liveScore": {
            "version": 7,
            "updatedAt": MOMENT,
            "status": "1st Innings",
            "phase": "LIVE",
            "innings": [{"runs": 120}],
            "batting": [{"name": "A Batter"}],
            "bowling": [{"name": "A Bowler"}],
            "recentBalls": [],
        },
        "events": [],
        "match": {"matchId": "m1", "version": 7},
    }
    assert (await ask_system(served, ACTIVE)).data["activeMatch"] == answer.data["registerActiveMatch"]


async def test_an_unknown_match_is_not_registered(served: Served) -> None:
    answer = await ask_system(served, REGISTER)

    assert answer.codes == ["NOT_FOUND"]
    assert (await ask_system(served, ALL)).data == {"activeMatches": []}


async def test_twenty_concurrent_registrations_are_one(served: Served) -> None:
    await put_fixtures(served, planned_match())

    answers = await asyncio.gather(*[ask_system(served, REGISTER) for _ in range(20)])

    assert [answer.errors for answer in answers] == [None] * 20
    assert [answer.data for answer in answers] == [answers[0].data] * 20
    assert ((await active_match_state(served)).fence, (await active_match_state(served)).version) == (1, 0)


async def test_an_active_match_is_returned_by_a_repeated_registration_and_an_ended_one_is_not(served: Served) -> None:
    await put_fixtures(served, planned_match())
    first = await ask_system(served, REGISTER)
    before = await active_match_state(served)

    again = await ask_system(served, REGISTER)
    assert (again.data, again.errors) == (first.data, None)
    assert not [call for call in again.calls if call.operation == "PutItem"]
    assert await active_match_state(served) == before
    await ask_system(served, DEACTIVATE)
    ended = await active_match_state(served)
    assert (await ask_system(served, REGISTER)).codes == ["CONFLICT"]
    assert await active_match_state(served) == ended


async def test_an_inactive_match_continues_from_its_own_state(served: Served) -> None:
    instance = await begin(served, "m1")
    for _ in range(5):
        await instance.poller.tick("m1")
    before = await active_match_state(served)
    assert await matches(served).set_idle("m1", before.fence)

    answer = await ask_system(served, REGISTER)

    assert answer.errors is None
    after = await active_match_state(served)
    assert after.status is ActiveStatus.ACTIVE
    assert (after.version, after.fence) == (before.version, before.fence + 2)
    assert (after.live.recent_balls, after.announced) == (before.live.recent_balls, before.announced)
    assert (after.previous_ball_id, after.events) == (before.previous_ball_id, ())


async def test_a_fence_continues_from_the_state_or_the_fixture_and_a_version_from_the_state(served: Served) -> None:
    match = planned_match()
    await put_fixtures(served, match)
    seen = []
    for ahead in (None, replace(match, version=20, fence=9)):
        await ask_system(served, REGISTER)
        seen.append(await active_match_state(served))
        assert await matches(served).set_idle("m1", seen[-1].fence)
        if ahead:
            assert await Fixtures(served.store(), NOON).write_live(ahead)
    await ask_system(served, REGISTER)
    seen.append(await active_match_state(served))

    assert [(active.version, active.fence) for active in seen] == [(0, 1), (0, 3), (0, 10)]
    assert [active.live.version for active in seen] == [0, 0, 0]


async def test_a_match_with_an_expired_but_stored_state_is_registered(served: Served) -> None:
    await put_fixtures(served, planned_match())
    await ask_system(served, REGISTER)
    await ask_system(served, DEACTIVATE)
    served.clock.forward(hours=24)
    assert (await ask_system(served, ACTIVE)).data == {"activeMatch": None}
    seeing_expired = dataclasses.replace(keys.STATE_FOR_TICK, sees_expired=True)
    assert await served.store().get(seeing_expired, active_match("m1")) is not None

    answer = await ask_system(served, REGISTER)

    assert answer.errors is None
    assert answer.data["registerActiveMatch"]["status"] == "ACTIVE"
    assert answer.data["registerActiveMatch"]["expiresAt"] is None


# AM-6, AM-7: deactivate, delete


async def test_a_deactivated_match_is_kept_for_a_day(served: Served) -> None:
    instance = await begin(served, "m1")
    await instance.poller.tick("m1")
    before = await active_match_state(served)

    answer = await ask_system(served, DEACTIVATE)

    assert answer.made == ["UpdateItem active-matches"]
    assert answer.data["endActiveMatch"] == {
        "status": "ENDED",
        "fence": before.fence + 1,
        "version": before.version,
        "expiresAt": "2026-06-26T12:00:00.000Z",
        "liveScore": {"version": before.version},
    }
    public = '{ match(id: "m1") { liveScore { version } } }'
    served.clock.forward(hours=24, microseconds=-1)
    assert (await served.ask(public)).data["match"]["liveScore"] == {"version": before.version}
    assert (await ask_system(served, ALL)).data == {"activeMatches": [{"matchId": "m1", "status": "ENDED"}]}
    assert (await served.ask(LIVE)).data == {"liveMatches": []}
    served.clock.forward(microseconds=1)
    assert (await served.ask(public)).data == {"match": {"liveScore": None}}
    assert (await ask_system(served, ALL)).data == {"activeMatches": []}


async def test_the_poller_of_a_deactivated_match_is_fenced_off(served: Served) -> None:
    instance = await begin(served, "m1")
    await instance.poller.tick("m1")
    before = await active_match_state(served)

    await ask_system(served, DEACTIVATE)

    commit = replace(before, version=before.version + 1)
    assert await matches(served).commit(commit) is False
    assert await matches(served).record_tick("m1", before.fence) is False
    assert await instance.poller.tick("m1") is TickOutcome.LOST
    after = await active_match_state(served)
    assert (after.version, after.live, after.cooldowns) == (before.version, before.live, before.cooldowns)


async def test_a_tick_during_the_deactivation_of_its_match_writes_nothing(served: Served) -> None:
    instance = await begin(served, "m1")
    for _ in range(2):  # the first tick finds no change
        await instance.poller.tick("m1")
    before = await active_match_state(served)
    provider = instance.poller._provider
    record = provider.match

    async def slowly(match_id: str) -> Any:
        snapshot = await record(match_id)
        await ask_system(served, DEACTIVATE)
        return snapshot

    provider.match = slowly  # type: ignore[method-assign]

    assert await instance.poller.tick("m1") is TickOutcome.LOST
    assert ((await active_match_state(served)).version, (await active_match_state(served)).status) == (
        before.version,
        ActiveStatus.ENDED,
    )
    assert [change.active.version for change in instance.changes] == [before.version]


async def test_a_match_without_a_state_is_neither_deactivated_nor_created(served: Served) -> None:
    await put_fixtures(served, planned_match())

    assert (await ask_system(served, DEACTIVATE)).codes == ["NOT_FOUND"]
    answer = await ask_system(served, DELETE)

    assert (answer.data, answer.errors) == ({"deleteActiveMatch": None}, None)
    assert (await ask_system(served, ACTIVE)).data == {"activeMatch": None}


async def test_a_state_is_deleted_unless_it_is_polled(served: Served) -> None:
    await put_fixtures(served, planned_match())
    await ask_system(served, REGISTER)

    refused = await ask_system(served, DELETE)
    assert (refused.codes, refused.made) == (["CONFLICT"], ["DeleteItem active-matches"])
    assert (await active_match_state(served)).status is ActiveStatus.ACTIVE
    await ask_system(served, DEACTIVATE)
    answer = await ask_system(served, DELETE)

    assert answer.data == {"deleteActiveMatch": {"matchId": "m1", "status": "ENDED", "version": 0}}
    assert (await ask_system(served, ACTIVE)).data == {"activeMatch": None}
    assert (await ask_system(served, REGISTER)).errors is None


async def test_a_version_does_not_decrease_when_a_state_is_deleted(served: Served) -> None:
    instance = await begin(served, "m1")
    for _ in range(4):
        await instance.poller.tick("m1")
    before = await active_match_state(served)
    await ask_system(served, DEACTIVATE)
    await ask_system(served, DELETE)

    answer = await ask_system(served, REGISTER)

    again = answer.data["registerActiveMatch"]
    assert again["version"] == before.version
    assert again["fence"] > before.fence
    assert again["liveScore"]["innings"] == [{"runs": score.runs} for score in before.live.innings]


# AM-1, AM-2: reading


async def test_states_are_read_together(served: Served) -> None:
    instance = await begin(served, "m1", "m2", "m3")
    await instance.poller.tick("m2")

    answer = await served.ask('{ matches(ids: ["m3", "m2", "none", "m1"]) { matchId liveScore { version status } } }')
    private = await ask_system(
        served, '{ matches(ids: ["m1", "m2"]) { activeMatch { instanceId liveScore { version } } } }'
    )

    assert answer.data["matches"] == [
        {"matchId": "m3", "liveScore": {"version": 1, "status": "NS"}},
        {"matchId": "m2", "liveScore": {"version": 1, "status": "NS"}},
        None,
        {"matchId": "m1", "liveScore": {"version": 1, "status": "NS"}},
    ]
    assert answer.made == ["BatchGetItem active-matches", "BatchGetItem cricket-fixtures"]
    assert private.data["matches"] == [{"activeMatch": {"instanceId": "one", "liveScore": {"version": 1}}}] * 2
    assert private.made == ["BatchGetItem active-matches", "BatchGetItem cricket-fixtures"]


async def test_live_matches_are_one_query_for_every_caller(served: Served) -> None:
    await put_fixtures(
        served, planned_match("m1", round="Final"), planned_match("m2"), planned_match("m3"), planned_match("m4")
    )
    for match_id in ("m3", "m1", "m2"):
        await ask_system(served, f'mutation {{ registerActiveMatch(id: "{match_id}") {{ fence }} }}')
    await matches(served).set_idle("m2", 1)
    await ask_system(served, 'mutation { endActiveMatch(id: "m3") { fence } }')

    live = await served.ask(LIVE)
    listed = await ask_system(served, ALL)

    assert live.data["liveMatches"] == [
        {
            "matchId": "m1",
            "leagueCode": "IPL",
            "version": 0,
            "liveScore": {"version": 0, "status": "NS", "innings": []},
            "match": {"round": "Final"},
        }
    ]
    assert live.made == ["GetItem cricket-fixtures", "Query active-matches.live-matchId-index"]
    assert listed.data["activeMatches"] == [
        {"matchId": "m1", "status": "ACTIVE"},
        {"matchId": "m2", "status": "IDLE"},
        {"matchId": "m3", "status": "ENDED"},
    ]
    assert listed.made == ["Scan active-matches"]


async def test_a_damaged_state_is_omitted_from_lists_and_an_error_by_id(served: Served) -> None:
    await put_fixtures(served, planned_match("m1"), planned_match("m2"))
    await ask_system(served, REGISTER)
    damaged = {"matchId": "m2", "status": "active", "leagueCode": "IPL", "version": 3, "previousScore": "{"}
    await served.store().write_all(ACTIVE_MATCHES, puts=[damaged])

    live = await served.ask("{ liveMatches { matchId } }")
    both = await served.ask('{ matches(ids: ["m1", "m2"]) { matchId liveScore { version } } }')

    assert (live.data, live.errors) == ({"liveMatches": [{"matchId": "m1"}]}, None)
    assert (await ask_system(served, ALL)).data["activeMatches"] == [{"matchId": "m1", "status": "ACTIVE"}]
    assert both.data["matches"] == [
        {"matchId": "m1", "liveScore": {"version": 0}},
        {"matchId": "m2", "liveScore": None},
    ]
    assert both.codes == ["INTERNAL"]


async def test_the_global_id_of_a_state_is_for_the_system_only(served: Served) -> None:
    await put_fixtures(served, planned_match())
    await ask_system(served, REGISTER)
    query = "query ($ids: [ID!]!) { nodes(ids: $ids) { id ... on ActiveMatch { matchId fence match { matchId } } } }"
    ids = {"ids": [global_id("ActiveMatch", "m1"), global_id("ActiveMatch", "m2")]}

    found = await ask_system(served, query, ids)
    refused = await served.ask(query, ids, user="ada")

    assert found.data["nodes"] == [
        {"id": ids["ids"][0], "matchId": "m1", "fence": 1, "match": {"matchId": "m1"}},
        None,
    ]
    assert (refused.data["nodes"], refused.codes) == ([None, None], ["FORBIDDEN"] * 2)
    assert refused.calls == []


@pytest.mark.parametrize(
    ("user", "role", "code"),
    [(None, Role.USER, "UNAUTHENTICATED"), ("ada", Role.USER, "FORBIDDEN"), ("root", Role.ADMIN, "FORBIDDEN")],
)
async def test_only_the_system_changes_active_matches(served: Served, user: str | None, role: Role, code: str) -> None:
    await put_fixtures(served, planned_match())
    await ask_system(served, REGISTER)
    before = await active_match_state(served)

    async def ask(query: str) -> Answer:
        return await served.ask(query, user=user, role=role)

    answers = [await ask(query) for query in (ACTIVE, ALL, REGISTER, DEACTIVATE, DELETE, "{ locks { lockKey } }")]

    assert [answer.codes for answer in answers] == [[code]] * 6
    assert [answer.calls for answer in answers] == [[]] * 6
    assert await active_match_state(served) == before


# LOCK-4


async def test_operators_see_all_locks_including_expired_ones(served: Served) -> None:
    one, two = (Locks(served.store(), owner, NOON) for owner in ("one", "two"))
    assert await two.acquire("match:m2", 30)
    assert await one.acquire("match:m1")
    assert await one.acquire("job:teams", 0.5)
    assert not await two.acquire("match:m1")
    await served.store().write_all(LOCKS, puts=[{"lockKey": "damaged", "owner": "me"}])
    served.clock.forward(seconds=20)

    answer = await ask_system(served, "{ locks { lockKey owner expiresAt } }")

    assert answer.data["locks"] == [
        {"lockKey": "job:teams", "owner": "one", "expiresAt": "2026-06-25T12:00:00.500Z"},
        {"lockKey": "match:m1", "owner": "one", "expiresAt": iso(NOON + timedelta(seconds=10))},
        {"lockKey": "match:m2", "owner": "two", "expiresAt": iso(NOON + timedelta(seconds=30))},
    ]
    assert answer.made == ["Scan cricket-locks"]


async def test_a_tick_holds_its_lock_and_releases_it(served: Served) -> None:
    instance = await begin(served, "m1")
    provider = instance.poller._provider
    record, seen = provider.match, []

    async def look(match_id: str) -> Any:
        seen.append((await ask_system(served, "{ locks { lockKey owner } }")).data["locks"])
        return await record(match_id)

    provider.match = look  # type: ignore[method-assign]
    await instance.poller.tick("m1")

    assert seen == [[{"lockKey": "match:m1", "owner": "one"}]]
    assert (await ask_system(served, "{ locks { lockKey } }")).data == {"locks": []}


async def test_an_archived_fixture_stays_archived_while_its_state_is_kept(served: Served) -> None:
    instance = await begin(served, "m1")
    await instance.poller.tick("m1")
    await ask_system(served, 'mutation { archiveFixture(id: "m1") { matchId } }')
    await ask_system(served, DEACTIVATE)

    assert await instance.poller.tick("m1") is TickOutcome.LOST
    fixture = await Fixtures(served.store(), NOON).latest("m1")
    assert fixture is not None
    assert fixture.archived_at == NOON


async def test_live_matches_are_cached_for_a_second_or_until_a_mutation(served: Served) -> None:
    for match_id in ("m1", "m2"):
        await put_fixtures(served, planned_match(match_id, version=1))
    await ask_system(served, REGISTER)
    asked = "{ liveMatches { matchId } }"

    first, second = [await served.ask(asked) for _ in range(2)]
    registered = await ask_system(served, REGISTER.replace("m1", "m2"))
    third = await served.ask(asked)
    served.clock.forward(seconds=1)
    fourth = await served.ask(asked)

    assert registered.errors is None
    assert [answer.made for answer in (first, second, third, fourth)] == [
        ["Query active-matches.live-matchId-index"],
        [],
        ["Query active-matches.live-matchId-index"],
        ["Query active-matches.live-matchId-index"],
    ]
    assert second.data == first.data == {"liveMatches": [{"matchId": "m1"}]}
    assert third.data == fourth.data == {"liveMatches": [{"matchId": "m1"}, {"matchId": "m2"}]}
