"""Innings, results, targets and substitutes of Cricsheet matches."""

import pytest

from datastore.matches.cricket import Match, MatchPhase, ResultKind, Target
from pipelines.matches.providers.playback import Playback
from tests.support.cricket_count import Json, count_match
from tests.support.cricket_samples import (
    BLUES,
    REDS,
    ball,
    blues,
    innings,
    match_json,
    over,
)
from tests.support.replays import DOTS, distinct_statuses, recorded, replay_recordings, to_the_end


def final(document: Json) -> Match:
    playback = Playback(recorded(document))
    return playback.at(playback.timeline.last).match


async def test_super_overs_one_after_another() -> None:
    def super_over(team: str, delivery: Json, target: Json | None = None) -> Json:
        return innings(team, over(0, delivery), super_over=True, **({"target": target} if target else {}))

    document = match_json(
        innings(REDS, over(0, ball(6))),
        innings(BLUES, over(0, blues(6))),
        super_over(BLUES, blues(4)),
        super_over(REDS, ball(4)),
        super_over(REDS, ball(1)),
        super_over(BLUES, blues(2)),
        outcome={"result": "tie", "eliminator": BLUES},
    )

    snapshots = await to_the_end(replay_recordings(recorded(document)))

    over_and_break = ["Super Over", "Innings Break"]
    start = ["NS", "1st Innings", "Innings Break", "2nd Innings", "Innings Break"]
    assert distinct_statuses(snapshots) == [*start, *over_and_break * 3, "Super Over", "Finished"]
    end = snapshots[-1].match
    assert [score.number for score in end.innings] == [1, 2, 3, 4, 5, 6]
    assert [score.super_over for score in end.innings] == [False] * 2 + [True] * 4
    assert end.scorecards is not None
    assert [[line.name for line in card.batting] for card in end.scorecards[4:]] == [["R1", "R2"], ["B1", "B2"]]
    assert end.result is not None
    assert (end.result.kind, end.result.eliminator, end.result.winner_team_id) == (ResultKind.TIE, True, "blues")
    assert end.result.text == "Match tied (Blues won the super over)"
    targets = {
        len(snapshot.match.innings): snapshot.match.target
        for snapshot in snapshots
        if snapshot.match.phase is MatchPhase.LIVE
    }
    five, two = Target(5, "1"), Target(2, "1")
    assert targets == {1: None, 2: Target(7), 3: None, 4: five, 5: None, 6: two}


async def test_penalty_runs_before_and_after_an_innings() -> None:
    document = match_json(
        innings(REDS, over(0, ball(1)), penalty_runs={"post": 5}),
        innings(BLUES, over(0, blues(2)), penalty_runs={"pre": 10}),
    )

    snapshots = await to_the_end(replay_recordings(recorded(document)))

    runs = [[snapshot.runs for snapshot in snapshot.match.innings] for snapshot in snapshots]
    assert runs == [[], [0], [1], [6], [6, 10], [6, 12], [6, 12]]
    assert [snapshot.extras.penalty for snapshot in snapshots[-1].match.innings] == [5, 10]
    assert [count_match(document)[number]["runs"] for number in (0, 1)] == [6, 12]


async def test_a_follow_on_a_declaration_and_an_innings_forfeited() -> None:
    document = match_json(
        innings(REDS, over(0, ball(6)), declared=True),
        innings(BLUES, over(0, blues(1))),
        innings(BLUES, over(0, blues(6), blues(6))),
        innings(REDS, forfeited=True),
        match_type="Test",
        overs=None,
        dates=["2026-06-25", "2026-06-26"],
    )

    snapshots = await to_the_end(replay_recordings(recorded(document)))

    end = snapshots[-1].match
    assert [snapshot.match.follow_on for snapshot in snapshots] == [
        len(snapshot.match.innings) > 2 for snapshot in snapshots
    ]
    assert [(score.declared, score.forfeited) for score in end.innings] == [
        (True, False),
        (False, False),
        (False, False),
        (False, True),
    ]
    assert distinct_statuses(snapshots)[-4:] == ["3rd Innings", "Innings Break", "4th Innings", "Finished"]
    assert end.target == Target(8)


async def test_a_match_of_several_days_has_lunch_tea_and_stumps() -> None:
    overs = [over(index, *DOTS) for index in range(60)]
    document = match_json(
        innings(REDS, *overs), dates=["2026-06-25", "2026-06-26"], overs=None, outcome={"result": "draw"}
    )

    snapshots = await to_the_end(replay_recordings(recorded(document), balls_per_tick=6))

    day = ["1st Innings", "Lunch", "1st Innings", "Tea Break", "1st Innings"]
    assert distinct_statuses(snapshots) == ["NS", *day, "Stump Day 1", *day, "Finished"]
    phases = {snapshot.match.status: snapshot.match.phase for snapshot in snapshots}
    assert (phases["Lunch"], phases["Stump Day 1"]) == (MatchPhase.BREAK, MatchPhase.STUMPS)


