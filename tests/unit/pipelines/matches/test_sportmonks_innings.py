"""The conversion of SportMonks innings: totals, and the scorecards of batters and bowlers."""

import pytest

from datastore.matches.cricket import (
    BatterStatus,
    Extras,
    FallOfWicket,
    InningsScore,
    Partnership,
    Scorecard,
)
from pipelines.matches.providers.sportmonks.fixtures import match_of
from tests.support.sportmonks_matches import match, snapshot
from tests.support.sportmonks_samples import (
    KITES,
    OWLS,
    Json,
    ball_row,
    batting_row,
    bowling_row,
    extra,
    fixture_row,
    player_id,
    runs_row,
    score,
    total,
)
from tests.support.sportmonks_samples import SCORE_IDS as IDS


def card(**changes: Json) -> Scorecard:
    cards = match(**{"status": "1st Innings", **changes}).scorecards
    assert cards is not None
    return cards[0]


# Innings
def test_totals_come_from_scoreboards() -> None:
    found = match(
        status="2nd Innings",
        scoreboards=[
            total("S2", OWLS, 31, 1, 3.4),
            extra("S2", OWLS, wide=2),
            total("S1", KITES, 151, 7, 20),
            extra("S1", KITES, wide=4, noball_runs=1, noball_balls=1, bye=2, leg_bye=3, penalty=5),
        ],
        runs=[runs_row(2, OWLS, 30, 1, 3.3), runs_row(1, KITES, 151, 7, 20)],
    )
    assert found.innings == (
        InningsScore(1, "11", 151, 7, 20, 0, 120, Extras(byes=2, leg_byes=3, wides=4, no_balls=1, penalty=5)),
        InningsScore(2, "12", 31, 1, 3, 4, 22, Extras(wides=2)),
    )
    assert [score.overs for score in found.innings] == ["20", "3.4"]


def test_without_scoreboards_totals_come_from_runs_and_extras_from_balls() -> None:
    balls = [ball_row(1, 0.1, "1 Wide"), ball_row(2, 0.1, "1 No Ball + 1 Bye"), ball_row(3, 0.1, "2 Leg Byes")]
    found = match(status="1st Innings", runs=[runs_row("1", KITES, "127", "9", "15.4")], balls=balls)
    extras = Extras(byes=1, leg_byes=2, wides=1, no_balls=1)
    assert found.innings == (InningsScore(1, "11", 127, 9, 15, 4, 94, extras),)


def test_totals_that_lag_behind_the_balls_are_kept() -> None:
    balls = [ball_row(number, number / 10, "SIX") for number in range(1, 5)]
    found = snapshot(status="1st Innings", runs=[runs_row(1, KITES, 12, 0, 0.2)], balls=balls)
    assert found.match.innings[0].runs == 12
    assert sum(delivery.runs for delivery in found.balls) == 24


def test_bad_totals_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    bad = [
        runs_row(None, KITES, 1, 0, 1),
        runs_row(1, 0, 1, 0, 1),
        runs_row(12, KITES, 1, 0, 1),
        runs_row(1, KITES, "many", 0, 1),
    ]
    boards = [total("S9x", KITES, 5, 0, 1), extra("", KITES), {"type": "partial", "scoreboard": "S1"}, "S1"]
    found = match(status="2nd Innings", runs=[*bad, runs_row(2, OWLS, 3, 1, None)], scoreboards=boards)
    assert found.innings == (InningsScore(2, "12", 3, 1),)
    assert caplog.text.count("is left out") == 8


def test_an_over_of_six_balls_is_an_over() -> None:
    assert match(status="1st Innings", runs=[runs_row(1, KITES, 9, 0, 3.6)]).innings[0].overs == "4"


def test_a_hundred_ball_match_has_overs_of_five() -> None:
    balls = [ball_row(number, f"0.{number}") for number in range(1, 6)]
    found = match(type="100-ball", status="1st Innings", runs=[runs_row(1, KITES, 9, 0, 1.2)], balls=balls)
    assert (found.balls_per_over, found.innings[0].legal_balls) == (5, 7)
    six = [*balls, ball_row(6, "0.6")]
    assert match(type="100-ball", status="1st Innings", balls=six).balls_per_over == 6


