"""Sync jobs on the real engine, with SportMonks played by a local server."""

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import timedelta
from typing import Any

import aiohttp
import orjson
import pytest
from aiohttp import web
from msgspec.structs import replace

from datastore.database import Database
from datastore.dynamodb.client import Client
from datastore.dynamodb.retry.backoff import Backoff
from datastore.keyspace.matches.locks import job_lock
from datastore.matches.active_matches import ActiveMatches
from datastore.matches.cricket import (
    BattingLine,
    InningsScore,
    LineupPlayer,
    Match,
    MatchPhase,
    MatchSnapshot,
    Scorecard,
)
from datastore.matches.fixture_cache import FixtureCache
from datastore.matches.fixtures import Fixtures
from datastore.matches.leagues import League, Leagues
from datastore.matches.locks import Locks, all_locks
from datastore.matches.team_seasons import TeamSeasons, team_season_from
from datastore.matches.teams import Teams
from datastore.session.metering import Deadline
from datastore.session.pagination import Span
from datastore.session.store import Store
from pipelines.matches.providers.sportmonks.provider import SportMonks
from pipelines.matches.sync.jobs import FixtureSyncJob, LeagueSyncJob, SyncJob, SyncResult, TeamSyncJob
from tests.support.fault_proxy import Fault, Proxy, Seen, refuse
from tests.support.served import call_name
from tests.support.sportmonks_samples import (
    KITES,
    OWLS,
    START,
    TOKEN,
    Json,
    Service,
    Time,
    failing,
    fixture,
    page,
    player,
    player_id,
    run,
    serving,
)

Stores = Callable[[], Store]
LATER = "2026-06-28T12:00:00Z"
LINEUPS = (LineupPlayer("1101", "Kit Adams", "11"),)
# What a run of the fixtures' job reads in any case.
LOOKED_UP = [
    "Query cricket-fixture-cache.leagueId-startingAt-index",
    "Scan active-matches",
    "Scan cricket-fixture-cache",
    "Scan cricket-leagues",
]
QUICKLY = Backoff(initial=0.001, maximum=0.002, attempts=5)
LEAGUES = [
    {"id": 7, "season_id": 70, "name": "Hill League", "code": "hl", "type": "league"},
    {"id": 8, "season_id": 80, "name": "Dale Cup", "code": "DC", "type": "phase"},
]


@pytest.fixture
async def service() -> AsyncIterator[Service]:
    async with serving() as service:
        yield service


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def opened() -> list[Store]:
    """The stores that were opened since a test cleared them."""
    return []


@pytest.fixture
def stores(database: Database, opened: list[Store]) -> Stores:
    return stores_of(database.client, database, opened)


def stores_of(client: Client, database: Database, opened: list[Store]) -> Stores:
    def open_store() -> Store:
        opened.append(Store(client, prefix=database.prefix, deadline=Deadline(10), token=lambda: "token"))
        return opened[-1]

    return open_store


@pytest.fixture
async def provider(service: Service, time: Time) -> AsyncIterator[SportMonks]:
    async with aiohttp.ClientSession() as session:
        yield SportMonks(session, TOKEN, base_url=service.url, now=time, sleep=time.sleep, retry=QUICKLY)


def calls(opened: Sequence[Store], *besides: str) -> list[str]:
    """The DynamoDB calls besides those for the lock."""
    made = [call_name(call) for store in opened for call in store.meter.calls]
    return sorted(name for name in made if "cricket-locks" not in name and not name.startswith(besides))


def test_how_a_sync_went_is_told_in_words() -> None:
    assert str(SyncResult(fetched=1_200, written=3)) == "1,200 fetched, 3 written"
    failed = SyncResult(fetched=2, written=1, rejected=1, error="ProviderError")
    assert str(failed) == "2 fetched, 1 written, 1 rejected, ended early (ProviderError)"