async def test_a_reserve_day_brings_no_pauses_into_a_match_of_limited_overs() -> None:
    overs = [over(index, *DOTS) for index in range(50)]
    document = match_json(
        innings(REDS, *overs), dates=["2026-06-25", "2026-06-26"], overs=50, outcome={"result": "tie"}
    )

    snapshots = await to_the_end(replay_recordings(recorded(document), balls_per_tick=6))

    assert distinct_statuses(snapshots) == ["NS", "1st Innings", "Finished"]


RESULTS: list[tuple[Json, ResultKind | None, str | None, str]] = [
    ({"winner": REDS, "by": {"runs": 1}}, ResultKind.WIN, "Reds won by 1 run", "Finished"),
    ({"winner": REDS, "by": {"wickets": 7}}, ResultKind.WIN, "Reds won by 7 wickets", "Finished"),
    (
        {"winner": REDS, "by": {"innings": 1, "runs": 48}},
        ResultKind.WIN,
        "Reds won by an innings and 48 runs",
        "Finished",
    ),
    ({"winner": REDS, "by": {"runs": 9}, "method": "D/L"}, ResultKind.WIN, "Reds won by 9 runs (D/L)", "Finished"),
    ({"winner": REDS, "method": "Awarded"}, ResultKind.AWARDED, "Reds were awarded the match", "Finished"),
    ({"winner": REDS}, ResultKind.WIN, "Reds won", "Finished"),
    ({"result": "tie"}, ResultKind.TIE, "Match tied", "Finished"),
    ({"result": "tie", "bowl_out": BLUES}, ResultKind.TIE, "Match tied (Blues won the bowl-out)", "Finished"),
    ({"result": "draw"}, ResultKind.DRAW, "Match drawn", "Finished"),
    ({"result": "no result"}, ResultKind.NO_RESULT, "No result", "Aban."),
    ({"result": "played again"}, None, "Played again", "Finished"),
    ({}, None, None, "Finished"),
]


@pytest.mark.parametrize(("outcome", "kind", "text", "status"), RESULTS)
def test_the_ways_a_match_can_end(outcome: Json, kind: ResultKind | None, text: str | None, status: str) -> None:
    end = final(match_json(innings(REDS, over(0, ball())), outcome=outcome))

    assert (end.status, end.note) == (status, text)
    assert (end.result and end.result.kind, end.result and end.result.text) == (kind, text if kind else None)


async def test_a_match_awarded_without_a_ball() -> None:
    document = match_json(outcome={"winner": BLUES, "method": "Awarded"})

    snapshots = await to_the_end(replay_recordings(recorded(document)))

    assert distinct_statuses(snapshots) == ["NS", "Finished"]
    assert snapshots[-1].match.note == "Blues were awarded the match"


@pytest.mark.parametrize(
    ("expected", "outcome", "target"),
    [
        ({"runs": 7, "overs": 20}, {"result": "tie"}, Target(7, "20")),
        ({"runs": 5, "overs": 9.2}, {"result": "no result"}, Target(5, "9.2", "D/L")),
        ({"runs": 5, "overs": 9}, {"winner": REDS, "by": {"runs": 2}, "method": "VJD"}, Target(5, "9", "VJD")),
        ({"runs": 7, "overs": 20}, {"winner": REDS, "method": "Awarded"}, Target(7, "20")),
        (None, {"result": "tie"}, Target(7)),
    ],
)
def test_a_target_names_the_rule_that_made_it(expected: Json | None, outcome: Json, target: Target) -> None:
    chase = innings(BLUES, over(0, blues(1)), **({"target": expected} if expected else {}))

    assert final(match_json(innings(REDS, over(0, ball(6))), chase, outcome=outcome)).target == target


def test_a_substitute_may_bat_and_the_replaced_player_may_not() -> None:
    change = {"match": [{"in": "R12", "out": "R11", "team": REDS, "reason": "impact_player"}]}
    document = match_json(innings(REDS, over(0, ball(), ball(replacements=change))), innings(BLUES))
    playback = Playback(recorded(document))

    before, after = playback.at(2).match.scorecards, playback.at(3).match.scorecards

    assert before is not None
    assert after is not None
    assert [line.name for line in before[0].batting][-1] == "R11"
    assert [line.name for line in after[0].batting][-2:] == ["R10", "R12"]
    assert [player.name for player in playback.recording.lineups if player.substitute] == ["R12"]


def test_a_player_replaced_in_the_field_does_not_bat_later() -> None:
    change = {"match": [{"in": "B12", "out": "B3", "team": BLUES, "reason": "concussion_substitute"}]}
    document = match_json(innings(REDS, over(0, ball(replacements=change))), innings(BLUES, over(0, blues())))

    cards = final(document).scorecards

    assert cards is not None
    names = [line.name for line in cards[1].batting]
    assert "B3" not in names
    assert names[-2:] == ["B11", "B12"]
