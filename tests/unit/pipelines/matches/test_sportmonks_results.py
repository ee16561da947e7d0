"""Targets and results of SportMonks fixtures."""

import pytest

from datastore.matches.cricket import (
    Match,
    MatchPhase,
    Result,
    ResultKind,
    Target,
)
from tests.support.sportmonks_matches import match
from tests.support.sportmonks_samples import (
    KITES,
    OWLS,
    Json,
    runs_row,
)


def decided(first: int, second: int, out: int = 4, **changes: Json) -> Match:
    """Return a match of two innings. The Kites bat first."""
    runs = [runs_row(1, KITES, first, 6, 20), runs_row(2, OWLS, second, out, 19.2)]
    return match(**{"status": "Finished", "runs": runs, **changes})


def test_the_target_is_one_more_than_the_lead() -> None:
    short, first = [runs_row(1, KITES, 150, 6, 19.5)], [runs_row(1, KITES, 150, 6, 20)]
    assert match(status="1st Innings", runs=short).target is None
    assert match(status="Int.", runs=short).target is None
    assert match(status="Innings Break", runs=short).target == Target(151, "20")
    assert match(status="2nd Innings", runs=short).target == Target(151, "20")
    # Rain in the break does not remove the target.
    assert match(status="Int.", runs=first).target == Target(151, "20")
    assert match(status="Int.", runs=[runs_row(1, KITES, 99, 10, 12)]).target == Target(100, "20")
    assert match(status="2nd Innings", runs=first).target == Target(151, "20")
    assert decided(150, 20, status="2nd Innings").target == Target(151, "20")


def test_the_target_of_a_match_of_four_innings() -> None:
    runs = [runs_row(1, KITES, 300, 10, 80), runs_row(2, OWLS, 200, 10, 70), runs_row(3, KITES, 150, 9, 40)]
    assert match(type="Test", status="3rd Innings", runs=runs).target is None
    assert match(type="Test", status="Innings Break", runs=runs).target == Target(251)
    followed_on = [runs_row(1, KITES, 300, 10, 80), runs_row(2, OWLS, 100, 10, 70), runs_row(3, OWLS, 150, 10, 40)]
    assert match(type="Test", status="Tea Break", runs=followed_on).target is None
    assert match(type="Test", status="Lunch", runs=[*followed_on[:2], runs_row(3, OWLS, 250, 10, 90)]).target == Target(
        51
    )
    last = [*runs, runs_row(4, OWLS, 10, 0, 3)]
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
def test_a_target_revised_for_rain(changes: Json, target: Target) -> None:
    assert decided(150, 20, status="2nd Innings", **changes).target == target


def test_a_win_by_wickets_by_runs_and_by_an_innings() -> None:
    note = "Owls won, and how"
    won = decided(150, 151, winner_team_id=OWLS, note=note)
    assert won.result == Result(ResultKind.WIN, note, "12", by_wickets=6)
    assert decided(150, 120, winner_team_id=KITES).result == Result(ResultKind.WIN, "Match won", "11", by_runs=30)
    runs = [runs_row(1, KITES, 400, 8, 100), runs_row(2, OWLS, 150, 10, 60), runs_row(3, OWLS, 200, 10, 70)]
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
    more = [
        runs_row(1, KITES, 9, 1, 20),
        runs_row(2, OWLS, 9, 1, 20),
        runs_row(3, OWLS, 9, 1, 1),
        runs_row(4, KITES, 8, 1, 1),
    ]
    assert decided(0, 0, runs=more, winner_team_id=OWLS).result == won


def test_a_win_without_totals() -> None:
    assert decided(0, 0, runs=[], winner_team_id=OWLS).result == Result(ResultKind.WIN, "Match won", "12")


@pytest.mark.parametrize(
    ("value", "kind"),
    [("draw", "draw"), ("Drawn", "draw"), ("tie", "tie"), ("TIED", "tie"), ("no result", "no_result"),
     ("no-result", "no_result"), ("noresult", "no_result"), ("NR", "no_result")],
)  # fmt: skip
@pytest.mark.parametrize("status", ["Finished", "Aban."])
def test_draws_ties_and_no_results(value: str, kind: str, status: str) -> None:
    result = match(status=status, draw_noresult=value, note="Rain").result
    assert result == Result(ResultKind(kind), "Rain")


@pytest.mark.parametrize(
    "changes",
    [{"winner_team_id": OWLS, "draw_noresult": "draw"}, {"winner_team_id": 99}, {"draw_noresult": "moonrise"}],
    ids=str,
)
def test_a_contradiction_removes_the_result_only(changes: Json, caplog: pytest.LogCaptureFixture) -> None:
    found = decided(150, 120, note="Over", **changes)
    assert found.result is None
    assert (found.phase, found.note, len(found.innings)) == (MatchPhase.FINISHED, "Over", 2)
    assert "the result of fixture 501 is left out" in caplog.text


def test_there_is_no_result_before_the_end() -> None:
    assert decided(150, 120, status="2nd Innings", winner_team_id=KITES).result is None
    assert decided(150, 120).result is None
    assert match(status="Aban.", note="Match abandoned").result is None