async def synced(job: SyncJob, opened: list[Store]) -> tuple[SyncResult, list[str]]:
    """How a run went, and the calls it made."""
    opened.clear()
    done = await job.run()
    return done, calls(opened)


@pytest.fixture
def leagues_job(provider: SportMonks, stores: Stores, time: Time) -> LeagueSyncJob:
    return LeagueSyncJob(provider, stores, "i1", time)


@pytest.fixture
def teams_job(provider: SportMonks, stores: Stores, time: Time) -> TeamSyncJob:
    return TeamSyncJob(provider, stores, "i1", time)


@pytest.fixture
def fixtures_job(provider: SportMonks, stores: Stores, time: Time) -> FixtureSyncJob:
    return FixtureSyncJob(provider, stores, "i1", time)


async def put_league(stores: Stores, league_id: str = "7", **changes: Any) -> None:
    defaults = {"name": "Hill League", "code": "HL", "season_id": "70"}
    await Leagues(stores(), START).put(League(league_id, **(defaults | changes)))


# Leagues


async def test_leagues_are_put_when_they_are_new_or_changed(
    leagues_job: LeagueSyncJob, service: Service, stores: Stores, opened: list[Store]
) -> None:
    service.says["leagues"] = LEAGUES
    done, made = await synced(leagues_job, opened)
    assert done == SyncResult(fetched=2, written=2)
    assert made == ["PutItem cricket-leagues"] * 2 + ["Scan cricket-leagues"]

    assert await synced(leagues_job, opened) == (SyncResult(fetched=2), ["Scan cricket-leagues"])

    service.says["leagues"] = [LEAGUES[0], LEAGUES[1] | {"season_id": 81}]
    done, made = await synced(leagues_job, opened)
    assert done == SyncResult(fetched=2, written=1)
    stored = {league.league_id: league for league in await Leagues(stores(), START).all()}
    assert {league.code: league.season_id for league in stored.values()} == {"HL": "70", "DC": "81"}
    assert all(league.active for league in stored.values())


async def test_an_admins_choice_of_active_leagues_stays(
    leagues_job: LeagueSyncJob, service: Service, stores: Stores
) -> None:
    service.says["leagues"] = LEAGUES
    await leagues_job.run()
    await Leagues(stores(), START).update("8", {"active": False})

    assert await leagues_job.run() == SyncResult(fetched=2)
    service.says["leagues"] = [LEAGUES[0], LEAGUES[1] | {"name": "Dale Trophy"}]
    assert await leagues_job.run() == SyncResult(fetched=2, written=1)

    league = await Leagues(stores(), START).by_id("8")
    assert league is not None
    assert (league.name, league.active) == ("Dale Trophy", False)


# Teams


def team(number: int, **changes: Json) -> Json:
    return {"id": number, "name": f"Team {number}", "code": f"T{number}", "national_team": False} | changes


async def test_teams_are_written_in_batches_of_25(
    teams_job: TeamSyncJob, service: Service, stores: Stores, opened: list[Store]
) -> None:
    service.says["teams"] = [team(number) for number in range(1, 61)] + [team(0), "team"]
    done, made = await synced(teams_job, opened)
    assert done == SyncResult(fetched=60, written=60)
    batches = ["BatchWriteItem cricket-teams"] * 3
    assert made == [*batches, "Scan cricket-leagues", "Scan cricket-teams"]

    service.says["teams"] = [team(number) for number in range(1, 62)]
    service.says["teams"][4]["name"] = "Team V"
    done, made = await synced(teams_job, opened)
    assert done == SyncResult(fetched=61, written=2)
    assert made.count("BatchWriteItem cricket-teams") == 1
    stored = await Teams(stores(), START).by_id("5")
    assert stored is not None
    assert stored.name == "Team V"


