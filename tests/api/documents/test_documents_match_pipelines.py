"""Pipelines and mutations on documented items of the eleven tables of matches: alone, and mixed with our items."""

from collections.abc import AsyncIterable

import pytest
from msgspec.structs import replace

from datastore.dynamodb.codec import Item
from datastore.keyspace.matches import fixture_cache as cache_keys
from datastore.keyspace.matches.active_matches import STATE_FOR_TICK, active_match
from datastore.keyspace.matches.fixture_cache import FIXTURE_CACHE
from datastore.keyspace.matches.fixtures import FIXTURES, SYNC_FIXTURES, fixture
from datastore.keyspace.matches.leagues import LEAGUES
from datastore.keyspace.matches.match_follows import MATCH_FOLLOWS
from datastore.keyspace.matches.team_seasons import TEAM_SEASONS
from datastore.keyspace.matches.teams import TEAMS
from datastore.matches.display import display_state
from datastore.matches.display_states import DisplayStates
from datastore.matches.fixture_cache import FixtureCache
from datastore.matches.fixtures import Fixtures
from datastore.matches.leagues import Leagues
from datastore.matches.live_activities import LiveActivities
from datastore.matches.live_state import initial_state
from datastore.matches.locks import Locks
from datastore.model.access_patterns import AccessPattern
from datastore.model.composite_keys import Key
from datastore.model.identity import Role
from datastore.session.pagination import Span
from pipelines.matches.providers.replay import ReplayProvider
from pipelines.matches.push.live_activities import LACoordinator
from pipelines.matches.push.push_queue import MatchChange
from pipelines.matches.push.push_service import Push, PushOutcome, PushSummary, Sent, report_outcome
from pipelines.matches.sync.jobs import FixtureSyncJob, LeagueSyncJob, SyncResult, TeamSyncJob
from tests.support.active_matches import replay
from tests.support.answers import data_of
from tests.support.match_documents import (
    FIXTURE,
    LATER,
    TOKEN,
    data_as,
    data_as_system,
    match_ids,
    prepare_documents,
    write_match_items,
)
from tests.support.moments import whole_seconds
from tests.support.pattern_coverage import covers
from tests.support.served import NOON, Served

SIDES = {"leagueId": "L", "homeTeamId": "10", "awayTeamId": "20"}


@pytest.fixture(params=["alone", "mixed"])
async def ours(request: pytest.FixtureRequest, served: Served) -> list[str]:
    """Store the document's items. Return the ids of this gateway's own match if mixed, else none."""
    return await prepare_documents(served, request.param)


async def stored_item(served: Served, pattern: AccessPattern, key: Key) -> Item:
    found = await served.store().get(pattern, key)
    assert found is not None
    return found


# Mutations


@covers("FIX-4")
async def test_fixtures_replace_documented_ones_and_are_stored_beside_them(served: Served, ours: list[str]) -> None:
    fields = 'leagueId: "L", leagueCode: "IPL", homeTeamId: "10", awayTeamId: "20"'
    sync = f"""mutation {{ syncFixtures(input: [
      {{matchId: "m1", {fields}, startTime: "2026-06-25T12:30:00Z", round: "Final"}}
      {{matchId: "m5", {fields}, startTime: "2026-06-29T12:00:00Z"}}
    ]) {{ matchId round version homeTeamId }} }}"""
    window = 'from: "2026-06-25T00:00:00Z", to: "2026-06-30T00:00:00Z"'

    answer = await data_as_system(served, sync)

    assert answer["syncFixtures"] == [
        {"matchId": "m1", "round": "Final", "version": 0, "homeTeamId": "10"},
        {"matchId": "m5", "round": None, "version": 0, "homeTeamId": "10"},
    ]
    listed = data_of(
        await served.ask(f'{{ matchesByLeague(leagueCode: "IPL", {window}) {{ nodes {{ matchId startTime }} }} }}')
    )["matchesByLeague"]["nodes"]
    assert match_ids(listed) == ["m1", *ours, "m5"]
    assert listed[0]["startTime"] == "2026-06-25T12:30:00.000Z"


