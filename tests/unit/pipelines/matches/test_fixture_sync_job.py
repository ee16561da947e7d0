"""The sync of fixtures, on the real engine and a local SportMonks server."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

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
from datastore.session.store import Store
from pipelines.matches.sync.jobs import FixtureSyncJob, SyncResult
from tests.support.match_sync import Stores, fixtures_job, opened, provider, put_league, stored, stores, synced
from tests.support.sportmonks_provider import service, time
from tests.support.sportmonks_samples import (
    KITES,
    OWLS,
    START,
    Service,
    fixture_row,
    page_body,
    player,
    player_id,
    runs_row,
)

__all__ = ["fixtures_job", "opened", "provider", "service", "stores", "time"]

LATER = "2026-06-28T12:00:00Z"
LINEUPS = (LineupPlayer("1101", "Kit Adams", "11"),)


# The reads of each run of the fixtures' job.
LOOKED_UP = [
    "Query cricket-fixture-cache.leagueId-startingAt-index",
    "Scan active-matches",
    "Scan cricket-fixture-cache",
    "Scan cricket-leagues",
]


async def test_fixtures_are_written_when_they_are_new_or_changed(
    fixtures_job: FixtureSyncJob, service: Service, stores: Stores, opened: list[Store]
) -> None:
    await put_league(stores)
    await put_league(stores, "8", active=False)
    service.responses["fixtures"] = page_body([fixture_row(number, starting_at=LATER) for number in range(1, 31)])

    result, calls = await synced(fixtures_job, opened)
    assert result == SyncResult(fetched=30, written=30)
    assert calls.count("BatchWriteItem cricket-fixtures") == 2
    assert calls.count("BatchWriteItem cricket-fixture-cache") == 2
    assert not [name for name in calls if name.startswith(("UpdateItem", "BatchGetItem cricket-fixture-cache"))]
    assert [query["filter[league_id]"] for path, query in service.requests if path == "fixtures"] == ["7"]
    assert service.requests[-1][1]["filter[starts_between]"] == "2026-06-17,2026-07-26"

    result, calls = await synced(fixtures_job, opened)
    assert result == SyncResult(fetched=30)
    assert calls == ["BatchGetItem cricket-fixture-cache", *LOOKED_UP]

    service.responses["fixtures"]["data"][3] = fixture_row(4, starting_at="2026-06-26T12:00:00Z")
    service.responses["fixtures"]["data"].append(fixture_row(31, starting_at=LATER))
    assert await fixtures_job.run() == SyncResult(fetched=31, written=2)
    moved = await Fixtures(stores(), START).by_id("4")
    assert moved is not None
    assert moved.start_time == START + timedelta(days=1)
    cached = await FixtureCache(stores(), START).get("4")
    assert cached is not None
    assert (cached.snapshot.match.start_time, cached.version) == (moved.start_time, 0)


async def test_without_active_leagues_no_request_is_sent(fixtures_job: FixtureSyncJob, service: Service) -> None:
    assert await fixtures_job.run() == SyncResult()
    assert service.requests == []


async def test_more_than_a_hundred_fixtures_are_compared_in_parts(
    fixtures_job: FixtureSyncJob, service: Service, stores: Stores, opened: list[Store]
) -> None:
    await put_league(stores)
    numbers = list(range(1, 251))
    service.responses["fixtures"] = lambda request: page_body(
        [fixture_row(n, starting_at=LATER) for n in numbers[(int(request.query["page"]) - 1) * 100 :][:100]],
        int(request.query["page"]),
        3,
    )
    result, calls = await synced(fixtures_job, opened)
    assert result == SyncResult(fetched=250, written=250)
    assert calls.count("BatchWriteItem cricket-fixtures") == 10

    result, calls = await synced(fixtures_job, opened)
    assert result == SyncResult(fetched=250)
    assert calls == ["BatchGetItem cricket-fixture-cache"] * 3 + LOOKED_UP


async def play(stores: Stores, **changes: Any) -> Match:
    """Write match 501 to the fixture and to the cache, as its poller does."""
    total = InningsScore(1, str(KITES), runs=80, wickets=2, completed_overs=10, legal_balls=60)
    state = {"status": "1st Innings", "phase": MatchPhase.LIVE, "innings": (total,), "version": 40, "fence": 3}
    played = replace(await stored(stores), **(state | changes))
    assert await Fixtures(stores(), START).write_live(played)
    await FixtureCache(stores(), START).put(MatchSnapshot(played, lineups=LINEUPS), played.version)
    return played


@pytest.fixture
async def listed(fixtures_job: FixtureSyncJob, service: Service, stores: Stores) -> None:
    """Sync match 501 of an active league before it is played."""
    await put_league(stores)
    service.responses["fixtures"] = page_body([fixture_row(501)])
    assert await fixtures_job.run() == SyncResult(fetched=1, written=1)


@pytest.mark.usefixtures("listed")
async def test_a_played_match_keeps_its_state(
    fixtures_job: FixtureSyncJob, service: Service, stores: Stores, opened: list[Store]
) -> None:
    await play(stores, status="Finished", phase=MatchPhase.FINISHED, note="Kites won")

    lagging = fixture_row(501, status="2nd Innings", runs=[runs_row(1, KITES, 5, 0, 1)])
    service.responses["fixtures"] = page_body([lagging])
    result, calls = await synced(fixtures_job, opened)
    assert result == SyncResult(fetched=1)
    assert calls == ["GetItem cricket-fixture-cache", *LOOKED_UP]

    service.responses["fixtures"] = page_body([lagging | {"round": "Final"}])
    assert await fixtures_job.run() == SyncResult(fetched=1, written=1)
    assert await fixtures_job.run() == SyncResult(fetched=1)
    after = await stored(stores)
    assert (after.round, after.status, after.version, after.note) == ("Final", "Finished", 40, "Kites won")
    cached = await FixtureCache(stores(), START).get("501")
    assert cached is not None
    assert (cached.version, cached.snapshot.match.round, cached.snapshot.lineups) == (40, "Final", LINEUPS)


@pytest.mark.usefixtures("listed")
async def test_only_the_facts_of_a_polled_match_are_synced(
    fixtures_job: FixtureSyncJob, service: Service, stores: Stores
) -> None:
    played = await play(stores)
    await ActiveMatches(stores(), START).register(played, instance_id="i1")

    service.responses["fixtures"] = page_body(
        [fixture_row(501, status="Finished", round="Final", runs=[runs_row(1, KITES, 99, 0, 20)])]
    )
    assert await fixtures_job.run() == SyncResult(fetched=1, written=1)

    after = await stored(stores)
    cached = await FixtureCache(stores(), START).get("501")
    assert cached is not None
    assert (after.round, after.status, after.innings, after.version) == ("Final", "1st Innings", played.innings, 40)
    assert (cached.version, cached.snapshot.match.round) == (40, "1st Match")


@pytest.mark.usefixtures("listed")
async def test_a_match_that_ended_without_a_poller_ends(
    fixtures_job: FixtureSyncJob, service: Service, stores: Stores
) -> None:
    card = Scorecard(1, batting=(BattingLine("1101", "Kit Adams", 1, runs=60, balls=40),))
    played = await play(stores, scorecards=(card,))
    active = await ActiveMatches(stores(), START).register(played, instance_id="i1")
    assert await ActiveMatches(stores(), START).set_idle("501", active.fence)

    service.responses["fixtures"] = page_body(
        [
            fixture_row(
                501, status="Finished", note="No result", runs=[runs_row(1, KITES, 90, 3, 12)], man_of_match_id=1101
            )
        ]
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
    corrected = fixture_row(
        501, status="Finished", note="Owls won", winner_team_id=OWLS, runs=[runs_row(1, KITES, 80, 2, 10)]
    )
    service.responses["fixtures"] = page_body(
        [corrected | {"manofmatch": player(OWLS, 1), "man_of_match_id": player_id(OWLS, 1)}]
    )

    assert await fixtures_job.run() == SyncResult(fetched=1, written=1)

    after = await stored(stores)
    assert after.result is not None
    assert (after.note, after.result.winner_team_id, after.player_of_match) == ("Owls won", str(OWLS), "Olly Adams")
    assert after.version == 41
    assert after.archived_at == START


@pytest.mark.usefixtures("listed")
async def test_a_postponed_match_is_scheduled_again(
    fixtures_job: FixtureSyncJob, service: Service, stores: Stores
) -> None:
    await play(stores, status="Postp.", phase=MatchPhase.POSTPONED)
    await Fixtures(stores(), START).archive("501")
    service.responses["fixtures"] = page_body([fixture_row(501, starting_at=LATER)])

    assert await fixtures_job.run() == SyncResult(fetched=1, written=1)
    assert await fixtures_job.run() == SyncResult(fetched=1)

    after = await stored(stores)
    assert (after.status, after.phase, after.innings) == ("NS", MatchPhase.UPCOMING, ())
    assert (after.version, after.fence, after.archived_at) == (41, 3, None)
    assert after.start_time == START + timedelta(days=3)


async def test_fixtures_that_are_no_longer_listed_are_fetched(
    fixtures_job: FixtureSyncJob,
    service: Service,
    stores: Stores,
    opened: list[Store],
    caplog: pytest.LogCaptureFixture,
) -> None:
    await put_league(stores)
    service.responses["fixtures"] = page_body([fixture_row(number, starting_at=LATER) for number in (1, 2, 3)])
    assert await fixtures_job.run() == SyncResult(fetched=3, written=3)

    service.responses["fixtures"] = page_body([fixture_row(1, starting_at=LATER)])
    service.responses["fixtures/2"] = fixture_row(2, status="Cancl.", starting_at=LATER)
    service.requests.clear()
    assert await fixtures_job.run() == SyncResult(fetched=2, written=1)

    assert [path for path in service.paths() if path.startswith("fixtures/")] == ["fixtures/2", "fixtures/3"]
    cancelled, gone = await stored(stores, "2"), await stored(stores, "3")
    assert (cancelled.phase, cancelled.archived_at) == (MatchPhase.CANCELLED, None)
    assert (gone.phase, gone.archived_at) == (MatchPhase.UPCOMING, START)
    assert "match 3" in caplog.text

    result, calls = await synced(fixtures_job, opened)
    assert result == SyncResult(fetched=1)
    assert calls == ["GetItem cricket-fixture-cache", "GetItem cricket-fixtures", *LOOKED_UP]


async def test_at_most_twenty_are_fetched_in_a_run(
    fixtures_job: FixtureSyncJob, service: Service, stores: Stores
) -> None:
    await put_league(stores)
    service.responses["fixtures"] = page_body([fixture_row(number, starting_at=LATER) for number in range(1, 31)])
    await fixtures_job.run()

    service.responses["fixtures"] = page_body([])
    service.requests.clear()
    assert await fixtures_job.run() == SyncResult()

    assert len([path for path in service.paths() if path.startswith("fixtures/")]) == 20


async def test_a_fixture_that_cannot_be_stored_does_not_affect_the_others(
    fixtures_job: FixtureSyncJob, service: Service, stores: Stores, caplog: pytest.LogCaptureFixture
) -> None:
    await put_league(stores)
    fixtures = [fixture_row(number) for number in range(1, 31)]
    fixtures[12]["note"] = "x" * 500_000  # an item has 400 KB at most
    service.responses["fixtures"] = page_body([*fixtures, fixture_row(666, localteam_id=None)])

    assert await fixtures_job.run() == SyncResult(fetched=30, written=29, rejected=1)

    assert await Fixtures(stores(), START).by_id("13") is None
    assert await Fixtures(stores(), START).by_id("14") is not None
    assert "cannot be stored" in caplog.text
    assert "666" in caplog.text
