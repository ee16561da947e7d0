"""Patterns of the matches on tables that hold documented items and items of this gateway at the same time."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from datastore.keyspace.matches.active_matches import ACTIVE_MATCHES, STATE_FOR_TICK, active_match
from datastore.keyspace.matches.devices import DEVICES, REGISTER_DEVICE
from datastore.keyspace.matches.fixtures import FIXTURES
from datastore.matches.active_matches import ActiveMatches
from datastore.matches.cricket import MatchSnapshot
from datastore.matches.fixture_cache import FixtureCache
from datastore.matches.fixtures import Fixtures
from datastore.matches.locks import Locks
from datastore.model.identity import Role
from datastore.model.timestamps import iso
from datastore.session.pagination import Span
from pipelines.matches.live.poller import TickOutcome
from tests.support.active_matches import replay
from tests.support.answers import data_of
from tests.support.cricket_pipeline import PipelineInstance
from tests.support.fixture_steps import planned_match
from tests.support.match_documents import (
    ACTIVE,
    DEVICE,
    FIXTURE,
    LATER,
    NOW,
    data_as,
    data_as_system,
    match_ids,
    prepare_documents,
    write_match_items,
)
from tests.support.pattern_coverage import covers
from tests.support.served import NOON, Served

SIDES = {"leagueId": "L", "homeTeamId": "10", "awayTeamId": "20"}


@pytest.fixture(autouse=True)
async def mixed(served: Served) -> None:
    await prepare_documents(served, "mixed")
    write_match_items(served, (FIXTURES, FIXTURE | SIDES))


@covers("FOL-3", "FOL-5", "FOL-6")
async def test_follows_of_both_programs_are_changed_and_deleted(served: Served) -> None:
    for match_id in ("m1", "mine"):
        await data_as(
            served, f'mutation {{ followMatch(matchId: "{match_id}", input: {{teamId: "10"}}) {{ teamId }} }}', "bob"
        )
    change = 'mutation { updateMatchFollow(matchId: "m1", input: {teamId: "20"}) { teamId version } }'

    changed = [(await data_as(served, change, user))["updateMatchFollow"] for user in ("ada", "bob")]
    removed = await data_as_system(served, 'mutation { deleteMatchFollows(matchId: "m1") }')

    assert [follow["teamId"] for follow in changed] == ["20", "20"]
    assert removed == {"deleteMatchFollows": 2}
    read = '{ documented: matchFollow(matchId: "m1") { teamId } ours: matchFollow(matchId: "mine") { teamId } }'
    assert await data_as(served, read, "bob") == {"documented": None, "ours": {"teamId": "10"}}


@covers("DEV-2")
async def test_a_registration_replaces_devices_of_both_programs(served: Served) -> None:
    tokens = ["e2" * 32, "f3" * 32]
    register = """mutation {{ registerDevice(deviceToken: "{}", input: {{
      platform: IOS, osVersion: "26.1", appVersion: "3.0"
    }}) {{ deviceToken }} }}"""

    await data_as(served, register.format(tokens[0]), "ada")
    write_match_items(served, (DEVICES, DEVICE))  # The other program registers its device again.
    served.clock.forward(seconds=1)
    answer = await served.ask(register.format(tokens[1]), user="ada")

    assert data_of(answer)["registerDevice"] == {"deviceToken": tokens[1]}
    assert answer.made.count("DeleteItem cricket-devices") == 2
    left = await served.store().query(REGISTER_DEVICE, {"partition": "ada"})
    assert [item["deviceToken"] for item in left.items] == [tokens[1]]


@covers("LA-6")
async def test_sessions_of_both_programs_are_suspended(served: Served) -> None:
    register = f'''mutation {{ registerLiveActivity(
      matchId: "m1", deviceId: "pad", input: {{updateToken: "{"bb" * 32}"}}
    ) {{
      deviceId }} }}'''
    await data_as(served, register, "ada")
    suspend = 'mutation {{ suspendLiveActivity(matchId: "m1", userId: "ada", deviceId: "{}") {{ status }} }}'
    read = '{ liveActivities(userId: "ada") { nodes { deviceId status } } }'

    await data_as_system(served, suspend.format("phone"))
    first = await data_as(served, read, "ada")
    await data_as_system(served, suspend.format("pad"))
    second = await data_as(served, read, "ada")

    def statuses(answer: Any) -> dict[str, str]:
        return {node["deviceId"]: node["status"] for node in answer["liveActivities"]["nodes"]}

    assert statuses(first) == {"phone": "SUSPENDED", "pad": "ACTIVE"}
    assert statuses(second) == {"phone": "SUSPENDED", "pad": "SUSPENDED"}


@covers("TM-3", "TS-2", "LG-4", "LG-6")
async def test_reference_data_of_both_programs_is_listed_put_and_deleted(served: Served) -> None:
    put = """mutation {
      syncTeams(input: [{teamId: "20", name: "Australia", code: "AUS"}]) { teamId }
      syncTeamSeasons(seasonId: "s1", input: {teamSeasons: [{teamId: "20", points: 2}]}) { teamId }
      putLeague(id: "N", input: {name: "New", code: "NEW"}) { leagueId }
    }"""
    read = """{ teams { nodes { teamId } } leagues(active: true) { nodes { leagueId } }
      teamSeasons(seasonId: "s1") { nodes { teamId points team { name } } } }"""
    delete = 'mutation { deleteLeague(id: "L") { leagueId } }'

    await data_as_system(served, put)
    before = data_of(await served.ask(read))
    data_of(await served.ask(delete, user="root", role=Role.ADMIN))
    after = data_of(await served.ask(read))

    # Sorted by name: the name of a documented item without one is its id.
    assert before == {
        "teams": {"nodes": [{"teamId": "10"}, {"teamId": "20"}]},
        "leagues": {"nodes": [{"leagueId": "L"}, {"leagueId": "N"}]},
        "teamSeasons": {
            "nodes": [
                {"teamId": "10", "points": None, "team": {"name": "10"}},
                {"teamId": "20", "points": 2.0, "team": {"name": "Australia"}},
            ]
        },
    }
    assert after == before | {"leagues": {"nodes": [{"leagueId": "N"}]}}


@covers("FXC-2", "FXC-3", "FXC-6")
async def test_cached_matches_of_both_programs_are_listed_and_ours_are_read(served: Served) -> None:
    starts = {"early": NOON - timedelta(hours=1), "late": NOON + timedelta(hours=1)}
    snapshots = [MatchSnapshot(planned_match(id, start=start, league_id="L"), ()) for id, start in starts.items()]
    cache = FixtureCache(served.store(), served.clock())

    await cache.put_all(snapshots)
    cache = FixtureCache(served.store(), served.clock())
    page = await cache.of_league("L", Span(10))
    found = await cache.get_many(["early", "m1", "late"])

    assert match_ids(page.items) == ["early", "m1", "late"]
    assert {match_id: cached.snapshot.match.start_time for match_id, cached in found.items()} == starts


@covers("LOCK-3")
async def test_each_owner_extends_its_own_lock_alone(served: Served) -> None:
    documented, ours = [Locks(served.store(), owner, served.clock()) for owner in ("i-0abc", "one")]
    assert await ours.acquire("match:mine", 5)

    extended = [await owner.extend(name, 60) for owner in (documented, ours) for name in ("match:m9", "match:mine")]

    assert extended == [True, False, False, True]
    until = iso(NOON + timedelta(seconds=60))
    assert (await data_as_system(served, "{ locks { lockKey owner expiresAt } }"))["locks"] == [
        {"lockKey": "match:m9", "owner": "i-0abc", "expiresAt": until},
        {"lockKey": "match:mine", "owner": "one", "expiresAt": until},
    ]


@covers("AM-5")
async def test_cooldowns_of_another_program_continue_after_a_takeover_until_they_end(served: Served) -> None:
    write_match_items(served, (ACTIVE_MATCHES, ACTIVE | {"cooldowns": {"four": NOW, "rain": LATER, "note": "x"}}))
    provider = replay(served, "m1")
    (match,) = await provider.live()
    await Fixtures(served.store(), served.clock()).sync([replace(match, version=5)])
    instance = PipelineInstance(served, provider)
    served.clock.forward(minutes=5)
    active = ActiveMatches(served.store(), served.clock())
    seen = await active.latest("m1")
    assert seen is not None
    assert await active.claim(seen, "one") is not None

    ticks = [await instance.poller.tick("m1") for _ in range(2)]

    assert TickOutcome.CHANGED in ticks
    item = await served.store().get(STATE_FOR_TICK, active_match("m1"))
    assert item is not None
    documented = {name: until for name, until in item["cooldowns"].items() if not name.startswith("ring:")}
    assert documented == {"rain": LATER}
    own = await active.latest("mine")
    assert own is not None
    assert own.cooldowns == {}