@pytest.mark.parametrize(
    ("kind", "supers"), [("T20", [False, False, True, True]), ("Test", [False] * 4), ("4day", [False] * 4)]
)
def test_innings_after_the_last_are_a_super_over(kind: str, supers: list[bool]) -> None:
    runs = [runs_row(number, KITES if number % 2 else OWLS, 10, 1, 1) for number in (3, 1, 4, 2)]
    found = match(type=kind, status="4th Innings", runs=runs, super_over=True)
    assert [score.number for score in found.innings] == [1, 2, 3, 4]
    assert [score.super_over for score in found.innings] == supers


# Scorecards
def test_a_batting_card() -> None:
    rows = [
        batting_row(3, active=True, score=0, ball=0),
        batting_row(
            1, score="30", ball=21, four_x=4, six_x=1, score_id=IDS["Catch Out"], result=score("Catch Out"),
            bowling_player_id=player_id(OWLS, 11), catch_stump_player_id=player_id(OWLS, 4), fow_score=45,
            fow_balls=5.2,
        ),
        batting_row(2, active=True, score=14, ball=12),
        batting_row(4, score_id=IDS["Run Out"], runout_by_id=player_id(OWLS, 6), ball=1, fow_score=46, fow_balls="5.3",
               bowling_player_id=player_id(OWLS, 11)),
        batting_row(5),
    ]  # fmt: skip
    balls = [
        ball_row(1, 5.2, "Catch Out"),
        ball_row(2, 5.3, "Run Out", batsman_id=player_id(KITES, 4)),
        ball_row(3, 5.4, "1 Run", batsman_id=player_id(KITES, 2), batsman_one_on_creeze_id=player_id(KITES, 3)),
    ]
    found = card(batting=rows, balls=balls)
    first, second, third, fourth, fifth = found.batting
    assert [line.position for line in found.batting] == [1, 2, 3, 4, 5]
    assert (first.name, first.runs, first.balls, first.fours, first.sixes) == ("Kit Adams", 30, 21, 4, 1)
    assert (first.status, first.how_out, first.dismissal) == ("out", "caught", "c Olly Dixon b Olly Kelly")
    assert (first.bowler_id, first.fielders) == ("1211", ("Olly Dixon",))
    assert (second.status, second.how_out, second.dismissal, second.on_strike) == ("batting", None, None, False)
    assert (third.status, third.on_strike) == ("batting", True)
    assert (fourth.status, fourth.dismissal, fourth.bowler_id) == ("out", "run out (Olly Frost)", None)
    assert (fifth.status, fifth.dismissal) == ("yet_to_bat", None)
    assert found.fall_of_wickets == (
        FallOfWicket(1, 45, "5.2", "1101", "Kit Adams"),
        FallOfWicket(2, 46, "5.3", "1104", "Kit Dixon"),
    )
    assert found.partnership == Partnership(1, 1, ("1102", "1103"))


@pytest.mark.parametrize(
    ("status", "changes", "expected"),
    [
        ("1st Innings", {"active": True}, "batting"),
        ("1st Innings", {"active": "1"}, "batting"),
        ("Finished", {"active": True}, "not_out"),
        ("Innings Break", {"active": True}, "not_out"),
        ("Finished", {"ball": 3}, "not_out"),
        ("Finished", {"score_id": IDS["Not Out"], "ball": 1}, "not_out"),
        ("Finished", {}, "did_not_bat"),
        ("1st Innings", {}, "yet_to_bat"),
        ("1st Innings", {"score_id": IDS["Retired Hurt"], "ball": 9}, "retired"),
        ("1st Innings", {"score_id": IDS["Retired Hurt"], "active": True}, "batting"),
        ("Finished", {"score_id": IDS["Absent Hurt"]}, "absent"),
        ("1st Innings", {"score_id": IDS["LBW OUT"], "active": True}, "out"),
        ("1st Innings", {"score_id": 9999, "active": True}, "batting"),
    ],
)
def test_the_status_of_a_batter(status: str, changes: Json, expected: str) -> None:
    (line,) = card(status=status, batting=[batting_row(1, **changes)]).batting
    assert line.status == BatterStatus(expected)


