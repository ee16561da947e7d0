"""The sync of leagues, teams and seasons, on the real engine and a local SportMonks server."""

import pytest

from datastore.matches.leagues import Leagues
from datastore.matches.team_seasons import TeamSeason, TeamSeasons
from datastore.matches.teams import Teams
from datastore.session.pagination import Span
from datastore.session.store import Store
from pipelines.matches.providers.sportmonks.provider import SportMonks
from pipelines.matches.sync.jobs import LeagueSyncJob, SyncResult, TeamSyncJob
from tests.support.match_sync import LEAGUES, Stores, leagues_job, opened, provider, put_league, stores, synced, team
from tests.support.sportmonks_provider import service, time
from tests.support.sportmonks_samples import (
    KITES,
    OWLS,
    START,
    ProviderTime,
    Service,
)

__all__ = ["leagues_job", "opened", "provider", "service", "stores", "time"]


def test_the_text_of_a_sync_result() -> None:
    assert str(SyncResult(fetched=1_200, written=3)) == "1,200 fetched, 3 written"
    failed = SyncResult(fetched=2, written=1, rejected=1, error="ProviderError")
    assert str(failed) == "2 fetched, 1 written, 1 rejected, ended early (ProviderError)"


@pytest.fixture
def teams_job(provider: SportMonks, stores: Stores, time: ProviderTime) -> TeamSyncJob:
    return TeamSyncJob(provider, stores, "i1", time)


async def test_leagues_are_put_when_they_are_new_or_changed(
    leagues_job: LeagueSyncJob, service: Service, stores: Stores, opened: list[Store]
) -> None:
    service.responses["leagues"] = LEAGUES
    result, calls = await synced(leagues_job, opened)
    assert result == SyncResult(fetched=2, written=2)
    assert calls == ["PutItem cricket-leagues"] * 2 + ["Scan cricket-leagues"]

    assert await synced(leagues_job, opened) == (SyncResult(fetched=2), ["Scan cricket-leagues"])

    service.responses["leagues"] = [LEAGUES[0], LEAGUES[1] | {"season_id": 81}]
    result, calls = await synced(leagues_job, opened)
    assert result == SyncResult(fetched=2, written=1)
    stored = {league.league_id: league for league in await Leagues(stores(), START).all()}
    assert {league.code: league.current_season_id for league in stored.values()} == {"HL": "70", "DC": "81"}
    assert all(league.active for league in stored.values())


async def test_an_admins_choice_of_active_leagues_stays(
    leagues_job: LeagueSyncJob, service: Service, stores: Stores
) -> None:
    service.responses["leagues"] = LEAGUES
    await leagues_job.run()
    await Leagues(stores(), START).update("8", {"active": False})

    assert await leagues_job.run() == SyncResult(fetched=2)
    service.responses["leagues"] = [LEAGUES[0], LEAGUES[1] | {"name": "Dale Trophy"}]
    assert await leagues_job.run() == SyncResult(fetched=2, written=1)

    league = await Leagues(stores(), START).by_id("8")
    assert league is not None
    assert (league.name, league.active) == ("Dale Trophy", False)


async def test_teams_are_written_in_batches_of_25(
    teams_job: TeamSyncJob, service: Service, stores: Stores, opened: list[Store]
) -> None:
    service.responses["teams"] = [team(number) for number in range(1, 61)] + [team(0), "team"]
    result, calls = await synced(teams_job, opened)
    assert result == SyncResult(fetched=60, written=60)
    batches = ["BatchWriteItem cricket-teams"] * 3
    assert calls == [*batches, "Scan cricket-leagues", "Scan cricket-teams"]

    service.responses["teams"] = [team(number) for number in range(1, 62)]
    service.responses["teams"][4]["name"] = "Team V"
    result, calls = await synced(teams_job, opened)
    assert result == SyncResult(fetched=61, written=2)
    assert calls.count("BatchWriteItem cricket-teams") == 1
    stored = await Teams(stores(), START).by_id("5")
    assert stored is not None
    assert stored.name == "Team V"


async def test_the_current_season_of_active_leagues_is_written(
    teams_job: TeamSyncJob, service: Service, stores: Stores, opened: list[Store]
) -> None:
    await put_league(stores)
    await put_league(stores, "8", current_season_id="80", active=False)
    await put_league(stores, "9", current_season_id=None)
    standing = {"league_id": 7, "position": 1, "points": 4, "netto_run_rate": 0.125}
    service.responses |= {
        "teams": [],
        "standings/season/70": [{"team_id": KITES, **standing}, {"team_id": OWLS, **standing}],
    }
    result, calls = await synced(teams_job, opened)
    assert result == SyncResult(fetched=2, written=2)
    assert calls.count("BatchWriteItem cricket-team-seasons") == 1
    assert [path for path in service.paths() if path != "teams"] == ["standings/season/70"]

    result, calls = await synced(teams_job, opened)
    assert result == SyncResult(fetched=2)
    assert "BatchWriteItem cricket-team-seasons" not in calls

    service.responses["standings/season/70"][0]["position"] = 2
    assert await teams_job.run() == SyncResult(fetched=2, written=1)
    found = await TeamSeasons(stores(), START).of_season("70", Span(10))
    rows = [TeamSeason.decoder(item) for item in found.items]
    assert [(row.team_id, row.position, row.net_run_rate) for row in rows] == [("11", 2, 0.125), ("12", 1, 0.125)]


async def test_a_season_without_standings_gives_its_teams(
    teams_job: TeamSyncJob, service: Service, stores: Stores
) -> None:
    await put_league(stores)
    service.responses |= {"teams": [], "seasons/70": {"id": 70, "league_id": 7, "name": "2026", "teams": [team(11)]}}
    assert await teams_job.run() == SyncResult(fetched=1, written=1)
    assert service.paths() == ["teams", "standings/season/70", "seasons/70"]
