"""The facts of SportMonks fixtures, from complete, incomplete and contradictory payloads."""

import json

import pytest

from datastore.matches.cricket import (
    Match,
    MatchPhase,
    MatchSnapshot,
    Toss,
    Venue,
)
from pipelines.matches.providers.sportmonks.fixtures import match_of, snapshot_of
from pipelines.matches.providers.sportmonks.reference import leagues_of
from pipelines.matches.providers.sportmonks.values import UnreadableRow
from tests.support.sportmonks_matches import TABLE, match, snapshot
from tests.support.sportmonks_samples import (
    KITES,
    OWLS,
    REAL,
    START,
    Json,
    ball_row,
    batting_row,
    bowling_row,
    extra,
    fixture_row,
    lineup,
    player,
    player_id,
    runs_row,
    total,
)


# Facts
def test_a_fixture_before_it_begins() -> None:
    assert snapshot_of(fixture_row(), {}, TABLE) == MatchSnapshot(
        Match(
            match_id="501",
            league_id="7",
            league_code="HL",
            home_team_id="11",
            away_team_id="12",
            start_time=START,
            status="NS",
            phase=MatchPhase.UPCOMING,
            season_id="70",
            round="1st Match",
            format="T20",
            venue=Venue("Long Meadow", "9", "Hillford"),
            scheduled_overs=20,
            scorecards=None,
        )
    )