@covers("TM-3", "TS-2", "LG-4", "LG-6")
async def test_teams_seasons_and_leagues_replace_documented_ones(served: Served, ours: list[str]) -> None:
    team = 'mutation { syncTeams(input: [{teamId: "10", name: "India", code: "IND"}]) { teamId name } }'
    row = '{teamId: "10", played: 3, points: 4}'
    season = f'mutation {{ syncTeamSeasons(seasonId: "s1", input: {{teamSeasons: [{row}]}}) {{ teamId points }} }}'
    league = 'mutation { putLeague(id: "L", input: {name: "League", code: "LG"}) { leagueId code active } }'

    assert (await data_as_system(served, team))["syncTeams"] == [{"teamId": "10", "name": "India"}]
    assert (await data_as_system(served, season))["syncTeamSeasons"] == [{"teamId": "10", "points": 4.0}]
    put = await data_as_system(served, league)
    assert put["putLeague"] == {"leagueId": "L", "code": "LG", "active": True}
    read = (
        '{ team(id: "10") { name } teamSeasons(seasonId: "s1") { nodes { teamId played } } league(id: "L") { name } }'
    )
    assert data_of(await served.ask(read)) == {
        "team": {"name": "India"},
        "teamSeasons": {"nodes": [{"teamId": "10", "played": 3}]},
        "league": {"name": "League"},
    }
    delete = 'mutation { deleteLeague(id: "L") { leagueId } }'
    assert (await data_as(served, delete, "root", Role.ADMIN))["deleteLeague"] == {"leagueId": "L"}
    assert data_of(await served.ask('{ league(id: "L") { leagueId } }')) == {"league": None}


@covers("LG-2", "LG-6")
async def test_a_documented_league_is_listed_and_deleted(served: Served, ours: list[str]) -> None:
    write_match_items(served, (LEAGUES, {"leagueId": "old", "active": False}))
    listed = data_of(await served.ask("{ leagues { nodes { leagueId active } } }"))["leagues"]["nodes"]
    delete = 'mutation { deleteLeague(id: "old") { leagueId active } }'

    deleted = await data_as(served, delete, "root", Role.ADMIN)

    assert listed == [{"leagueId": "L", "active": True}, {"leagueId": "old", "active": False}]
    assert deleted["deleteLeague"] == {"leagueId": "old", "active": False}


@covers("DEV-2")
async def test_a_device_replaces_a_documented_one(served: Served, ours: list[str]) -> None:
    other = "e2" * 32
    register = f"""mutation {{ registerDevice(deviceToken: "{other}", input: {{
      platform: IOS, osVersion: "26.1", appVersion: "3.0"
    }}) {{ deviceToken platform }} }}"""
    again = register.replace(other, TOKEN)
    read = '{ device(userId: "ada") { deviceToken osVersion } }'

    assert (await data_as(served, again))["registerDevice"] == {"deviceToken": TOKEN, "platform": "IOS"}
    assert (await data_as(served, read))["device"] == {"deviceToken": TOKEN, "osVersion": "26.1"}
    assert (await data_as(served, register))["registerDevice"] == {"deviceToken": other, "platform": "IOS"}
    assert (await data_as(served, read))["device"] == {"deviceToken": other, "osVersion": "26.1"}


@covers("FOL-3")
async def test_a_documented_match_is_followed_and_a_documented_follow_keeps_its_time(
    served: Served, ours: list[str]
) -> None:
    write_match_items(served, (FIXTURES, FIXTURE | SIDES))
    served.clock.forward(minutes=1)
    follow = 'mutation { followMatch(matchId: "m1", input: {teamId: "20"}) { userId teamId createdAt } }'

    again, other = [(await data_as(served, follow, user))["followMatch"] for user in ("ada", "grace")]

    assert again == {"userId": "ada", "teamId": "20", "createdAt": "2026-06-25T12:00:00.000Z"}
    assert other == {"userId": "grace", "teamId": "20", "createdAt": "2026-06-25T12:01:00.000Z"}
    followers = await data_as_system(served, '{ match(id: "m1") { follows { nodes { userId } } } }')
    assert followers["match"]["follows"]["nodes"] == [{"userId": "ada"}, {"userId": "grace"}]


@covers("FOL-5")
async def test_the_team_of_a_documented_follow_is_changed(served: Served, ours: list[str]) -> None:
    change = 'mutation { updateMatchFollow(matchId: "m1", input: {teamId: "20"}) { userId teamId } }'

    assert (await data_as(served, change))["updateMatchFollow"] == {"userId": "ada", "teamId": "20"}
    assert (await served.ask(change, user="grace")).codes == ["NOT_FOUND"]


@covers("FOL-6")
async def test_documented_follows_are_removed(served: Served, ours: list[str]) -> None:
    bob = {"matchId": "m1", "userId": "bob", "teamId": "10", "createdAt": whole_seconds(NOON), "expiresAt": LATER}
    write_match_items(served, (MATCH_FOLLOWS, bob))

    removed = await data_as_system(served, 'mutation { deleteMatchFollows(matchId: "m1") }')

    assert removed == {"deleteMatchFollows": 2}
    assert (await data_as(served, '{ matchFollow(matchId: "m1") { userId } }'))["matchFollow"] is None


