"""Reads, mutations and subscriptions on documented matches of another program: alone, and mixed with our items."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from datastore.keyspace.matches.active_matches import ACTIVE_MATCHES
from datastore.keyspace.matches.fixtures import FIXTURES
from datastore.keyspace.matches.leagues import LEAGUES
from datastore.keyspace.matches.live_activities import LIVE_ACTIVITIES
from datastore.matches.active_matches import ActiveMatches
from datastore.matches.fixture_cache import FixtureCache
from datastore.matches.fixtures import Fixtures
from datastore.model.identity import Role
from pipelines.matches.live.poller import TickOutcome
from tests.support.active_matches import replay
from tests.support.answers import data_of
from tests.support.cricket_pipeline import PipelineInstance
from tests.support.match_documents import (
    ACTIVE,
    FIXTURE,
    LATER,
    SESSION,
    TOKEN,
    data_as_system,
    match_ids,
    prepare_documents,
    read_match_list,
    write_match_items,
)
from tests.support.moments import whole_seconds
from tests.support.pattern_coverage import covers
from tests.support.served import NOON, Served


@pytest.fixture(params=["alone", "mixed"])
async def ours(request: pytest.FixtureRequest, served: Served) -> list[str]:
    """Store the document's items. Return the ids of this gateway's own match if mixed, else none."""
    return await prepare_documents(served, request.param)


@covers("FIX-1", "FIX-2", "FIX-3", "AM-1")
async def test_a_documented_fixture_is_read_by_id_and_in_its_league(served: Served, ours: list[str]) -> None:
    fields = """matchId leagueCode status phase version innings { runs } homeTeam { name } awayTeam { name }
        league { name } scorecards { inningsNumber } liveScore { status phase version }"""
    match = data_of(await served.ask(f'{{ match(id: "m1") {{ {fields} }} }}'))["match"]
    both = data_of(await served.ask('{ matches(ids: ["m1", "m9"]) { matchId } }'))["matches"]
    listed = data_of(
        await served.ask(
            '{ matchesByLeague(leagueCode: "IPL", from: "2026-06-25T00:00:00Z", to: "2026-06-26T00:00:00Z") '
            "{ nodes { matchId status homeTeam { name } } } }"
        )
    )["matchesByLeague"]["nodes"]

    assert match == {
        "matchId": "m1",
        "leagueCode": "IPL",
        "status": "NS",
        "phase": "UPCOMING",
        "version": 0,
        "innings": [],
        "homeTeam": None,
        "awayTeam": None,
        "league": None,
        "scorecards": [],
        "liveScore": {"status": "1st Innings", "phase": "LIVE", "version": 0},
    }
    assert both == [{"matchId": "m1"}, None]
    assert match_ids(listed) == ["m1", *ours]


@covers("FIX-5", "FIX-6")
async def test_a_documented_fixture_is_changed_and_archived(served: Served, ours: list[str]) -> None:
    update = 'mutation { updateFixture(id: "m1", input: {note: "Rain"}) { matchId note revision } }'
    archive = 'mutation { archiveFixture(id: "m1") { matchId archivedAt } }'

    assert (await data_as_system(served, update))["updateFixture"] == {"matchId": "m1", "note": "Rain", "revision": 1}
    assert (await data_as_system(served, archive))["archiveFixture"]["archivedAt"] == "2026-06-25T12:00:00.000Z"


@covers("AM-1", "AM-2")
async def test_active_matches_are_listed_with_the_league_of_their_fixtures(served: Served, ours: list[str]) -> None:
    await read_match_list(served)
    live = data_of(await served.ask("{ liveMatches { matchId leagueCode liveScore { status phase } } }"))["liveMatches"]
    everything = (
        await data_as_system(served, "{ activeMatches { matchId leagueCode status instanceId version fence } }")
    )["activeMatches"]
    state = (
        await data_as_system(served, '{ activeMatch(id: "m1") { matchId leagueCode previousBallId lastTickAt } }')
    )["activeMatch"]

    assert live[0] == {
        "matchId": "m1",
        "leagueCode": "IPL",
        "liveScore": {"status": "1st Innings", "phase": "LIVE"},
    }
    assert (match_ids(live), match_ids(everything)) == (["m1", *ours], ["m0", "m1", *ours])
    assert everything[0] == {
        "matchId": "m0",
        "leagueCode": "",
        "status": "ENDED",
        "instanceId": None,
        "version": 0,
        "fence": 0,
    }
    assert state == {
        "matchId": "m1",
        "leagueCode": "IPL",
        "previousBallId": None,
        "lastTickAt": "2026-06-25T12:00:00.000Z",
    }


async def test_only_incomplete_states_cost_a_read_of_their_fixtures(served: Served, ours: list[str]) -> None:
    await read_match_list(served)

    answer = await served.ask("{ liveMatches { matchId leagueCode } }")

    assert answer.made == ["GetItem cricket-fixtures", "Query active-matches.live-matchId-index"]


@covers("AM-3", "AM-6", "AM-7")
async def test_a_documented_active_match_is_registered_deactivated_and_deleted(served: Served, ours: list[str]) -> None:
    end = 'mutation { endActiveMatch(id: "m1") { status leagueCode fence } }'
    delete = 'mutation { deleteActiveMatch(id: "m1") { matchId } }'
    register = 'mutation { registerActiveMatch(id: "m1") { matchId leagueCode status fence } }'

    assert (await data_as_system(served, end))["endActiveMatch"]["status"] == "ENDED"
    assert (await data_as_system(served, delete))["deleteActiveMatch"] == {"matchId": "m1"}
    assert (await data_as_system(served, register))["registerActiveMatch"] == {
        "matchId": "m1",
        "leagueCode": "IPL",
        "status": "ACTIVE",
        "fence": 1,
    }


@covers("TM-1", "TM-2", "TM-4", "TS-1", "LG-1", "LG-3", "LG-5")
async def test_teams_seasons_and_leagues_are_read_and_changed(served: Served, ours: list[str]) -> None:
    assert data_of(await served.ask('{ team(id: "10") { teamId name code national } teams { nodes { teamId } } }')) == {
        "team": {"teamId": "10", "name": "10", "code": "10", "national": False},
        "teams": {"nodes": [{"teamId": "10"}]},
    }
    season = data_of(await served.ask('{ teamSeasons(seasonId: "s1") { nodes { teamId played team { name } } } }'))
    assert season["teamSeasons"]["nodes"] == [{"teamId": "10", "played": None, "team": {"name": "10"}}]
    leagues = data_of(
        await served.ask('{ leagues(active: true) { nodes { leagueId name code } } league(id: "L") { active } }')
    )
    assert leagues == {"leagues": {"nodes": [{"leagueId": "L", "name": "L", "code": "L"}]}, "league": {"active": True}}

    team = 'mutation { updateTeam(id: "10", input: {name: "India"}) { name version } }'
    league = 'mutation { updateLeague(id: "L", input: {name: "League"}) { name version } }'
    answers = [data_of(await served.ask(query, user="root", role=Role.ADMIN)) for query in (team, league)]
    assert answers == [
        {"updateTeam": {"name": "India", "version": 1}},
        {"updateLeague": {"name": "League", "version": 1}},
    ]


@covers("LA-1", "LA-2", "LA-3", "LA-4", "LA-5")
async def test_sessions_are_read_renewed_and_ended(served: Served, ours: list[str]) -> None:
    fields = "matchId userId deviceId status updateToken"
    listed = data_of(await served.ask(f'{{ liveActivities(userId: "ada") {{ nodes {{ {fields} }} }} }}', user="ada"))
    of_match = await data_as_system(served, '{ match(id: "m1") { liveActivities { nodes { deviceId } } } }')
    for number in range(9):
        write_match_items(served, (LIVE_ACTIVITIES, SESSION | {"userId#deviceId": f"ada#pad{number}"}))
    register = f'''mutation ($device: ID!) {{
      registerLiveActivity(matchId: "m1", deviceId: $device, input: {{updateToken: "{"bb" * 32}"}}) {{ {fields} }} }}'''
    renew = f'''mutation {{
      updateLiveActivity(
        matchId: "m1", deviceId: "phone", input: {{updateToken: "{"bb" * 32}"}}
      ) {{ {fields} }} }}'''
    end = 'mutation { endLiveActivity(matchId: "m1", deviceId: "phone") { deviceId status } }'

    assert listed["liveActivities"]["nodes"] == [
        {"matchId": "m1", "userId": "ada", "deviceId": "phone", "status": "ACTIVE", "updateToken": "aa11"}
    ]
    assert of_match["match"]["liveActivities"]["nodes"] == [{"deviceId": "phone"}]
    again, eleventh = [await served.ask(register, {"device": device}, user="ada") for device in ("pad3", "tv")]
    assert data_of(again)["registerLiveActivity"]["deviceId"] == "pad3"
    assert eleventh.codes == ["CONFLICT"]
    assert data_of(await served.ask(renew, user="ada"))["updateLiveActivity"]["updateToken"] == "bb" * 32
    assert data_of(await served.ask(end, user="ada"))["endLiveActivity"] == {"deviceId": "phone", "status": "ENDED"}


@covers("DEV-1", "DEV-3", "DEV-4")
async def test_a_device_is_read_changed_and_deleted(served: Served, ours: list[str]) -> None:
    read = '{ device(userId: "ada") { deviceToken platform apnsToken osVersion } }'
    token = f'''mutation {{
      updateDevice(
        deviceToken: "{TOKEN}", input: {{pushToStartToken: "{TOKEN}"}}
      ) {{ pushToStartToken }} }}'''
    delete = f'mutation {{ deleteDevice(deviceToken: "{TOKEN}") {{ deviceToken }} }}'

    assert data_of(await served.ask(read, user="ada"))["device"] == {
        "deviceToken": TOKEN,
        "platform": "IOS",
        "apnsToken": "ap1",
        "osVersion": None,
    }
    assert data_of(await served.ask(token, user="ada"))["updateDevice"] == {"pushToStartToken": TOKEN}
    assert data_of(await served.ask(delete, user="ada"))["deleteDevice"] == {"deviceToken": TOKEN}


@covers("FOL-1", "FOL-2", "FOL-4")
async def test_a_follow_is_read_and_removed(served: Served, ours: list[str]) -> None:
    read = '{ matchFollow(matchId: "m1") { userId teamId createdAt } match(id: "m1") { followedByViewer } }'
    followers = await data_as_system(served, '{ match(id: "m1") { follows { nodes { userId teamId } } } }')
    unfollow = 'mutation { unfollowMatch(matchId: "m1") { userId } }'

    assert data_of(await served.ask(read, user="ada")) == {
        "matchFollow": {"userId": "ada", "teamId": "10", "createdAt": "2026-06-25T12:00:00.000Z"},
        "match": {"followedByViewer": True},
    }
    assert followers["match"]["follows"]["nodes"] == [{"userId": "ada", "teamId": "10"}]
    assert data_of(await served.ask(unfollow, user="ada"))["unfollowMatch"] == {"userId": "ada"}


@covers("LOCK-4", "FXC-1", "FXC-4")
async def test_locks_are_listed_and_a_documented_cache_entry_is_a_miss(served: Served, ours: list[str]) -> None:
    locks = (await data_as_system(served, "{ locks { lockKey owner } }"))["locks"]
    cache = FixtureCache(served.store(), served.clock())

    assert locks == [{"lockKey": "match:m9", "owner": "i-0abc"}]
    assert (await cache.get("m1"), await cache.all()) == (None, [])


@covers("DSC-1", "DSC-2")
async def test_a_documented_display_state_is_rebuilt_and_stored(served: Served, ours: list[str]) -> None:
    facts = {"leagueId": "L", "homeTeamId": "10", "awayTeamId": "20"}
    write_match_items(served, (FIXTURES, FIXTURE | facts))
    query = '{ displayState(matchId: "m1", teamId: "10") { matchId teamId } }'

    first, second = await served.ask(query), await served.ask(query)

    assert data_of(first) == data_of(second) == {"displayState": {"matchId": "m1", "teamId": "10"}}
    assert "PutItem DisplayStateCache" in first.made
    assert second.made == ["GetItem DisplayStateCache"]


@covers("AM-1", "AM-4", "AM-5", "FIX-5", "FXC-5", "LOCK-1", "LOCK-2")
async def test_a_documented_active_match_is_taken_over_and_polled(served: Served, ours: list[str]) -> None:
    provider = replay(served, "m1")
    (match,) = await provider.live()
    await Fixtures(served.store(), served.clock()).sync([replace(match, version=5)])
    instance = PipelineInstance(served, provider)
    listener = await served.listen('subscription { matchUpdates(matchId: "m1") { version isSnapshot leagueCode } }')
    snapshot = (await listener.event())["matchUpdates"]
    assert snapshot["isSnapshot"]

    await instance.orchestrator.reconcile()
    assert "m1" not in instance.orchestrator.polled  # the program that registered it may still poll it
    await instance.orchestrator.aclose()
    served.clock.now += timedelta(minutes=5)
    seen = await ActiveMatches(served.store(), served.clock()).latest("m1")
    assert seen is not None
    claimed = await ActiveMatches(served.store(), served.clock()).claim(seen, "one")
    ticks = [await instance.poller.tick("m1") for _ in range(2)]

    assert claimed is not None
    assert (claimed.league_code, claimed.fence, claimed.instance_id) == (match.league_code, 1, "one")
    assert TickOutcome.CHANGED in ticks
    assert TickOutcome.LOST not in ticks
    update = snapshot
    while update["version"] <= snapshot["version"]:
        update = (await listener.event())["matchUpdates"]
    assert (update["version"], update["leagueCode"]) == (snapshot["version"] + 1, match.league_code)
    assert await ActiveMatches(served.store(), served.clock()).claim(seen, "two") is None
    stored = await Fixtures(served.store(), served.clock()).latest("m1")
    assert stored is not None
    assert stored.innings


async def test_the_orchestrator_takes_over_an_abandoned_match(served: Served, ours: list[str]) -> None:
    provider = replay(served, "m1")
    (match,) = await provider.live()
    await Fixtures(served.store(), served.clock()).sync([match])
    instance = PipelineInstance(served, provider)
    served.clock.now += timedelta(minutes=5)

    await instance.orchestrator.reconcile()

    assert "m1" in instance.orchestrator.polled
    await instance.orchestrator.aclose()


async def test_a_paused_or_ended_match_is_registered_again(served: Served) -> None:
    provider = replay(served, "m1", "m2")
    one_match, other = await provider.live()
    over = {"previousStatus": "Finished", "matchPhase": "finished"}
    write_match_items(
        served,
        (ACTIVE_MATCHES, {"matchId": "m1", "status": "idle"}),
        (ACTIVE_MATCHES, {"matchId": "m2", "status": "ended", "ttl": LATER} | over),
    )
    instance = PipelineInstance(served, provider)

    for match in (one_match, other):
        await instance.orchestrator.start(match)

    assert instance.orchestrator.polled == {"m1", "m2"}
    everything = (await data_as_system(served, "{ activeMatches { leagueCode status fence expiresAt } }"))[
        "activeMatches"
    ]
    assert everything == [
        {"leagueCode": one_match.league_code, "status": "ACTIVE", "fence": 1, "expiresAt": None},
        {"leagueCode": other.league_code, "status": "ACTIVE", "fence": 2, "expiresAt": None},
    ]
    await instance.orchestrator.aclose()


async def test_subscribers_receive_the_current_state_of_documented_matches(served: Served, ours: list[str]) -> None:
    fields = "{ updates { matchId leagueCode } }"
    everybody = await served.listen(f"subscription {{ liveScores {fields} }}")
    league = await served.listen(f'subscription {{ liveScores(leagueCode: "IPL") {fields} }}')

    for listener in (everybody, league):
        assert match_ids((await listener.event())["liveScores"]["updates"]) == ["m1", *ours]


@covers("CRIC-S1", "CRIC-S2")
async def test_subscribers_receive_changes_of_documented_matches(served: Served, ours: list[str]) -> None:
    write_match_items(served, (LEAGUES, {"leagueId": "9", "code": "BBL", "name": "Big Bash"}))
    fields = "{ isSnapshot updates { matchId leagueCode liveScore { status } } removedMatchIds }"
    everybody = await served.listen(f"subscription {{ liveScores {fields} }}")
    other = await served.listen(f'subscription {{ liveScores(leagueCode: "BBL") {fields} }}')
    one_match = await served.listen('subscription { matchUpdates(matchId: "m1") { version liveScore { status } } }')
    first, _ = (await everybody.event())["liveScores"], await one_match.event()
    assert (await other.event())["liveScores"]["updates"] == []

    write_match_items(served, (ACTIVE_MATCHES, ACTIVE | {"previousStatus": "Innings Break"}))
    second = (await everybody.event())["liveScores"]

    assert match_ids(first["updates"]) == ["m1", *ours]
    assert second["updates"] == [{"matchId": "m1", "leagueCode": "IPL", "liveScore": {"status": "Innings Break"}}]
    assert (await one_match.event())["matchUpdates"] == {"version": 0, "liveScore": {"status": "Innings Break"}}
    write_match_items(served, (ACTIVE_MATCHES, ACTIVE | {"status": "ended"}))
    assert (await everybody.event())["liveScores"]["removedMatchIds"] == ["m1"]
    theirs = {"matchId": "m7", "leagueCode": "BBL", "startTime": whole_seconds(NOON)}
    write_match_items(served, (FIXTURES, theirs), (ACTIVE_MATCHES, ACTIVE | {"matchId": "m7"}))
    # These subscribers did not get the earlier update of another league's match.
    assert match_ids((await other.event())["liveScores"]["updates"]) == ["m7"]


async def test_a_documented_state_without_a_status_is_damaged(served: Served) -> None:
    write_match_items(served, (ACTIVE_MATCHES, {"matchId": "m2"}))

    answer = await served.ask('{ activeMatch(id: "m2") { matchId } }', user="ops", role=Role.SYSTEM)

    assert answer.codes == ["INTERNAL"]


async def test_the_end_of_a_deleted_match_creates_no_item(served: Served) -> None:
    active = ActiveMatches(served.store(), served.clock())
    write_match_items(served, (ACTIVE_MATCHES, {"matchId": "m3", "status": "idle"}))

    assert not await active.finish("unknown", 0)
    assert await active.finish("m3", 0)
    assert (await data_as_system(served, "{ activeMatches { matchId status } }"))["activeMatches"] == [
        {"matchId": "m3", "status": "ENDED"}
    ]