@pytest.mark.parametrize(
    ("status", "phase"),
    [
        ("NS", "upcoming"), ("1st Innings", "live"), ("2nd Innings", "live"), ("3rd Innings", "live"),
        ("4th Innings", "live"), ("Innings Break", "break"), ("Tea Break", "break"), ("Lunch", "break"),
        ("Dinner", "break"), ("Stump Day 1", "stumps"), ("Stump Day 5", "stumps"), ("Int.", "interrupted"),
        ("Delayed", "interrupted"), ("Finished", "finished"), ("Aban.", "abandoned"), ("Cancl.", "cancelled"),
        ("Cancl", "cancelled"), ("Postp.", "postponed"), ("Interview", "unknown"), ("Golden Over", "unknown"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("live", [True, False])
def test_the_phase_follows_from_the_status_alone(status: str, phase: str, live: bool) -> None:
    found = match(status=status, live=live)
    assert (found.status, found.phase) == (status, phase)


def test_an_unknown_status_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    assert match(status="Golden Over").status == "Golden Over"
    assert "fixture 501 has the unknown status 'Golden Over'" in caplog.text


@pytest.mark.parametrize(
    "changes",
    [{"id": None}, {"id": "x"}, {"id": True}, {"id": 0}, {"league_id": None}, {"localteam_id": None},
     {"visitorteam_id": []}, {"starting_at": None}, {"starting_at": "soon"}, {"starting_at": 5}, {"status": None},
     {"status": " "}],
    ids=str,
)  # fmt: skip
def test_a_fixture_without_a_required_value_is_unreadable(changes: Json) -> None:
    with pytest.raises(UnreadableRow):
        snapshot_of(fixture_row(**changes), {}, {})


def test_numbers_as_text_and_includes_in_a_wrapper_mean_the_same() -> None:
    rows = {
        "balls": [ball_row(1, 0.1, "FOUR"), ball_row(2, 0.2)],
        "batting": [batting_row(1, active=True, score=4, ball=2, four_x=1)],
        "bowling": [bowling_row(11, overs=0.2, runs=4, active=True)],
        "runs": [runs_row(1, KITES, 4, 0, 0.2)],
        "scoreboards": [total("S1", KITES, 4, 0, 0.2), extra("S1", KITES)],
        "toss_won_team_id": OWLS,
        "elected": "bowling",
        "status": "1st Innings",
    }
    bare = snapshot(**rows)
    wrapped = {name: {"data": rows} if isinstance(rows, list | dict) else rows for name, rows in rows.items()}
    payload = fixture_row(**wrapped, lineup={"data": lineup()}, league={"data": fixture_row()["league"]})

    assert snapshot_of(_texts(payload), {}, TABLE) == bare
    assert bare.match.toss == Toss("12", "field")


def _texts(value: Json) -> Json:
    """Return the same value with all numbers as texts."""
    if isinstance(value, dict):
        return {name: _texts(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_texts(inner) for inner in value]
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


@pytest.mark.parametrize(
    ("stated", "toss"),
    [((11, "batting"), Toss("11", "bat")), ((11, None), Toss("11")), ((None, "batting"), None),
     ((12, "Bowling"), Toss("12", "field")), ((12, "to sing"), Toss("12", "to sing"))],
)  # fmt: skip
def test_the_toss(stated: tuple[Json, Json], toss: Toss | None) -> None:
    assert match(toss_won_team_id=stated[0], elected=stated[1]).toss == toss


def test_the_code_of_a_league_comes_with_the_fixture_or_from_the_leagues_or_is_its_id() -> None:
    assert match_of(fixture_row(league={"id": 7, "name": "Hills", "code": "hl"}), {"7": "X"}).league_code == "HL"
    assert match_of(fixture_row(league={"id": 7, "name": "Hills", "code": None}), {"7": "X"}).league_code == "HILLS"
    assert match_of(fixture_row(league=None), {"7": "HL"}).league_code == "HL"
    assert match_of(fixture_row(league=[]), {}).league_code == "7"


def test_no_venue_and_half_a_venue() -> None:
    assert match(venue=None, venue_id=None).venue is None
    assert match(venue={"id": 4, "name": None, "city": "Hillford"}).venue == Venue("Hillford", "4", "Hillford")
    assert match(venue={"name": "Green", "city": ""}, venue_id=6).venue == Venue("Green", "6")


@pytest.mark.parametrize(
    ("kind", "stated", "overs"),
    [("T20", 20, 20), ("T20I", None, 20), ("ODI", 35, 35), ("ODI", 0, 50), ("Test", 90, None), ("4day", None, None),
     ("Test/5day", None, None), ("List A", None, 50), ("T10", None, 10), ("100-ball", None, 20), ("New", None, None),
     (None, 12, 12)],
)  # fmt: skip
def test_the_overs_of_an_innings(kind: Json, stated: Json, overs: Json) -> None:
    assert match(type=kind, total_overs_played=stated).scheduled_overs == overs


def test_the_player_of_the_match_is_named() -> None:
    assert match(man_of_match_id=player_id(OWLS, 3)).player_of_match == "Olly Clark"
    guest = {"id": 5, "fullname": "Gus Guest"}
    assert match(man_of_match_id=5, manofmatch=guest).player_of_match == "Gus Guest"
    assert match(man_of_match_id=5).player_of_match is None
    assert match(man_of_match_id=None).player_of_match is None


def test_a_lineup_may_have_more_than_eleven_players() -> None:
    extras = [player(KITES, 12, substitution=True), player(KITES, 13, substitution=False)]
    nameless = {"id": 5, "fullname": None, "firstname": "Al", "lastname": "Ott", "lineup": {"team_id": "12"}}
    bad = [{"id": None, "lineup": {"team_id": 11}}, {"id": 6}, 7]
    found = snapshot_of(fixture_row(lineup=[*lineup(), *extras, nameless, *bad]), {}, {}).lineups
    assert len(found) == 25
    assert [player.substitute for player in found[-3:]] == [True, False, False]
    assert (found[-1].name, found[-1].team_id) == ("Al Ott", "12")
    captains = [player.name for player in found if player.captain]
    keepers = [player.name for player in found if player.wicketkeeper]
    assert (captains, keepers) == (["Kit Adams", "Olly Adams"], ["Kit Baker", "Olly Baker"])


# Payloads of the real service
@pytest.mark.skipif(not REAL.is_dir(), reason="the reference payloads are not here")
def test_reference_payloads_are_read() -> None:
    def read(name: str) -> MatchSnapshot:
        data = json.loads((REAL / name).read_text())["data"]
        return snapshot_of(data[0] if isinstance(data, list) else data, {"3": "T20I", "1": "IPL"}, {})

    finished = read("fixture_28295_finished.edited.json")
    assert finished.match.phase is MatchPhase.FINISHED
    assert [(score.number, score.runs, score.wickets) for score in finished.match.innings] == [(1, 127, 9), (2, 117, 4)]
    assert [len(found.bowling) for found in finished.match.scorecards or ()] == [7, 6]
    assert len(finished.balls) == 4  # the edited sample repeats ids
    assert read("fixture_28295_1st_innings.edited.json").match.phase is MatchPhase.LIVE

    old = read("fixture_3_finished.json").match
    assert (old.phase, old.result and old.result.winner_team_id) == (MatchPhase.FINISHED, "40")
    listed = read("fixtures_page_24915.json").match
    assert (listed.phase, listed.league_code) == (MatchPhase.FINISHED, "IPL")

    leagues = json.loads((REAL / "leagues.json").read_text())["data"]
    assert [league.code for league in leagues_of(leagues)] == ["T20I", "BBL", "T20C"]