@covers("LA-6")
async def test_a_documented_session_is_suspended_by_the_mutation_and_by_the_pipeline(
    served: Served, ours: list[str]
) -> None:
    suspend = """mutation { suspendLiveActivity(matchId: "m1", userId: "ada", deviceId: "phone") { status } }"""
    activities = LiveActivities(served.store(), served.clock())

    assert await activities.suspend("m1", "ada", "phone", "another") is None
    rejected = await activities.suspend("m1", "ada", "phone", "aa11")
    assert rejected is not None
    assert rejected.status.value.lower() == "suspended"
    assert (await data_as_system(served, suspend))["suspendLiveActivity"] == {"status": "SUSPENDED"}


# Locks


@covers("LOCK-1", "LOCK-2", "LOCK-3")
async def test_a_documented_lock_is_respected_extended_and_taken_after_its_expiry(
    served: Served, ours: list[str]
) -> None:
    def locks(owner: str) -> Locks:
        return Locks(served.store(), owner, served.clock())

    assert [await act("match:m9") for act in (locks("me").acquire, locks("me").extend, locks("me").release)] == [
        *(False, False, False)
    ]
    assert await locks("i-0abc").extend("match:m9", 60)
    served.clock.forward(seconds=61)
    assert await locks("me").acquire("match:m9")
    assert [await act("match:m9") for act in (locks("i-0abc").extend, locks("i-0abc").release)] == [False, False]
    assert [await act("match:m9") for act in (locks("me").extend, locks("me").release)] == [True, True]
    assert (await data_as_system(served, "{ locks { lockKey } }"))["locks"] == []


# Sync jobs


async def of_provider(served: Served) -> ReplayProvider:
    """Return a provider of the match m1, whose league, teams and season are documented items."""
    provider = replay(served, "m1")
    (match,) = await provider.live()
    cached = {"matchId": "m1", "leagueId": match.league_id, "startingAt": whole_seconds(match.start_time), "ttl": LATER}
    write_match_items(
        served,
        (LEAGUES, {"leagueId": match.league_id, "active": True}),
        (TEAMS, {"teamId": match.home_team_id}),
        (TEAM_SEASONS, {"seasonId": match.season_id, "teamId": match.home_team_id}),
        (FIXTURES, {"matchId": "m1", "leagueCode": "OLD", "startTime": whole_seconds(NOON)}),
        (FIXTURE_CACHE, cached),
    )
    return provider


@covers("LG-2", "LG-4", "LOCK-1", "LOCK-2")
async def test_a_sync_completes_documented_leagues_and_keeps_their_active_flag(served: Served, ours: list[str]) -> None:
    provider = await of_provider(served)
    (provided,) = await provider.leagues()
    write_match_items(served, (LEAGUES, {"leagueId": provided.league_id, "active": False}))
    job = LeagueSyncJob(provider, served.store, "one", served.clock)

    first, second = [await job.run() for _ in range(2)]

    assert (first, second) == (SyncResult(fetched=1, written=1), SyncResult(fetched=1))
    league = await Leagues(served.store(), served.clock()).by_id(provided.league_id)
    assert league is not None
    assert (league.name, league.code, league.active) == (provided.name, provided.code, False)
    others = await Leagues(served.store(), served.clock()).all()
    assert {one.league_id for one in others} == {"L", provided.league_id}


@covers("TM-2", "TM-3", "TS-1", "TS-2", "LG-3")
async def test_a_sync_completes_documented_teams_and_seasons(served: Served, ours: list[str]) -> None:
    provider = await of_provider(served)
    (match,) = await provider.live()
    provided = {team.team_id: team for team in await provider.teams()}
    await LeagueSyncJob(provider, served.store, "one", served.clock).run()
    job = TeamSyncJob(provider, served.store, "one", served.clock)

    first, second = [await job.run() for _ in range(2)]

    every = len(provided) + 2
    assert (first, second) == (SyncResult(fetched=every, written=every), SyncResult(fetched=every))
    team = data_of(
        await served.ask(f'{{ team(id: "{match.home_team_id}") {{ name }} old: team(id: "10") {{ name }} }}')
    )
    assert team == {"team": {"name": provided[match.home_team_id].name}, "old": {"name": "10"}}
    rows = data_of(
        await served.ask(f'{{ teamSeasons(seasonId: "{match.season_id}") {{ nodes {{ teamId played }} }} }}')
    )
    assert [row["played"] for row in rows["teamSeasons"]["nodes"]] == [0, 0]