async def test_the_current_season_of_active_leagues_is_written(
    teams_job: TeamSyncJob, service: Service, stores: Stores, opened: list[Store]
) -> None:
    await put_league(stores)
    await put_league(stores, "8", season_id="80", active=False)
    await put_league(stores, "9", season_id=None)
    standing = {"league_id": 7, "position": 1, "points": 4, "netto_run_rate": 0.125}
    service.says |= {
        "teams": [],
        "standings/season/70": [{"team_id": KITES, **standing}, {"team_id": OWLS, **standing}],
    }
    done, made = await synced(teams_job, opened)
    assert done == SyncResult(fetched=2, written=2)
    assert made.count("BatchWriteItem cricket-team-seasons") == 1
    assert [path for path in service.paths() if path != "teams"] == ["standings/season/70"]

    done, made = await synced(teams_job, opened)
    assert done == SyncResult(fetched=2)
    assert "BatchWriteItem cricket-team-seasons" not in made

    service.says["standings/season/70"][0]["position"] = 2
    assert await teams_job.run() == SyncResult(fetched=2, written=1)
    found = await TeamSeasons(stores(), START).of_season("70", Span(10))
    rows = [team_season_from(item) for item in found.items]
    assert [(row.team_id, row.position, row.net_run_rate) for row in rows] == [("11", 2, 0.125), ("12", 1, 0.125)]


async def test_a_season_without_standings_gives_its_teams(
    teams_job: TeamSyncJob, service: Service, stores: Stores
) -> None:
    await put_league(stores)
    service.says |= {"teams": [], "seasons/70": {"id": 70, "league_id": 7, "name": "2026", "teams": [team(11)]}}
    assert await teams_job.run() == SyncResult(fetched=1, written=1)
    assert service.paths() == ["teams", "standings/season/70", "seasons/70"]


# Fixtures


async def test_fixtures_are_written_when_they_are_new_or_changed(
    fixtures_job: FixtureSyncJob, service: Service, stores: Stores, opened: list[Store]
) -> None:
    await put_league(stores)
    await put_league(stores, "8", active=False)
    service.says["fixtures"] = page([fixture(number, starting_at=LATER) for number in range(1, 31)])

    done, made = await synced(fixtures_job, opened)
    assert done == SyncResult(fetched=30, written=30)
    assert made.count("BatchWriteItem cricket-fixtures") == 2
    assert made.count("BatchWriteItem cricket-fixture-cache") == 2
    assert not [name for name in made if name.startswith(("UpdateItem", "BatchGetItem cricket-fixture-cache"))]
    assert [query["filter[league_id]"] for path, query in service.asked if path == "fixtures"] == ["7"]
    assert service.asked[-1][1]["filter[starts_between]"] == "2026-06-17,2026-07-26"

    done, made = await synced(fixtures_job, opened)
    assert done == SyncResult(fetched=30)
    assert made == ["BatchGetItem cricket-fixture-cache", *LOOKED_UP]

    service.says["fixtures"]["data"][3] = fixture(4, starting_at="2026-06-26T12:00:00Z")
    service.says["fixtures"]["data"].append(fixture(31, starting_at=LATER))
    assert await fixtures_job.run() == SyncResult(fetched=31, written=2)
    moved = await Fixtures(stores(), START).by_id("4")
    assert moved is not None
    assert moved.start_time == START + timedelta(days=1)
    cached = await FixtureCache(stores(), START).get("4")
    assert cached is not None
    assert (cached.snapshot.match.start_time, cached.version) == (moved.start_time, 0)


async def test_without_active_leagues_nothing_is_asked_for(fixtures_job: FixtureSyncJob, service: Service) -> None:
    assert await fixtures_job.run() == SyncResult()
    assert service.asked == []


async def test_more_than_a_hundred_fixtures_are_compared_in_parts(
    fixtures_job: FixtureSyncJob, service: Service, stores: Stores, opened: list[Store]
) -> None:
    await put_league(stores)
    numbers = list(range(1, 251))
    service.says["fixtures"] = lambda request: page(
        [fixture(n, starting_at=LATER) for n in numbers[(int(request.query["page"]) - 1) * 100 :][:100]],
        int(request.query["page"]),
        3,
    )
    done, made = await synced(fixtures_job, opened)
    assert done == SyncResult(fetched=250, written=250)
    assert made.count("BatchWriteItem cricket-fixtures") == 10

    done, made = await synced(fixtures_job, opened)
    assert done == SyncResult(fetched=250)
    assert made == ["BatchGetItem cricket-fixture-cache"] * 3 + LOOKED_UP


