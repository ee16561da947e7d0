"""What SportMonks payloads mean: real-shaped ones, and those that lag, lack, repeat and contradict themselves."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from datastore.matches.cricket import (
    Ball,
    BatterStatus,
    Extras,
    FallOfWicket,
    InningsScore,
    Match,
    MatchPhase,
    MatchSnapshot,
    Partnership,
    Result,
    ResultKind,
    Scorecard,
    Target,
    Toss,
    Venue,
    Wicket,
)
from pipelines.matches.providers.sportmonks.balls import scores_by_id
from pipelines.matches.providers.sportmonks.fixtures import match_of, snapshot_of
from pipelines.matches.providers.sportmonks.reference import leagues_of, season_teams_of, standings_of, teams_of
from pipelines.matches.providers.sportmonks.values import (
    UnreadableRow,
    count,
    decimal,
    flag,
    ident,
    moment,
    overs,
    text,
    whole,
)
from tests.support.sportmonks_samples import (
    KITES,
    OWLS,
    REAL,
    SCORES,
    START,
    Json,
    ball,
    batter,
    bowler,
    extra,
    fixture,
    lineup,
    player,
    player_id,
    run,
    score,
    total,
)
from tests.support.sportmonks_samples import SCORE_IDS as IDS

TABLE = scores_by_id(SCORES)


def snapshot(**changes: Json) -> MatchSnapshot:
    return snapshot_of(fixture(lineup=lineup(), **changes), {}, TABLE)


def match(**changes: Json) -> Match:
    return snapshot(**changes).match


def one_ball(name: str, place: Json = 0.1, **changes: Json) -> Ball:
    (found,) = snapshot(status="1st Innings", balls=[ball(1, place, name, **changes)]).balls
    return found


def card(**changes: Json) -> Scorecard:
    cards = match(**{"status": "1st Innings", **changes}).scorecards
    assert cards is not None
    return cards[0]


# A fixture's facts


def test_a_fixture_before_it_begins() -> None:
    assert snapshot_of(fixture(), {}, TABLE) == MatchSnapshot(
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
def test_without_these_it_is_no_fixture(changes: Json) -> None:
    with pytest.raises(UnreadableRow):
        snapshot_of(fixture(**changes), {}, {})


def test_numbers_as_text_and_includes_in_a_wrapper_mean_the_same() -> None:
    rows = {
        "balls": [ball(1, 0.1, "FOUR"), ball(2, 0.2)],
        "batting": [batter(1, active=True, score=4, ball=2, four_x=1)],
        "bowling": [bowler(11, overs=0.2, runs=4, active=True)],
        "runs": [run(1, KITES, 4, 0, 0.2)],
        "scoreboards": [total("S1", KITES, 4, 0, 0.2), extra("S1", KITES)],
        "toss_won_team_id": OWLS,
        "elected": "bowling",
        "status": "1st Innings",
    }
    bare = snapshot(**rows)
    wrapped = {name: {"data": rows} if isinstance(rows, list | dict) else rows for name, rows in rows.items()}
    told = fixture(**wrapped, lineup={"data": lineup()}, league={"data": fixture()["league"]})

    assert snapshot_of(_texts(told), {}, TABLE) == bare
    assert bare.match.toss == Toss("12", "field")


def _texts(value: Json) -> Json:
    """The same with all numbers as text."""
    if isinstance(value, dict):
        return {name: _texts(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_texts(inner) for inner in value]
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


@pytest.mark.parametrize(
    ("told", "toss"),
    [((11, "batting"), Toss("11", "bat")), ((11, None), Toss("11")), ((None, "batting"), None),
     ((12, "Bowling"), Toss("12", "field")), ((12, "to sing"), Toss("12", "to sing"))],
)  # fmt: skip
def test_the_toss(told: tuple[Json, Json], toss: Toss | None) -> None:
    assert match(toss_won_team_id=told[0], elected=told[1]).toss == toss


def test_the_code_of_a_league_comes_with_the_fixture_or_from_the_leagues_or_is_its_id() -> None:
    assert match_of(fixture(league={"id": 7, "name": "Hills", "code": "hl"}), {"7": "X"}).league_code == "HL"
    assert match_of(fixture(league={"id": 7, "name": "Hills", "code": None}), {"7": "X"}).league_code == "HILLS"
    assert match_of(fixture(league=None), {"7": "HL"}).league_code == "HL"
    assert match_of(fixture(league=[]), {}).league_code == "7"


def test_no_venue_and_half_a_venue() -> None:
    assert match(venue=None, venue_id=None).venue is None
    assert match(venue={"id": 4, "name": None, "city": "Hillford"}).venue == Venue("Hillford", "4", "Hillford")
    assert match(venue={"name": "Green", "city": ""}, venue_id=6).venue == Venue("Green", "6")


@pytest.mark.parametrize(
    ("kind", "told", "overs"),
    [("T20", 20, 20), ("T20I", None, 20), ("ODI", 35, 35), ("ODI", 0, 50), ("Test", 90, None), ("4day", None, None),
     ("Test/5day", None, None), ("List A", None, 50), ("T10", None, 10), ("100-ball", None, 20), ("New", None, None),
     (None, 12, 12)],
)  # fmt: skip
def test_the_overs_of_an_innings(kind: Json, told: Json, overs: Json) -> None:
    assert match(type=kind, total_overs_played=told).scheduled_overs == overs


def test_the_player_of_the_match_is_named() -> None:
    assert match(man_of_match_id=player_id(OWLS, 3)).player_of_match == "Olly Clark"
    guest = {"id": 5, "fullname": "Gus Guest"}
    assert match(man_of_match_id=5, manofmatch=guest).player_of_match == "Gus Guest"
    assert match(man_of_match_id=5).player_of_match is None
    assert match(man_of_match_id=None).player_of_match is None


def test_more_than_eleven_are_named() -> None:
    extras = [player(KITES, 12, substitution=True), player(KITES, 13, substitution=False)]
    nameless = {"id": 5, "fullname": None, "firstname": "Al", "lastname": "Ott", "lineup": {"team_id": "12"}}
    bad = [{"id": None, "lineup": {"team_id": 11}}, {"id": 6}, 7]
    found = snapshot_of(fixture(lineup=[*lineup(), *extras, nameless, *bad]), {}, {}).lineups
    assert len(found) == 25
    assert [player.substitute for player in found[-3:]] == [True, False, False]
    assert (found[-1].name, found[-1].team_id) == ("Al Ott", "12")
    captains = [player.name for player in found if player.captain]
    keepers = [player.name for player in found if player.wicketkeeper]
    assert (captains, keepers) == (["Kit Adams", "Olly Adams"], ["Kit Baker", "Olly Baker"])


# Balls


@pytest.mark.parametrize(
    ("name", "batter_runs", "extras", "legal"),
    [
        ("No Run", 0, Extras(), True),
        ("2 Runs", 2, Extras(), True),
        ("1 Wide", 0, Extras(wides=1), False),
        ("5 Wides", 0, Extras(wides=5), False),
        ("1 No Ball", 0, Extras(no_balls=1), False),
        ("1 No Ball + 1 Run", 1, Extras(no_balls=1), False),
        ("1 No Ball + 4 Runs", 4, Extras(no_balls=1), False),
        ("1 No Ball + 1 Bye", 0, Extras(no_balls=1, byes=1), False),
        ("1 Bye", 0, Extras(byes=1), True),
        ("4 Byes", 0, Extras(byes=4), True),
        ("2 Leg Byes", 0, Extras(leg_byes=2), True),
        ("1 Leg Bye + 4 Runs", 0, Extras(leg_byes=5), True),
        ("5 Penalty Runs", 0, Extras(penalty=5), True),
        ("Run Out + 1", 1, Extras(), True),
        ("1 Wide + Stump Out", 0, Extras(wides=1), False),
    ],
)
def test_runs_by_kind(name: str, batter_runs: int, extras: Extras, legal: bool) -> None:
    found = one_ball(name)
    assert (found.batter_runs, found.extras, found.legal) == (batter_runs, extras, legal)
    # The table says the same of a ball that came without its score.
    assert one_ball(name, score=None) == found


def test_boundaries_are_the_batters() -> None:
    names = ("FOUR", "SIX", "1 No Ball + 4 Runs", "4 Byes", "2 Runs")
    found = [(one_ball(name).four, one_ball(name).six) for name in names]
    assert found == [(True, False), (False, True), (True, False), (False, False), (False, False)]
    wide = one_ball("5 Wides", score=score("5 Wides") | {"four": True})
    assert (wide.four, wide.extras.wides) == (False, 5)


def test_an_illegal_ball_without_a_name_is_a_wide() -> None:
    told = score("1 Wide") | {"name": None}
    assert one_ball("1 Wide", score=told).extras == Extras(wides=1)


@pytest.mark.parametrize(
    ("place", "over", "number"),
    [(0.1, 0, 1), ("0.1", 0, 1), (15.4, 15, 4), ("15.4", 15, 4), ("0.10", 0, 10), (19.6, 19, 6), (3, 3, 0),
     (15.399999999999999, 15, 4), (128.3, 128, 3)],
)  # fmt: skip
def test_where_a_ball_is(place: Json, over: int, number: int) -> None:
    found = one_ball("No Run", place)
    assert (found.over, found.number, found.label) == (over, number, f"{over}.{number}")


def test_who_is_at_the_crease() -> None:
    found = one_ball("1 Run", batsman_id=player_id(KITES, 2))
    assert (found.batter_id, found.batter) == ("1102", "Kit Baker")
    assert (found.non_striker_id, found.non_striker) == ("1101", "Kit Adams")
    assert (found.bowler_id, found.bowler) == ("1211", "Olly Kelly")
    assert (found.ball_id, found.innings) == (1, 1)

    alone = one_ball("1 Run", batsman_two_on_creeze_id=None, bowler_id=None, batsman_id=77, batsman_one_on_creeze_id=77)
    assert (alone.batter, alone.non_striker_id, alone.non_striker, alone.bowler_id) == ("Player 77", "", "", "")
    guest = one_ball("1 Run", batsman_id=77, batsman={"data": {"id": 77, "fullname": "Gus Guest"}})
    assert guest.batter == "Gus Guest"


def test_balls_are_in_the_order_of_their_ids_whatever_their_numbers() -> None:
    balls = [ball(30, 0.2), ball(9, 0.1), ball(10, 0.1, "1 Wide"), ball(8, 0.1, "1 Wide")]
    found = snapshot(status="1st Innings", balls=balls).balls
    assert [(one.ball_id, one.label, one.legal) for one in found] == [
        (8, "0.1", False),
        (9, "0.1", True),
        (10, "0.1", False),
        (30, "0.2", True),
    ]


def test_of_a_ball_told_twice_the_last_row_counts(caplog: pytest.LogCaptureFixture) -> None:
    balls = [ball(1, 0.1, "FOUR"), ball(2, 0.2), ball(1, 0.1, "5 Wides")]
    found = snapshot(status="1st Innings", balls=balls).balls
    assert [(one.ball_id, one.runs) for one in found] == [(1, 5), (2, 0)]
    assert found[0].extras.wides == 5
    assert "fixture 501 repeats 1 balls, the first is 1" in caplog.text


@pytest.mark.parametrize(
    "changes",
    [{"id": None}, {"id": "?"}, {"ball": None}, {"ball": "first"}, {"ball": True}, {"ball": -0.1}, {"ball": [0.1]},
     {"ball": 1e300}, {"ball": "1e3"}, {"ball": ""}, {"batsman_id": None}, {"scoreboard": None}, {"scoreboard": "S"},
     {"scoreboard": "S12"}, {"scoreboard": 1}],
    ids=str,
)  # fmt: skip
def test_one_bad_ball_is_left_out_and_logged(changes: Json, caplog: pytest.LogCaptureFixture) -> None:
    balls = [ball(1, 0.1), ball(2, 0.2) | changes, ball(3, 0.3)]
    found = snapshot(status="1st Innings", balls=balls)
    assert [one.ball_id for one in found.balls] == [1, 3]
    assert "ball" in caplog.text
    assert "is left out" in caplog.text


def test_an_unknown_score_tells_only_who_is_out(caplog: pytest.LogCaptureFixture) -> None:
    unknown: Json = {"score": None, "score_id": 9999}
    quiet = one_ball("FOUR", **unknown)
    assert (quiet.runs, quiet.legal, quiet.wickets) == (0, True, ())
    assert "ball 1 has the unknown score 9999" in caplog.text

    out = {"batsmanout_id": player_id(KITES, 2), **unknown}
    kinds = [
        [wicket.kind for wicket in one_ball("FOUR", **out, **more).wickets]
        for more in ({}, {"runout_by_id": player_id(OWLS, 4)}, {"catchstump_id": player_id(OWLS, 4)})
    ]
    assert kinds == [["out"], ["run out"], ["caught"]]
    assert one_ball("FOUR", score={}, score_id=None).runs == 0


@pytest.mark.parametrize(
    ("name", "changes", "kind", "fielders", "credited"),
    [
        ("Clean Bowled", {}, "bowled", (), True),
        ("LBW OUT", {}, "lbw", (), True),
        ("Catch Out", {"catchstump_id": player_id(OWLS, 4)}, "caught", ("Olly Dixon",), True),
        ("Catch Out (Sub)", {"catchstump_id": 999}, "caught", ("Player 999",), True),
        ("Catch Out", {"catchstump_id": player_id(OWLS, 11)}, "caught and bowled", (), True),
        ("Stump Out", {"catchstump_id": player_id(OWLS, 2)}, "stumped", ("Olly Baker",), True),
        ("1 Wide + Stump Out", {"catchstump_id": player_id(OWLS, 2)}, "stumped", ("Olly Baker",), True),
        ("Hit Wicket", {}, "hit wicket", (), True),
        ("Obstructing the field Out", {}, "obstructing the field", (), False),
        ("Leg Before the Moon", {}, "leg before the moon", (), False),
    ],
)
def test_a_wicket(name: str, changes: Json, kind: str, fielders: tuple[str, ...], credited: bool) -> None:
    found = one_ball(name, batsmanout_id=player_id(KITES, 1), **changes)
    assert found.wickets == (Wicket("1101", "Kit Adams", kind, fielders, credited),)


def test_a_run_out_at_the_other_end() -> None:
    thrower, keeper = player_id(OWLS, 6), player_id(OWLS, 2)
    out = player_id(KITES, 2)
    found = one_ball("Run Out + 1", batsmanout_id=out, runout_by_id=thrower, catchstump_id=keeper)
    assert found.wickets == (Wicket("1102", "Kit Baker", "run out", ("Olly Frost", "Olly Baker"), False),)
    assert found.batter_runs == 1


def test_who_retires_hurt_is_not_out() -> None:
    assert one_ball("Retired Hurt", batsmanout_id=player_id(KITES, 1)).wickets == ()


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
        runs=[run(2, OWLS, 30, 1, 3.3), run(1, KITES, 151, 7, 20)],
    )
    assert found.innings == (
        InningsScore(1, "11", 151, 7, 20, 0, 120, Extras(byes=2, leg_byes=3, wides=4, no_balls=1, penalty=5)),
        InningsScore(2, "12", 31, 1, 3, 4, 22, Extras(wides=2)),
    )
    assert [one.overs for one in found.innings] == ["20", "3.4"]


def test_totals_come_from_runs_and_extras_from_balls_where_there_are_no_scoreboards() -> None:
    balls = [ball(1, 0.1, "1 Wide"), ball(2, 0.1, "1 No Ball + 1 Bye"), ball(3, 0.1, "2 Leg Byes")]
    found = match(status="1st Innings", runs=[run("1", KITES, "127", "9", "15.4")], balls=balls)
    extras = Extras(byes=1, leg_byes=2, wides=1, no_balls=1)
    assert found.innings == (InningsScore(1, "11", 127, 9, 15, 4, 94, extras),)


def test_totals_that_lag_behind_the_balls_stand() -> None:
    balls = [ball(number, number / 10, "SIX") for number in range(1, 5)]
    found = snapshot(status="1st Innings", runs=[run(1, KITES, 12, 0, 0.2)], balls=balls)
    assert found.match.innings[0].runs == 12
    assert sum(one.runs for one in found.balls) == 24


def test_bad_totals_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    bad = [run(None, KITES, 1, 0, 1), run(1, 0, 1, 0, 1), run(12, KITES, 1, 0, 1), run(1, KITES, "many", 0, 1)]
    boards = [total("S9x", KITES, 5, 0, 1), extra("", KITES), {"type": "partial", "scoreboard": "S1"}, "S1"]
    found = match(status="2nd Innings", runs=[*bad, run(2, OWLS, 3, 1, None)], scoreboards=boards)
    assert found.innings == (InningsScore(2, "12", 3, 1),)
    assert caplog.text.count("is left out") == 8


def test_an_over_of_six_balls_is_an_over() -> None:
    assert match(status="1st Innings", runs=[run(1, KITES, 9, 0, 3.6)]).innings[0].overs == "4"


def test_a_hundred_ball_match_has_overs_of_five() -> None:
    balls = [ball(number, f"0.{number}") for number in range(1, 6)]
    found = match(type="100-ball", status="1st Innings", runs=[run(1, KITES, 9, 0, 1.2)], balls=balls)
    assert (found.balls_per_over, found.innings[0].legal_balls) == (5, 7)
    six = [*balls, ball(6, "0.6")]
    assert match(type="100-ball", status="1st Innings", balls=six).balls_per_over == 6


@pytest.mark.parametrize(
    ("kind", "supers"), [("T20", [False, False, True, True]), ("Test", [False] * 4), ("4day", [False] * 4)]
)
def test_innings_after_the_last_are_a_super_over(kind: str, supers: list[bool]) -> None:
    runs = [run(number, KITES if number % 2 else OWLS, 10, 1, 1) for number in (3, 1, 4, 2)]
    found = match(type=kind, status="4th Innings", runs=runs, super_over=True)
    assert [one.number for one in found.innings] == [1, 2, 3, 4]
    assert [one.super_over for one in found.innings] == supers


# Scorecards


def test_a_batting_card() -> None:
    rows = [
        batter(3, active=True, score=0, ball=0),
        batter(
            1, score="30", ball=21, four_x=4, six_x=1, score_id=IDS["Catch Out"], result=score("Catch Out"),
            bowling_player_id=player_id(OWLS, 11), catch_stump_player_id=player_id(OWLS, 4), fow_score=45,
            fow_balls=5.2,
        ),
        batter(2, active=True, score=14, ball=12),
        batter(4, score_id=IDS["Run Out"], runout_by_id=player_id(OWLS, 6), ball=1, fow_score=46, fow_balls="5.3",
               bowling_player_id=player_id(OWLS, 11)),
        batter(5),
    ]  # fmt: skip
    balls = [
        ball(1, 5.2, "Catch Out"),
        ball(2, 5.3, "Run Out", batsman_id=player_id(KITES, 4)),
        ball(3, 5.4, "1 Run", batsman_id=player_id(KITES, 2), batsman_one_on_creeze_id=player_id(KITES, 3)),
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
def test_how_a_batter_stands(status: str, changes: Json, expected: str) -> None:
    (line,) = card(status=status, batting=[batter(1, **changes)]).batting
    assert line.status == BatterStatus(expected)


def test_a_batter_at_the_other_end_who_faced_nothing_is_not_out() -> None:
    (line,) = card(status="Finished", batting=[batter(2)], balls=[ball(1, 0.1)]).batting
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
def test_a_dismissal_in_a_line(name: str, changes: Json, line: str) -> None:
    row = batter(1, score_id=IDS[name], bowling_player_id=player_id(OWLS, 11), **changes)
    assert card(batting=[row]).batting[0].dismissal == line


def test_a_bowling_card() -> None:
    rows = [
        bowler(2, sort=2, overs="3.4", medians="1", runs=24, wickets=2, wide=3, noball=1, active=True),
        bowler(1, sort=1, overs=4, runs=16),
        bowler(3, sort=3, overs=None, player_id=None),
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
def test_who_faces_next(name: str, place: float, striker: str | None) -> None:
    batting = [batter(1, active=True), batter(2, active=True)]
    found = [line.player_id for line in card(batting=batting, balls=[ball(1, place, name)]).batting if line.on_strike]
    assert found == ([striker] if striker else [])


def test_bad_lines_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    found = card(batting=[batter(1), batter(2, player_id=None), batter(3, scoreboard=None)], bowling="none")
    assert [line.player_id for line in found.batting] == ["1101"]
    assert caplog.text.count("is left out") == 2
    assert "the list of each bowling line is a str" in caplog.text


def test_a_list_brings_no_scorecards() -> None:
    assert match_of(fixture(runs=[run(1, KITES, 5, 0, 1)]), {}).scorecards is None
    assert match_of(fixture(runs=[run(1, KITES, 5, 0, 1)]), {}).innings[0].runs == 5


# Targets and results


def decided(first: int, second: int, out: int = 4, **changes: Json) -> Match:
    """The Kites bat first."""
    runs = [run(1, KITES, first, 6, 20), run(2, OWLS, second, out, 19.2)]
    return match(**{"status": "Finished", "runs": runs, **changes})


def test_what_is_needed_is_one_more() -> None:
    short, first = [run(1, KITES, 150, 6, 19.5)], [run(1, KITES, 150, 6, 20)]
    assert match(status="1st Innings", runs=short).target is None
    assert match(status="Int.", runs=short).target is None
    assert match(status="Innings Break", runs=short).target == Target(151, "20")
    assert match(status="2nd Innings", runs=short).target == Target(151, "20")
    # Rain in the break takes no target away.
    assert match(status="Int.", runs=first).target == Target(151, "20")
    assert match(status="Int.", runs=[run(1, KITES, 99, 10, 12)]).target == Target(100, "20")
    assert match(status="2nd Innings", runs=first).target == Target(151, "20")
    assert decided(150, 20, status="2nd Innings").target == Target(151, "20")


def test_what_is_needed_over_four_innings() -> None:
    runs = [run(1, KITES, 300, 10, 80), run(2, OWLS, 200, 10, 70), run(3, KITES, 150, 9, 40)]
    assert match(type="Test", status="3rd Innings", runs=runs).target is None
    assert match(type="Test", status="Innings Break", runs=runs).target == Target(251)
    followed_on = [run(1, KITES, 300, 10, 80), run(2, OWLS, 100, 10, 70), run(3, OWLS, 150, 10, 40)]
    assert match(type="Test", status="Tea Break", runs=followed_on).target is None
    assert match(type="Test", status="Lunch", runs=[*followed_on[:2], run(3, OWLS, 250, 10, 90)]).target == Target(51)
    last = [*runs, run(4, OWLS, 10, 0, 3)]
    assert match(type="Test", status="4th Innings", runs=last, total_overs_played=None).target == Target(251)


@pytest.mark.parametrize(
    ("changes", "target"),
    [
        ({"rpc_target": "123", "rpc_overs": "15"}, Target(123, "15", "D/L")),
        ({"rpc_target": 123, "rpc_overs": "15.2"}, Target(123, "15.2", "D/L")),
        ({"rpc_target": 123, "rpc_overs": None}, Target(123, "20", "D/L")),
        ({"rpc_target": "0"}, Target(151, "20")),
        ({"rpc_target": "rain"}, Target(151, "20")),
        ({"visitorteam_dl_data": {"score": 50, "overs": 25, "wickets_out": 5}}, Target(151, "20")),
        ({"visitorteam_dl_data": None}, Target(151, "20")),
    ],
)
def test_what_rain_makes_of_it(changes: Json, target: Target) -> None:
    assert decided(150, 20, status="2nd Innings", **changes).target == target


def test_a_win_by_wickets_by_runs_and_by_an_innings() -> None:
    note = "Owls won, and how"
    won = decided(150, 151, winner_team_id=OWLS, note=note)
    assert won.result == Result(ResultKind.WIN, note, "12", by_wickets=6)
    assert decided(150, 120, winner_team_id=KITES).result == Result(ResultKind.WIN, "Match won", "11", by_runs=30)
    runs = [run(1, KITES, 400, 8, 100), run(2, OWLS, 150, 10, 60), run(3, OWLS, 200, 10, 70)]
    innings = match(type="Test", status="Finished", runs=runs, winner_team_id=KITES, follow_on=True)
    assert innings.result == Result(ResultKind.WIN, "Match won", "11", by_runs=50, by_innings=True)
    assert innings.follow_on


def test_a_win_that_rain_decided() -> None:
    rain: Json = {"rpc_target": 101, "rpc_overs": "12"}
    assert decided(150, 95, winner_team_id=KITES, **rain).result == Result(
        ResultKind.WIN, "Match won", "11", by_runs=5, method="D/L"
    )
    assert decided(150, 101, winner_team_id=OWLS, **rain).result == Result(
        ResultKind.WIN, "Match won", "12", by_wickets=6, method="D/L"
    )


def test_a_win_in_a_super_over_has_no_margin() -> None:
    won = Result(ResultKind.WIN, "Match won", "12", eliminator=True)
    assert decided(150, 150, winner_team_id=OWLS, super_over=True).result == won
    more = [run(1, KITES, 9, 1, 20), run(2, OWLS, 9, 1, 20), run(3, OWLS, 9, 1, 1), run(4, KITES, 8, 1, 1)]
    assert decided(0, 0, runs=more, winner_team_id=OWLS).result == won


def test_a_win_of_which_no_totals_are_told() -> None:
    assert decided(0, 0, runs=[], winner_team_id=OWLS).result == Result(ResultKind.WIN, "Match won", "12")


@pytest.mark.parametrize(
    ("told", "kind"),
    [("draw", "draw"), ("Drawn", "draw"), ("tie", "tie"), ("TIED", "tie"), ("no result", "no_result"),
     ("no-result", "no_result"), ("noresult", "no_result"), ("NR", "no_result")],
)  # fmt: skip
@pytest.mark.parametrize("status", ["Finished", "Aban."])
def test_nobody_wins(told: str, kind: str, status: str) -> None:
    result = match(status=status, draw_noresult=told, note="Rain").result
    assert result == Result(ResultKind(kind), "Rain")


@pytest.mark.parametrize(
    "changes",
    [{"winner_team_id": OWLS, "draw_noresult": "draw"}, {"winner_team_id": 99}, {"draw_noresult": "moonrise"}],
    ids=str,
)
def test_a_contradiction_costs_the_result_and_nothing_else(changes: Json, caplog: pytest.LogCaptureFixture) -> None:
    found = decided(150, 120, note="Over", **changes)
    assert found.result is None
    assert (found.phase, found.note, len(found.innings)) == (MatchPhase.FINISHED, "Over", 2)
    assert "the result of fixture 501 is left out" in caplog.text


def test_there_is_no_result_before_the_end() -> None:
    assert decided(150, 120, status="2nd Innings", winner_team_id=KITES).result is None
    assert decided(150, 120).result is None
    assert match(status="Aban.", note="Match abandoned").result is None


# Leagues, teams, seasons


def test_leagues_and_teams() -> None:
    rows = [
        {"id": 3, "season_id": 70, "country_id": 9, "name": "Hill League", "code": "HL", "image_path": "https://i/3",
         "type": "league", "updated_at": "2026-01-13T15:11:06.000000Z"},
        {"id": "4", "name": "Dale Cup", "code": None, "updated_at": None},
        {"id": 5, "name": None}, {"id": None, "name": "Nobody"}, "league",
    ]  # fmt: skip
    first, second = leagues_of(rows)
    assert (first.league_id, first.season_id, first.code, first.active, first.type) == ("3", "70", "HL", True, "league")
    assert (second.league_id, second.code, second.season_id, second.updated_at) == ("4", "Dale Cup", None, None)

    teams = teams_of([{"id": 1, "name": "Kites", "code": "KIT", "national_team": 1}, {"id": 2, "name": ""}])
    assert [(team.team_id, team.code, team.national) for team in teams] == [("1", "KIT", True)]


def test_standings() -> None:
    rows = [
        {"team_id": 11, "stage_id": 2, "league_id": 7, "position": "1", "points": "20", "played": 14, "won": 10,
         "lost": 3, "draw": 0, "noresult": 1, "netto_run_rate": 0.625, "season": {"name": "2026"}},
        {"team_id": 11, "stage_id": 1, "position": 4, "points": 2},
        {"team_id": 12, "stage_id": 1, "position": None, "points": None, "netto_run_rate": "-1.5"},
        {"team_id": None},
    ]  # fmt: skip
    first, second = standings_of(rows, "70")
    assert (first.season_id, first.team_id, first.position, first.points, first.played) == ("70", "11", 1, 20.0, 14)
    assert (first.won, first.lost, first.drawn, first.no_result, first.net_run_rate) == (10, 3, 0, 1, 0.625)
    assert (first.season_name, first.league_id) == ("2026", "7")
    assert (second.position, second.points, second.net_run_rate) == (None, None, -1.5)


def test_a_season_without_standings_has_teams() -> None:
    season = {"id": 70, "league_id": 7, "name": "2026", "teams": [{"id": 11}, {"id": 12}, {"id": 11}, {"id": None}]}
    found = season_teams_of(season, "70")
    assert [(row.team_id, row.league_id, row.season_name, row.played) for row in found] == [
        ("11", "7", "2026", None),
        ("12", "7", "2026", None),
    ]
    assert season_teams_of(None, "70") == []


# Values


@pytest.mark.parametrize(
    ("read", "value", "expected"),
    [
        (whole, "12", 12), (whole, "12.0", 12), (whole, 12.0, 12), (whole, "1.5", None), (whole, 1.5, None),
        (whole, None, None), (whole, "", None), (whole, [], None), (whole, 10**30, None), (whole, "9" * 400, None),
        (whole, float("inf"), None), (whole, float("nan"), None), (whole, True, 1), (whole, "٣", 3),
        (count, -5, 0), (count, None, 0), (count, "7", 7), (ident, True, None), (ident, 0, None), (ident, "007", "7"),
        (ident, -3, None), (decimal, "0.5", 0.5), (decimal, True, None), (decimal, "nan", None), (decimal, 1e300, None),
        (decimal, {}, None), (flag, "true", True), (flag, "0", False), (flag, None, False), (flag, 1, True),
        (flag, [1], False), (text, "  a ", "a"), (text, " ", None), (text, 5, None), (overs, 20, (20, 0)),
        (overs, "20", (20, 0)), (overs, None, None), (overs, float("nan"), None), (overs, float("inf"), None),
        (moment, "2026-06-25 12:00:00", START), (moment, "2026-06-25T14:00:00+02:00", START), (moment, "x", None),
        (moment, "0001-01-01T00:00:00+23:59", None), (moment, 5, None),
    ],
)  # fmt: skip
def test_values(read: Callable[[Any], Any], value: Json, expected: Json) -> None:
    assert read(value) == expected


# Shapes as the service sent them


@pytest.mark.skipif(not REAL.is_dir(), reason="the reference payloads are not here")
def test_reference_payloads_are_read() -> None:
    def read(name: str) -> MatchSnapshot:
        data = json.loads((REAL / name).read_text())["data"]
        return snapshot_of(data[0] if isinstance(data, list) else data, {"3": "T20I", "1": "IPL"}, {})

    finished = read("fixture_28295_finished.edited.json")
    assert finished.match.phase is MatchPhase.FINISHED
    assert [(one.number, one.runs, one.wickets) for one in finished.match.innings] == [(1, 127, 9), (2, 117, 4)]
    assert [len(found.bowling) for found in finished.match.scorecards or ()] == [7, 6]
    assert len(finished.balls) == 4  # the edited sample repeats ids
    assert read("fixture_28295_1st_innings.edited.json").match.phase is MatchPhase.LIVE

    old = read("fixture_3_finished.json").match
    assert (old.phase, old.result and old.result.winner_team_id) == (MatchPhase.FINISHED, "40")
    listed = read("fixtures_page_24915.json").match
    assert (listed.phase, listed.league_code) == (MatchPhase.FINISHED, "IPL")

    leagues = json.loads((REAL / "leagues.json").read_text())["data"]
    assert [league.code for league in leagues_of(leagues)] == ["T20I", "BBL", "T20C"]