def test_a_batter_at_the_other_end_who_faced_nothing_is_not_out() -> None:
    (line,) = card(status="Finished", batting=[batting_row(2)], balls=[ball_row(1, 0.1)]).batting
    assert line.status is BatterStatus.NOT_OUT


@pytest.mark.parametrize(
    ("name", "changes", "line"),
    [
        ("Clean Bowled", {}, "b Olly Kelly"),
        ("LBW OUT", {}, "lbw b Olly Kelly"),
        ("Hit Wicket", {}, "hit wicket b Olly Kelly"),
        ("Catch Out", {"catch_stump_player_id": player_id(OWLS, 11)}, "c & b Olly Kelly"),
        ("Stump Out", {"catch_stump_player_id": player_id(OWLS, 2)}, "st Olly Baker b Olly Kelly"),
        ("Catch Out", {}, "caught b Olly Kelly"),
        ("Run Out", {}, "run out"),
        ("Retired Hurt", {"ball": 4}, "retired hurt"),
        ("Obstructing the field Out", {}, "obstructing the field"),
        ("Leg Before the Moon", {}, "leg before the moon"),
    ],
)
def test_the_text_of_a_dismissal(name: str, changes: Json, line: str) -> None:
    row = batting_row(1, score_id=IDS[name], bowling_player_id=player_id(OWLS, 11), **changes)
    assert card(batting=[row]).batting[0].dismissal == line


def test_a_bowling_card() -> None:
    rows = [
        bowling_row(2, sort=2, overs="3.4", medians="1", runs=24, wickets=2, wide=3, noball=1, active=True),
        bowling_row(1, sort=1, overs=4, runs=16),
        bowling_row(3, sort=3, overs=None, player_id=None),
    ]
    first, second = card(bowling=rows).bowling
    assert (first.name, first.overs, first.maidens, first.runs, first.bowling) == ("Olly Adams", "4", 0, 16, False)
    assert (second.overs, second.maidens, second.runs, second.wickets) == ("3.4", 1, 24, 2)
    assert (second.wides, second.no_balls, second.bowling) == (3, 1, True)


@pytest.mark.parametrize(
    ("name", "place", "striker"),
    [("No Run", 0.1, "1101"), ("1 Run", 0.1, "1102"), ("2 Runs", 0.1, "1101"), ("No Run", 0.6, "1102"),
     ("1 Run", 0.6, "1101"), ("1 Wide", 0.6, "1101"), ("1 Bye", 0.2, "1102"), ("1 No Ball + 1 Run", 0.6, "1102"),
     ("LBW OUT", 0.1, None)],
)  # fmt: skip
def test_the_striker_of_the_next_ball(name: str, place: float, striker: str | None) -> None:
    batting = [batting_row(1, active=True), batting_row(2, active=True)]
    found = [
        line.player_id for line in card(batting=batting, balls=[ball_row(1, place, name)]).batting if line.on_strike
    ]
    assert found == ([striker] if striker else [])


def test_bad_lines_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    found = card(
        batting=[batting_row(1), batting_row(2, player_id=None), batting_row(3, scoreboard=None)], bowling="none"
    )
    assert [line.player_id for line in found.batting] == ["1101"]
    assert caplog.text.count("is left out") == 2
    assert "the list of each bowling line is a str" in caplog.text


def test_a_fixture_of_a_list_has_no_scorecards() -> None:
    assert match_of(fixture_row(runs=[runs_row(1, KITES, 5, 0, 1)]), {}).scorecards is None
    assert match_of(fixture_row(runs=[runs_row(1, KITES, 5, 0, 1)]), {}).innings[0].runs == 5