async def stored(stores: Stores, match_id: str = "501") -> Match:
    found = await Fixtures(stores(), START).latest(match_id)
    assert found is not None
    return found


async def play(stores: Stores, **changes: Any) -> Match:
    """Match 501 as its poller leaves it: in the fixture and in the cache."""
    total = InningsScore(1, str(KITES), runs=80, wickets=2, completed_overs=10, legal_balls=60)
    state = {"status": "1st Innings", "phase": MatchPhase.LIVE, "innings": (total,), "version": 40, "fence": 3}
    played = replace(await stored(stores), **(state | changes))
    assert await Fixtures(stores(), START).write_live(played)
    await FixtureCache(stores(), START).put(MatchSnapshot(played, lineups=LINEUPS), played.version)
    return played


@pytest.fixture
async def listed(fixtures_job: FixtureSyncJob, service: Service, stores: Stores) -> None:
    """Match 501 of an active league, as it was before it was played."""
    await put_league(stores)
    service.says["fixtures"] = page([fixture(501)])
    assert await fixtures_job.run() == SyncResult(fetched=1, written=1)


@pytest.mark.usefixtures("listed")
async def test_a_match_that_was_played_keeps_how_it_stands(
    fixtures_job: FixtureSyncJob, service: Service, stores: Stores, opened: list[Store]
) -> None:
    await play(stores, status="Finished", phase=MatchPhase.FINISHED, note="Kites won")

    lagging = fixture(501, status="2nd Innings", runs=[run(1, KITES, 5, 0, 1)])
    service.says["fixtures"] = page([lagging])
    done, made = await synced(fixtures_job, opened)
    assert done == SyncResult(fetched=1)
    assert made == ["GetItem cricket-fixture-cache", *LOOKED_UP]

    service.says["fixtures"] = page([lagging | {"round": "Final"}])
    assert await fixtures_job.run() == SyncResult(fetched=1, written=1)
    assert await fixtures_job.run() == SyncResult(fetched=1)
    after = await stored(stores)
    assert (after.round, after.status, after.version, after.note) == ("Final", "Finished", 40, "Kites won")
    cached = await FixtureCache(stores(), START).get("501")
    assert cached is not None
    assert (cached.version, cached.snapshot.match.round, cached.snapshot.lineups) == (40, "Final", LINEUPS)


@pytest.mark.usefixtures("listed")
async def test_of_a_match_that_is_polled_only_the_facts_are_synced(
    fixtures_job: FixtureSyncJob, service: Service, stores: Stores
) -> None:
    played = await play(stores)
    await ActiveMatches(stores(), START).register(played, instance_id="i1")

    service.says["fixtures"] = page([fixture(501, status="Finished", round="Final", runs=[run(1, KITES, 99, 0, 20)])])
    assert await fixtures_job.run() == SyncResult(fetched=1, written=1)

    after = await stored(stores)
    cached = await FixtureCache(stores(), START).get("501")
    assert cached is not None
    assert (after.round, after.status, after.innings, after.version) == ("Final", "1st Innings", played.innings, 40)
    assert (cached.version, cached.snapshot.match.round) == (40, "1st Match")


