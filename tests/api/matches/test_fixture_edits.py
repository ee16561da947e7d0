"""Updates and archiving of a fixture by an operator, through the API on the real engine (FIX-5, FIX-6)."""

import asyncio
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from datastore.matches.cricket import (
    Venue,
)
from datastore.matches.fixtures import Fixtures
from tests.support.fixture_steps import (
    ARCHIVE,
    MOMENT,
    ask_system,
    code_and_field,
    league_pages,
    planned_match,
    put_fixtures,
    store_played_match,
    stored_fixture,
    update_fixture,
)
from tests.support.served import NOON, Served

# FIX-5: update


async def test_an_update_changes_the_given_fields_only(served: Served) -> None:
    await store_played_match(
        served, planned_match(round="Match 1", venue=Venue("Here", city="Port Alder"), note="Rain about", format="T20")
    )
    served.clock.forward(minutes=1)

    answer = await update_fixture(served, note=None, round="Final", startTime="2026-06-25T15:00:00Z")

    assert answer.made == ["UpdateItem cricket-fixtures"]
    assert answer.data["updateFixture"] == {
        "matchId": "m1",
        "status": "1st Innings",
        "phase": "LIVE",
        "startTime": "2026-06-25T15:00:00.000Z",
        "round": "Final",
        "format": "T20",
        "note": None,
        "scheduledOvers": None,
        "venue": {"name": "Here", "city": "Port Alder"},
        "version": 7,
        "updatedAt": "2026-06-25T12:01:00.000Z",
    }
    after = await served.ask('{ match(id: "m1") { round note startTime scorecards { batting { runs } } } }')
    assert after.data["match"] == {
        "round": "Final",
        "note": None,
        "startTime": "2026-06-25T15:00:00.000Z",
        "scorecards": [{"batting": [{"runs": 60}]}],
    }


async def test_null_removes_optional_fields(served: Served) -> None:
    await put_fixtures(
        served, planned_match(round="1", venue=Venue("Here"), note="x", format="T20", scheduled_overs=20)
    )

    answer = await update_fixture(served, round=None, venue=None, note=None, format=None, scheduledOvers=None)

    assert {answer.data["updateFixture"][name] for name in ("round", "venue", "note", "format", "scheduledOvers")} == {
        None
    }
    removed = {"round", "venue", "note", "format", "scheduledOvers"}
    assert (await stored_fixture(served) or {}).keys() & removed == set()


async def test_a_status_sets_its_phase(served: Served) -> None:
    await put_fixtures(served, planned_match())
    phases = {"Finished": "FINISHED", "Stump Day 1": "STUMPS", "a new word": "UNKNOWN"}

    answers = [await update_fixture(served, status=status) for status in phases]

    found = [answer.data["updateFixture"] for answer in answers]
    assert {match["status"]: match["phase"] for match in found} == phases


async def test_a_match_moves_within_its_league_when_its_start_changes(served: Served) -> None:
    await put_fixtures(served, planned_match("m1"), planned_match("m2", NOON + timedelta(hours=1)))

    await update_fixture(served, startTime="2026-06-25T14:00:00Z")

    assert await league_pages(served, 10, {"code": "IPL"}) == [["m2", "m1"]]


WRONG_UPDATES: list[tuple[dict[str, Any], str]] = [
    ({}, "input"),
    ({"startTime": None}, "startTime"),
    ({"status": None}, "status"),
    ({"status": " "}, "status"),
    ({"scheduledOvers": 101}, "scheduledOvers"),
    ({"venue": {"name": " "}}, "venue.name"),
]


async def test_an_invalid_update_changes_nothing(served: Served) -> None:
    await put_fixtures(served, planned_match())

    answers = [await update_fixture(served, **changes) for changes, _ in WRONG_UPDATES]

    assert [code_and_field(answer) for answer in answers] == [("BAD_USER_INPUT", field) for _, field in WRONG_UPDATES]
    assert [answer.calls for answer in answers] == [[]] * len(WRONG_UPDATES)


async def test_a_match_that_is_not_there_is_neither_changed_nor_made(served: Served) -> None:
    assert (await update_fixture(served, round="Final")).codes == ["NOT_FOUND"]
    assert (await ask_system(served, ARCHIVE)).codes == ["NOT_FOUND"]
    assert await stored_fixture(served) is None


async def test_concurrent_updates_of_different_fields_are_all_stored(served: Served) -> None:
    await put_fixtures(served, planned_match())

    await asyncio.gather(
        update_fixture(served, round="Final"), update_fixture(served, note="Dry"), update_fixture(served, format="ODI")
    )

    item = await stored_fixture(served) or {}
    assert (item["round"], item["note"], item["format"]) == ("Final", "Dry", "ODI")


# FIX-6: archive


async def test_an_archived_match_has_its_time_and_is_no_longer_live(served: Served) -> None:
    await store_played_match(served, planned_match())
    served.clock.forward(hours=1)

    answer = await ask_system(served, ARCHIVE)

    assert answer.made == ["UpdateItem cricket-fixtures"]
    assert answer.data["archiveFixture"] == {
        "matchId": "m1",
        "archivedAt": "2026-06-25T13:00:00.000Z",
        "liveUpdatedAt": None,
        "version": 7,
    }
    listed = await served.ask('{ matchesByLeague(leagueCode: "IPL") { nodes { archivedAt liveUpdatedAt } } }')
    assert listed.data["matchesByLeague"]["nodes"] == [
        {"archivedAt": "2026-06-25T13:00:00.000Z", "liveUpdatedAt": None}
    ]


async def test_a_match_that_is_played_again_is_no_longer_archived(served: Served) -> None:
    live = await store_played_match(served, planned_match())
    await ask_system(served, ARCHIVE)

    await Fixtures(served.store(), NOON).write_live(replace(live, version=8))

    answer = await served.ask('{ match(id: "m1") { archivedAt liveUpdatedAt version } }')
    assert answer.data["match"] == {"archivedAt": None, "liveUpdatedAt": MOMENT, "version": 8}
