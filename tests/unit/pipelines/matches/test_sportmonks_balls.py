"""The conversion of SportMonks balls: runs, extras, players and wickets."""

import pytest

from datastore.matches.cricket import (
    Ball,
    Extras,
    Wicket,
)
from tests.support.sportmonks_matches import snapshot
from tests.support.sportmonks_samples import (
    KITES,
    OWLS,
    Json,
    ball_row,
    player_id,
    score,
)


def single_ball(name: str, place: Json = 0.1, **changes: Json) -> Ball:
    (found,) = snapshot(status="1st Innings", balls=[ball_row(1, place, name, **changes)]).balls
    return found


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
    found = single_ball(name)
    assert (found.batter_runs, found.extras, found.legal) == (batter_runs, extras, legal)
    # For a ball without its score, the table has the same values.
    assert single_ball(name, score=None) == found


def test_boundaries_are_the_batters() -> None:
    names = ("FOUR", "SIX", "1 No Ball + 4 Runs", "4 Byes", "2 Runs")
    found = [(single_ball(name).four, single_ball(name).six) for name in names]
    assert found == [(True, False), (False, True), (True, False), (False, False), (False, False)]
    wide = single_ball("5 Wides", score=score("5 Wides") | {"four": True})
    assert (wide.four, wide.extras.wides) == (False, 5)


def test_an_illegal_ball_without_a_name_is_a_wide() -> None:
    unnamed = score("1 Wide") | {"name": None}
    assert single_ball("1 Wide", score=unnamed).extras == Extras(wides=1)


@pytest.mark.parametrize(
    ("place", "over", "number"),
    [(0.1, 0, 1), ("0.1", 0, 1), (15.4, 15, 4), ("15.4", 15, 4), ("0.10", 0, 10), (19.6, 19, 6), (3, 3, 0),
     (15.399999999999999, 15, 4), (128.3, 128, 3)],
)  # fmt: skip
def test_the_position_of_a_ball(place: Json, over: int, number: int) -> None:
    found = single_ball("No Run", place)
    assert (found.over, found.number, found.label) == (over, number, f"{over}.{number}")


def test_the_batters_and_the_bowler_of_a_ball() -> None:
    found = single_ball("1 Run", batsman_id=player_id(KITES, 2))
    assert (found.batter_id, found.batter) == ("1102", "Kit Baker")
    assert (found.non_striker_id, found.non_striker) == ("1101", "Kit Adams")
    assert (found.bowler_id, found.bowler) == ("1211", "Olly Kelly")
    assert (found.ball_id, found.innings) == (1, 1)

    alone = single_ball(
        "1 Run", batsman_two_on_creeze_id=None, bowler_id=None, batsman_id=77, batsman_one_on_creeze_id=77
    )
    assert (alone.batter, alone.non_striker_id, alone.non_striker, alone.bowler_id) == ("Player 77", "", "", "")
    guest = single_ball("1 Run", batsman_id=77, batsman={"data": {"id": 77, "fullname": "Gus Guest"}})
    assert guest.batter == "Gus Guest"


def test_balls_are_in_the_order_of_their_ids() -> None:
    balls = [ball_row(30, 0.2), ball_row(9, 0.1), ball_row(10, 0.1, "1 Wide"), ball_row(8, 0.1, "1 Wide")]
    found = snapshot(status="1st Innings", balls=balls).balls
    assert [(delivery.ball_id, delivery.label, delivery.legal) for delivery in found] == [
        (8, "0.1", False),
        (9, "0.1", True),
        (10, "0.1", False),
        (30, "0.2", True),
    ]


def test_the_last_row_of_a_repeated_ball_counts(caplog: pytest.LogCaptureFixture) -> None:
    balls = [ball_row(1, 0.1, "FOUR"), ball_row(2, 0.2), ball_row(1, 0.1, "5 Wides")]
    found = snapshot(status="1st Innings", balls=balls).balls
    assert [(delivery.ball_id, delivery.runs) for delivery in found] == [(1, 5), (2, 0)]
    assert found[0].extras.wides == 5
    assert "fixture 501 repeats 1 balls, the first is 1" in caplog.text


@pytest.mark.parametrize(
    "changes",
    [{"id": None}, {"id": "?"}, {"ball": None}, {"ball": "first"}, {"ball": True}, {"ball": -0.1}, {"ball": [0.1]},
     {"ball": 1e300}, {"ball": "1e3"}, {"ball": ""}, {"batsman_id": None}, {"scoreboard": None}, {"scoreboard": "S"},
     {"scoreboard": "S12"}, {"scoreboard": 1}],
    ids=str,
)  # fmt: skip
def test_an_unreadable_ball_is_left_out_and_logged(changes: Json, caplog: pytest.LogCaptureFixture) -> None:
    balls = [ball_row(1, 0.1), ball_row(2, 0.2) | changes, ball_row(3, 0.3)]
    found = snapshot(status="1st Innings", balls=balls)
    assert [delivery.ball_id for delivery in found.balls] == [1, 3]
    assert "ball" in caplog.text
    assert "is left out" in caplog.text


def test_a_ball_with_an_unknown_score_has_only_its_dismissal(caplog: pytest.LogCaptureFixture) -> None:
    unknown: Json = {"score": None, "score_id": 9999}
    quiet = single_ball("FOUR", **unknown)
    assert (quiet.runs, quiet.legal, quiet.wickets) == (0, True, ())
    assert "ball 1 has the unknown score 9999" in caplog.text

    out = {"batsmanout_id": player_id(KITES, 2), **unknown}
    kinds = [
        [wicket.kind for wicket in single_ball("FOUR", **out, **more).wickets]
        for more in ({}, {"runout_by_id": player_id(OWLS, 4)}, {"catchstump_id": player_id(OWLS, 4)})
    ]
    assert kinds == [["out"], ["run out"], ["caught"]]
    assert single_ball("FOUR", score={}, score_id=None).runs == 0


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
    found = single_ball(name, batsmanout_id=player_id(KITES, 1), **changes)
    assert found.wickets == (Wicket("1101", "Kit Adams", kind, fielders, credited),)


def test_a_run_out_at_the_other_end() -> None:
    thrower, keeper = player_id(OWLS, 6), player_id(OWLS, 2)
    out = player_id(KITES, 2)
    found = single_ball("Run Out + 1", batsmanout_id=out, runout_by_id=thrower, catchstump_id=keeper)
    assert found.wickets == (Wicket("1102", "Kit Baker", "run out", ("Olly Frost", "Olly Baker"), False),)
    assert found.batter_runs == 1


def test_a_batter_who_retires_hurt_is_not_out() -> None:
    assert single_ball("Retired Hurt", batsmanout_id=player_id(KITES, 1)).wickets == ()