@pytest.mark.usefixtures("listed")
async def test_a_match_that_ended_while_nobody_polled_it_ends(
    fixtures_job: FixtureSyncJob, service: Service, stores: Stores
) -> None:
    card = Scorecard(1, batting=(BattingLine("1101", "Kit Adams", 1, runs=60, balls=40),))
    played = await play(stores, scorecards=(card,))
    active = await ActiveMatches(stores(), START).register(played, instance_id="i1")
    assert await ActiveMatches(stores(), START).set_idle("501", active.fence)

    service.says["fixtures"] = page(
        [fixture(501, status="Finished", note="No result", runs=[run(1, KITES, 90, 3, 12)], man_of_match_id=1101)]
    )
    assert await fixtures_job.run() == SyncResult(fetched=1, written=1)
    assert await fixtures_job.run() == SyncResult(fetched=1)

    after = await stored(stores)
    assert (after.phase, after.note, after.innings[0].runs, after.version) == (
        MatchPhase.FINISHED, "No result", 90, 41
    )  # fmt: skip
    assert (after.fence, after.scorecards) == (3, (card,))
    cached = await FixtureCache(stores(), START).get("501")
    assert cached is not None
    assert (cached.version, cached.snapshot.match.status, cached.snapshot.lineups) == (41, "Finished", LINEUPS)


@pytest.mark.usefixtures("listed")
async def test_a_result_that_is_corrected_later_arrives(
    fixtures_job: FixtureSyncJob, service: Service, stores: Stores
) -> None:
    await play(stores, status="Finished", phase=MatchPhase.FINISHED, note="Kites won")
    await Fixtures(stores(), START).archive("501")
    told = fixture(501, status="Finished", note="Owls won", winner_team_id=OWLS, runs=[run(1, KITES, 80, 2, 10)])
    service.says["fixtures"] = page([told | {"manofmatch": player(OWLS, 1), "man_of_match_id": player_id(OWLS, 1)}])

    assert await fixtures_job.run() == SyncResult(fetched=1, written=1)

    after = await stored(stores)
    assert after.result is not None
    assert (after.note, after.result.winner_team_id, after.player_of_match) == ("Owls won", str(OWLS), "Olly Adams")
    assert after.version == 41
    assert after.archived_at == START


@pytest.mark.usefixtures("listed")
async def test_a_match_that_was_postponed_is_to_be_played_again(
    fixtures_job: FixtureSyncJob, service: Service, stores: Stores
) -> None:
    await play(stores, status="Postp.", phase=MatchPhase.POSTPONED)
    await Fixtures(stores(), START).archive("501")
    service.says["fixtures"] = page([fixture(501, starting_at=LATER)])

    assert await fixtures_job.run() == SyncResult(fetched=1, written=1)
    assert await fixtures_job.run() == SyncResult(fetched=1)

    after = await stored(stores)
    assert (after.status, after.phase, after.innings) == ("NS", MatchPhase.UPCOMING, ())
    assert (after.version, after.fence, after.archived_at) == (41, 3, None)
    assert after.start_time == START + timedelta(days=3)


async def test_fixtures_that_are_listed_no_more_are_asked_for(
    fixtures_job: FixtureSyncJob,
    service: Service,
    stores: Stores,
    opened: list[Store],
    caplog: pytest.LogCaptureFixture,
) -> None:
    await put_league(stores)
    service.says["fixtures"] = page([fixture(number, starting_at=LATER) for number in (1, 2, 3)])
    assert await fixtures_job.run() == SyncResult(fetched=3, written=3)

    service.says["fixtures"] = page([fixture(1, starting_at=LATER)])
    service.says["fixtures/2"] = fixture(2, status="Cancl.", starting_at=LATER)
    service.asked.clear()
    assert await fixtures_job.run() == SyncResult(fetched=2, written=1)

    assert [path for path in service.paths() if path.startswith("fixtures/")] == ["fixtures/2", "fixtures/3"]
    cancelled, gone = await stored(stores, "2"), await stored(stores, "3")
    assert (cancelled.phase, cancelled.archived_at) == (MatchPhase.CANCELLED, None)
    assert (gone.phase, gone.archived_at) == (MatchPhase.UPCOMING, START)
    assert "match 3" in caplog.text

    done, made = await synced(fixtures_job, opened)
    assert done == SyncResult(fetched=1)
    assert made == ["GetItem cricket-fixture-cache", "GetItem cricket-fixtures", *LOOKED_UP]


