"""Fixtures that a sync stores, through the API on the real engine (FIX-4)."""

from typing import Any

import pytest
from msgspec.structs import replace

from datastore.matches.cricket import (
    Match,
    MatchPhase,
)
from datastore.matches.fixtures import Fixtures
from tests.support.fixture_steps import (
    ARCHIVE,
    CARD,
    LATER,
    MATCHES,
    MOMENT,
    ask_system,
    code_and_field,
    given,
    planned_match,
    put_fixtures,
    store_played_match,
    stored_fixture,
    sync_fixtures,
)
from tests.support.served import NOON, Served

# FIX-4: sync


async def test_fixtures_are_stored_25_at_a_time(served: Served) -> None:
    answer = await sync_fixtures(served, *[given(f"m{number:02}", startTime=LATER) for number in range(60)])

    assert answer.errors is None
    assert answer.made == ["BatchGetItem cricket-fixtures", *["BatchWriteItem cricket-fixtures"] * 3]
    sizes = [
        len(requests)
        for call in answer.calls
        if call.operation == "BatchWriteItem"
        for requests in call.request["RequestItems"].values()
    ]
    assert sorted(sizes) == [10, 25, 25]
    assert [match["matchId"] for match in answer.data["syncFixtures"]] == [f"m{number:02}" for number in range(60)]
    assert answer.data["syncFixtures"][0] == {
        "matchId": "m00",
        "status": "NS",
        "phase": "UPCOMING",
        "startTime": "2026-06-28T14:00:00.000Z",
        "round": None,
        "version": 0,
        "venue": None,
        "homeTeamId": "10",
        "updatedAt": MOMENT,
        "innings": [],
    }
    ids = [f"m{number:02}" for number in range(60)]
    assert (await served.ask(MATCHES, {"ids": ids})).data["matches"] == [{"matchId": id} for id in ids]


async def test_a_fixture_replaces_the_one_with_its_id(served: Served) -> None:
    await sync_fixtures(served, given(round="Final", venue={"name": "Lantern Park"}))

    answer = await sync_fixtures(served, given(startTime="2026-06-26T14:00:00+02:00", status="Postp."))

    (match,) = answer.data["syncFixtures"]
    assert (match["round"], match["venue"], match["status"], match["phase"]) == (None, None, "Postp.", "POSTPONED")
    assert match["startTime"] == "2026-06-26T12:00:00.000Z"
    assert (await stored_fixture(served) or {}).keys() & {"round", "venue"} == set()


async def test_the_last_of_two_fixtures_with_one_id_is_stored(served: Served) -> None:
    answer = await sync_fixtures(served, given(round="first"), given("m2"), given(round="last"))

    assert [(match["matchId"], match["round"]) for match in answer.data["syncFixtures"]] == [
        ("m1", "last"),
        ("m2", None),
    ]
    assert (await stored_fixture(served) or {})["round"] == "last"


async def test_played_state_survives_a_sync_of_the_fixture(served: Served) -> None:
    live = await store_played_match(served, planned_match("m1", round="Match 1"))

    changed = given("m1", status="NS", round="Final", startTime="2026-06-25T12:30:00Z")
    answer = await sync_fixtures(served, changed, given("m2", startTime=LATER))

    played, new = answer.data["syncFixtures"]
    assert (played["status"], played["phase"], played["version"]) == ("1st Innings", "LIVE", 7)
    assert (played["round"], played["startTime"]) == ("Final", "2026-06-25T12:30:00.000Z")
    assert played["innings"] == [{"runs": 120}]
    assert (new["matchId"], new["version"]) == ("m2", 0)
    assert answer.made == [
        "BatchGetItem cricket-fixtures",
        "BatchWriteItem cricket-fixtures",
        "UpdateItem cricket-fixtures",
    ]
    after = await Fixtures(served.store(), NOON).latest("m1")
    assert after is not None
    assert (after.scorecards, after.fence, after.innings) == (live.scorecards, 2, live.innings)


async def test_fixtures_that_may_start_soon_are_stored_one_by_one(served: Served) -> None:
    starts = ["2026-06-24T11:59:00Z", "2026-06-24T12:00:00Z", "2026-06-26T12:00:00Z", "2026-06-26T12:01:00Z"]

    answer = await sync_fixtures(served, *[given(f"m{number}", startTime=start) for number, start in enumerate(starts)])

    assert answer.made == [
        "BatchGetItem cricket-fixtures",
        "BatchWriteItem cricket-fixtures",
        *["UpdateItem cricket-fixtures"] * 2,
    ]
    assert [match["version"] for match in answer.data["syncFixtures"]] == [0] * 4
    # A match that was planned to begin soon may have begun before the report of its postponement arrives.
    later = await sync_fixtures(served, given("m2", startTime=LATER))
    assert later.made == ["GetItem cricket-fixtures", "UpdateItem cricket-fixtures"]