@covers("FIX-4", "AM-2", "FXC-2", "FXC-3", "FXC-4", "FXC-6", "LG-3")
async def test_a_sync_completes_a_documented_fixture_and_leaves_the_state_to_the_poller(
    served: Served, ours: list[str]
) -> None:
    provider = await of_provider(served)
    (provided,) = await provider.live()
    state = await stored_item(served, STATE_FOR_TICK, active_match("m1"))
    job = FixtureSyncJob(provider, served.store, "one", served.clock)

    first, second = [await job.run() for _ in range(2)]

    assert (first, second) == (SyncResult(fetched=1, written=1), SyncResult(fetched=1))
    match = await Fixtures(served.store(), served.clock()).by_id("m1")
    assert match is not None
    assert (match.league_code, match.home_team_id) == (provided.league_code, provided.home_team_id)
    # Another program polls the match, so the sync must not write its state.
    assert "scores" not in await stored_item(served, SYNC_FIXTURES, fixture("m1"))
    assert await stored_item(served, STATE_FOR_TICK, active_match("m1")) == state
    cached = await FixtureCache(served.store(), served.clock()).get("m1")
    assert cached is not None
    assert cached.snapshot.match.home_team_id == provided.home_team_id


@covers("FXC-1", "FXC-2", "FXC-3", "FXC-4", "FXC-5")
async def test_a_response_of_the_provider_replaces_a_foreign_cache_entry(served: Served, ours: list[str]) -> None:
    provider = replay(served, "m1")
    snapshot = await provider.match("m1")
    assert snapshot is not None
    cache = FixtureCache(served.store(), served.clock())
    page = await cache.of_league("L", Span(10))
    assert (match_ids(page.items), await cache.get_many(["m1"]), await cache.all()) == (["m1"], {}, [])

    await cache.put(snapshot, 3)

    cache = FixtureCache(served.store(), served.clock())
    found = (await cache.get("m1"), (await cache.get_many(["m1"])).get("m1"), *await cache.all())
    assert [one and (one.snapshot, one.version) for one in found] == [(snapshot, 3)] * 3
    assert match_ids((await cache.of_league("L", Span(10))).items) == []
    assert match_ids((await cache.of_league(snapshot.match.league_id, Span(10))).items) == ["m1"]
    assert (await stored_item(served, cache_keys.CACHED, cache_keys.cached("m1")))[
        "leagueId"
    ] == snapshot.match.league_id


# Live Activities


class Phones:
    """A push service that rejects some tokens."""

    def __init__(self, *rejected: str) -> None:
        self.shown: list[tuple[str, str]] = []
        self._rejected = rejected

    async def send_all(self, pushes: AsyncIterable[Push]) -> PushSummary:
        summary = PushSummary()
        async for push in pushes:
            self.shown.append((push.token, push.notification.event))
            sent = Sent(PushOutcome.REJECTED if push.token in self._rejected else PushOutcome.DELIVERED)
            summary.add(sent)
            await report_outcome(push, sent)
        return summary

    async def aclose(self) -> None: ...


async def change_of(served: Served) -> MatchChange:
    match = await Fixtures(served.store(), served.clock()).latest("m1")
    assert match is not None
    names = await DisplayStates(served.store(), served.clock()).names(match)
    active = replace(initial_state(match), version=5)
    states = {team: display_state(match, active, names, team) for team in ("10", "20")}
    return MatchChange(match, states)


@covers("LA-1", "FOL-2", "LA-5")
async def test_documented_sessions_receive_each_change_and_end_with_the_match(served: Served, ours: list[str]) -> None:
    write_match_items(served, (FIXTURES, FIXTURE | SIDES))
    phones = Phones()
    coordinator = LACoordinator(served.store, phones, served.clock)
    change = await change_of(served)

    await coordinator.deliver(change)
    await coordinator.idle()
    await coordinator.end(change.match, change.states)
    await coordinator.aclose(0)

    assert phones.shown == [("aa11", "update"), ("aa11", "end")]
    listed = await data_as(served, '{ liveActivities(userId: "ada") { nodes { status } } }')
    assert listed["liveActivities"]["nodes"] == [{"status": "ENDED"}]


@covers("LA-1", "LA-6")
async def test_a_documented_session_with_a_rejected_token_is_suspended(served: Served, ours: list[str]) -> None:
    write_match_items(served, (FIXTURES, FIXTURE | SIDES))
    coordinator = LACoordinator(served.store, Phones("aa11"), served.clock)

    await coordinator.deliver(await change_of(served))
    await coordinator.idle()
    await coordinator.aclose(0)

    listed = await data_as(served, '{ liveActivities(userId: "ada") { nodes { status } } }')
    assert listed["liveActivities"]["nodes"] == [{"status": "SUSPENDED"}]