async def test_at_most_twenty_are_asked_for_in_a_run(
    fixtures_job: FixtureSyncJob, service: Service, stores: Stores
) -> None:
    await put_league(stores)
    service.says["fixtures"] = page([fixture(number, starting_at=LATER) for number in range(1, 31)])
    await fixtures_job.run()

    service.says["fixtures"] = page([])
    service.asked.clear()
    assert await fixtures_job.run() == SyncResult()

    assert len([path for path in service.paths() if path.startswith("fixtures/")]) == 20


async def test_one_fixture_that_cannot_be_stored_leaves_the_others(
    fixtures_job: FixtureSyncJob, service: Service, stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    await put_league(stores)
    fixtures = [fixture(number) for number in range(1, 31)]
    fixtures[12]["note"] = "x" * 500_000  # an item has 400 KB at most
    service.says["fixtures"] = page([*fixtures, fixture(666, localteam_id=None)])

    assert await fixtures_job.run() == SyncResult(fetched=30, written=29, rejected=1)

    assert await Fixtures(stores(), START).by_id("13") is None
    assert await Fixtures(stores(), START).by_id("14") is not None
    assert "cannot be stored" in caplog.text
    assert "666" in caplog.text


# Failures


async def test_a_provider_that_fails_ends_the_run_and_what_was_written_stays(
    fixtures_job: FixtureSyncJob, service: Service, stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    await put_league(stores)

    def said(request: web.Request) -> Json:
        number = int(request.query["page"])
        if number == 2:
            service.faults += [failing(500)] * 9
        return page([fixture(n) for n in range(number * 100, number * 100 + 100)], number, 4)

    service.says["fixtures"] = said
    done = await fixtures_job.run()

    assert done == SyncResult(fetched=200, written=200, error="ProviderUnavailable")
    assert "Sync of fixtures ended early: SportMonks fixtures: HTTP 500." in caplog.text
    assert await Fixtures(stores(), START).by_id("299") is not None
    assert await all_locks(stores()) == []


@pytest.mark.parametrize("kind", [LeagueSyncJob, TeamSyncJob])
@pytest.mark.parametrize(
    ("status", "error"), [(401, "ProviderRefused"), (429, "ProviderUnavailable"), (200, "Malformed")]
)
async def test_every_kind_of_failure_is_told(
    provider: SportMonks, service: Service, stores: Stores, time: Time, kind: type[SyncJob], status: int, error: str
) -> None:
    service.faults.append(failing(status))
    assert await kind(provider, stores, "i1", time).run() == SyncResult(error=error)
    assert await all_locks(stores()) == []


def leaving(number: int) -> Fault:
    """The last requests of a batch are not done, and answered as unprocessed."""

    async def answer(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        if seen.operation != "BatchWriteItem":
            _, headers, content = await proxy.ask(seen)
            return web.Response(body=content, headers=headers)
        ((table, requests),) = seen.body["RequestItems"].items()
        answered: dict[str, Any] = {}
        if done := requests[:-number]:
            seen.body["RequestItems"] = {table: done}
            answered = orjson.loads((await proxy.ask(seen))[2])
        return web.Response(body=orjson.dumps(answered | {"UnprocessedItems": {table: requests[-number:]}}))

    return answer


async def test_what_stays_unprocessed_is_written_again(
    provider: SportMonks,
    service: Service,
    database: Database,
    stores: Stores,
    proxy: Proxy,
    client: Client,
    time: Time,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("datastore.session.batch_write.UNPROCESSED", QUICKLY)
    service.says["teams"] = [team(number) for number in range(1, 31)]
    job = TeamSyncJob(provider, stores_of(client, database, []), "i1", time)
    proxy.faults += [leaving(7)] * 5  # lock, scan, two batches, one of them again

    assert await job.run() == SyncResult(fetched=30, written=30)

    written = [seen.body["RequestItems"] for seen in proxy.seen if seen.operation == "BatchWriteItem"]
    assert len(written) == 5
    assert all(len(requests) <= 25 for items in written for requests in items.values())
    assert len(await Teams(stores(), START).all()) == 30


async def test_what_stays_unprocessed_for_good_ends_the_run_and_the_next_run_writes_it(
    provider: SportMonks,
    service: Service,
    database: Database,
    stores: Stores,
    proxy: Proxy,
    client: Client,
    time: Time,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("datastore.session.batch_write.UNPROCESSED", QUICKLY)
    service.says["teams"] = [team(number) for number in range(1, 31)]
    job = TeamSyncJob(provider, stores_of(client, database, []), "i1", time)
    proxy.always = leaving(1)
    assert await job.run() == SyncResult(fetched=30, error="Throttled")
    assert len(await Teams(stores(), START).all()) == 28

    proxy.always = None
    assert await job.run() == SyncResult(fetched=30, written=2)


async def test_a_store_that_fails_ends_the_run(
    provider: SportMonks, service: Service, database: Database, proxy: Proxy, client: Client, time: Time
) -> None:
    service.says["leagues"] = LEAGUES
    job = LeagueSyncJob(provider, stores_of(client, database, []), "i1", time)

    async def locks_only(proxy: Proxy, seen: Seen) -> web.StreamResponse:
        if "cricket-locks" not in seen.body.get("TableName", ""):
            return await refuse(400, "ProvisionedThroughputExceededException")(proxy, seen)
        _, headers, content = await proxy.ask(seen)
        return web.Response(body=content, headers=headers)

    proxy.always = locks_only
    assert await job.run() == SyncResult(fetched=2, error="Throttled")


# Locks


async def test_one_instance_at_a_time_does_a_job(
    leagues_job: LeagueSyncJob, service: Service, stores: Stores, time: Time
) -> None:
    service.says["leagues"] = LEAGUES
    other = Locks(stores(), "i2", time())
    assert await other.acquire(job_lock("leagues"), 60)

    assert await leagues_job.run() == SyncResult(locked=True)
    assert service.asked == []

    assert await other.release(job_lock("leagues"))
    assert await leagues_job.run() == SyncResult(fetched=2, written=2)
    assert await all_locks(stores()) == []


async def test_a_long_run_extends_its_lock(
    fixtures_job: FixtureSyncJob, service: Service, stores: Stores, time: Time
) -> None:
    await put_league(stores)
    tried: list[bool] = []

    async def said_slowly(request: web.Request) -> web.StreamResponse:
        time.forward(100)
        tried.append(await Locks(stores(), "i2", time()).acquire(job_lock("fixtures"), 60))
        number = int(request.query["page"])
        return web.json_response(page([fixture(n) for n in range(number * 100, number * 100 + 100)], number, 6))

    service.faults += [said_slowly] * 6
    assert await fixtures_job.run() == SyncResult(fetched=600, written=600)
    assert tried == [False] * 6


async def test_a_run_that_lost_its_lock_stops(
    fixtures_job: FixtureSyncJob, service: Service, stores: Stores, time: Time
) -> None:
    await put_league(stores)

    async def said_too_slowly(request: web.Request) -> web.StreamResponse:
        number = int(request.query["page"])
        if number == 2:
            time.forward(300)
            assert await Locks(stores(), "i2", time()).acquire(job_lock("fixtures"), 60)
        return web.json_response(page([fixture(n) for n in range(number * 100, number * 100 + 100)], number, 6))

    service.faults += [said_too_slowly] * 6
    assert await fixtures_job.run() == SyncResult(fetched=100, written=100, error="LockLost")
    assert [(lock.name, lock.owner) for lock in await all_locks(stores())] == [("job:fixtures", "i2")]
    assert await Fixtures(stores(), START).by_id("200") is None