@pytest.mark.parametrize("version", [0, 7])
async def test_play_during_a_sync_is_not_lost(served: Served, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    before = await store_played_match(served, planned_match(), version=version) if version else planned_match()
    if not version:
        await put_fixtures(served, before)
    read = Fixtures.latest
    live = replace(
        before, status="2nd Innings", phase=MatchPhase.LIVE, version=version + 1, fence=3, scorecards=(CARD,)
    )

    async def read_just_before_a_tick(self: Fixtures, match_id: str) -> Match | None:
        found = await read(self, match_id)
        assert await Fixtures(served.store(), NOON).write_live(live)
        return found

    monkeypatch.setattr(Fixtures, "latest", read_just_before_a_tick)
    reported = planned_match(round="Final", status="Finished", phase=MatchPhase.FINISHED)
    [answered] = await Fixtures(served.store(), NOON).sync([reported], polled=())
    monkeypatch.undo()

    after = await Fixtures(served.store(), NOON).latest("m1")
    assert after == answered
    assert after is not None
    assert (after.round, after.status, after.version, after.fence) == ("Final", "2nd Innings", version + 1, 3)
    assert after.scorecards == (CARD,)


async def test_a_match_without_recent_writes_takes_the_state_of_its_source(served: Served) -> None:
    await store_played_match(
        served, planned_match(), status="Postp.", phase=MatchPhase.POSTPONED, innings=(), scorecards=()
    )
    await ask_system(served, ARCHIVE)

    [match] = (await sync_fixtures(served, given(startTime=LATER))).data["syncFixtures"]

    assert (match["status"], match["phase"], match["version"]) == ("NS", "UPCOMING", 8)
    item = await stored_fixture(served) or {}
    assert item["fence"] == 2
    assert "archivedAt" not in item


async def test_a_lagging_source_reverts_nothing(served: Served) -> None:
    live = await store_played_match(served, planned_match(), status="Finished", phase=MatchPhase.FINISHED)
    await ask_system(served, ARCHIVE)

    [match] = (await sync_fixtures(served, given(startTime="2026-06-25T11:00:00Z"))).data["syncFixtures"]

    assert (match["status"], match["version"], match["innings"]) == ("Finished", live.version, [{"runs": 120}])


BEYOND: list[tuple[dict[str, Any], str]] = [
    ({"matchId": " "}, "matchId"),
    ({"matchId": "x" * 101}, "matchId"),
    ({"leagueId": ""}, "leagueId"),
    ({"leagueCode": "x" * 21}, "leagueCode"),
    ({"homeTeamId": ""}, "homeTeamId"),
    ({"awayTeamId": "10"}, "awayTeamId"),
    ({"status": "x" * 101}, "status"),
    ({"round": "x" * 201}, "round"),
    ({"format": "x" * 101}, "format"),
    ({"note": "x" * 1001}, "note"),
    ({"seasonId": "x" * 101}, "seasonId"),
    ({"venue": {"name": ""}}, "venue.name"),
    ({"venue": {"name": "Here", "city": "x" * 201}}, "venue.city"),
    ({"scheduledOvers": 0}, "scheduledOvers"),
    ({"scheduledOvers": 101}, "scheduledOvers"),
    ({"ballsPerOver": 3}, "ballsPerOver"),
    ({"ballsPerOver": 9}, "ballsPerOver"),
    ({"startTime": "0999-12-31"}, "startTime"),
    ({"startTime": "0001-01-01T00:00:00+14:00"}, "startTime"),
    ({"startTime": "9999-12-31T23:59:59-14:00"}, "startTime"),
]


async def test_a_fixture_beyond_the_limits_is_refused_and_none_is_stored(served: Served) -> None:
    answers = [await sync_fixtures(served, given("fine"), given("other") | changes) for changes, _ in BEYOND]

    assert [code_and_field(answer) for answer in answers] == [
        ("BAD_USER_INPUT", f"input[1].{field}") for _, field in BEYOND
    ]
    assert [answer.calls for answer in answers] == [[]] * len(BEYOND)


async def test_more_than_100_fixtures_are_refused(served: Served) -> None:
    answer = await sync_fixtures(served, *[given(f"m{number}") for number in range(101)])

    assert code_and_field(answer) == ("BAD_USER_INPUT", "input")
    assert answer.calls == []
    assert (await sync_fixtures(served)).data == {"syncFixtures": []}
