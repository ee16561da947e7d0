"""The events of a match: their kinds, their texts and their scores."""

from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from datastore.matches.cricket_events import CricketEvent, CricketEventKind
from datastore.matches.live_state import ActiveMatch, initial_state
from pipelines.matches.live.diff import MatchDiff, MatchWatch
from pipelines.matches.providers.cricsheet.reader import load, read
from pipelines.matches.providers.recordings import Recording
from pipelines.matches.providers.replay import ReplayProvider
from tests.support.cricket_events import match_events
from tests.support.cricket_samples import (
    BLUES,
    RECORDINGS,
    REDS,
    Json,
    ball,
    blues,
    innings,
    match_json,
    over,
    real_data,
)
from tests.support.served import Clock

DOT = ball()
DOTS = [DOT] * 6


async def all_events_of(recording: Recording, balls_per_tick: int = 1) -> list[CricketEvent]:
    """Return all events of a match, from its first ball to its end."""
    provider = ReplayProvider([recording], now=Clock(), balls_per_tick=balls_per_tick)
    names = {team.team_id: team.name for team in recording.teams}
    watch = MatchWatch(recording.match_id, team_name=names.__getitem__)
    active = initial_state(recording.match)
    reported: list[CricketEvent] = []
    while not provider.is_over(recording.match_id):
        snapshot = await provider.match(recording.match_id)
        assert snapshot is not None
        found = watch.compare(active, snapshot)
        reported += found.events
        active = written(active, found)
    assert len({event.event_id for event in reported}) == len(reported)
    return reported


def written(active: ActiveMatch, found: MatchDiff) -> ActiveMatch:
    """Return the state after a tick."""
    return replace(
        active,
        live=found.live,
        version=active.version + 1,
        previous_ball_id=found.last_ball_id,
        announced=found.announced,
    )


async def lines(document: Json, *kinds: CricketEventKind) -> list[tuple[str, str | None]]:
    """Return the texts and scores of the events of these kinds, or of all."""
    reported = await all_events_of(read(document, match_id="m"))
    return [(event.text, event.score) for event in reported if event.kind in kinds or not kinds]


async def innings_lines(
    *overs: Json, kinds: tuple[CricketEventKind, ...] = (), **more: Any
) -> list[tuple[str, str | None]]:
    """Return the texts and scores for an innings of the Reds."""
    start = () if kinds else (("Reds bat: innings 1 begins", None),)
    end = () if kinds else (("Reds won by 3 runs", None),)
    found = await lines(match_json(innings(REDS, *overs, **more)), *kinds)
    assert found[: len(start)] == list(start)
    assert found[len(found) - len(end) :] == list(end)
    return found[len(start) : len(found) - len(end)]


async def test_a_small_match_from_start_to_end() -> None:
    document = match_json(
        innings(REDS, over(0, ball(4), ball(6), ball(out="R1", kind="caught", fielders=("B2",)))),
        innings(BLUES, over(0, blues(1), blues(wides=1)), target={"runs": 11, "overs": 20}),
        outcome={"winner": REDS, "by": {"runs": 8}},
    )

    assert await lines(document) == [
        ("Reds bat: innings 1 begins", None),
        ("FOUR! R1 off B11", "4/0"),
        ("SIX! R1 off B11", "10/0"),
        ("WICKET! R1 c B2 b B11", "10/1"),
        ("Innings break: Reds 10/1", "10/1"),
        ("Target 11 from 20 overs", None),
        ("Blues bat: innings 2 begins", None),
        ("Reds won by 8 runs", None),
    ]


@pytest.mark.parametrize(
    ("wicket", "words"),
    [
        ({"kind": "bowled"}, "b B11"),
        ({"kind": "caught", "fielders": ("B2",)}, "c B2 b B11"),
        ({"kind": "caught and bowled"}, "c & b B11"),
        ({"kind": "lbw"}, "lbw b B11"),
        ({"kind": "stumped", "fielders": ("B3",)}, "st B3 b B11"),
        ({"kind": "hit wicket"}, "hit wicket b B11"),
        ({"kind": "run out", "fielders": ("B2", "B3")}, "run out (B2/B3)"),
        ({"kind": "run out"}, "run out"),
        ({"kind": "retired out"}, "retired out"),
        ({"kind": "obstructing the field"}, "obstructing the field"),
        ({"kind": "timed out"}, "timed out"),
    ],
)
async def test_the_text_of_a_wicket_is_that_of_the_scorecard(wicket: Json, words: str) -> None:
    assert await innings_lines(over(0, ball(out="R1", **wicket))) == [(f"WICKET! R1 {words}", "0/1")]


@pytest.mark.parametrize("kind", ["retired hurt", "retired not out", "retired ill", "absent hurt"])
async def test_a_batter_who_retires_or_is_absent_is_no_wicket(kind: str) -> None:
    assert await innings_lines(over(0, ball(out="R1", kind=kind))) == []


async def test_several_wickets_on_a_ball() -> None:
    both = ball(out="R1")
    both["wickets"].append({"player_out": "R2", "kind": "timed out"})
    later = ball(4, batter="R3", partner="R4")

    assert await innings_lines(over(0, both, later)) == [
        ("WICKET! R1 b B11", "0/2"),
        ("WICKET! R2 timed out", "0/2"),
        ("FOUR! R3 off B11", "4/2"),
    ]


async def test_overthrows_are_no_boundary() -> None:
    overthrows = [ball(6, non_boundary=True), ball(4, non_boundary=True), ball(5)]

    assert await innings_lines(over(0, *overthrows, ball(6))) == [("SIX! R1 off B11", "21/0")]


async def test_runs_that_are_not_the_batters_are_no_boundary() -> None:
    assert await innings_lines(over(0, ball(byes=4), ball(legbyes=4), ball(wides=5), ball(noballs=5))) == []


async def test_penalty_runs_before_the_innings_are_in_the_score() -> None:
    assert await innings_lines(over(0, ball(4), ball(penalty=5), ball(6)), penalty_runs={"pre": 5, "post": 5}) == [
        ("FOUR! R1 off B11", "9/0"),
        ("SIX! R1 off B11", "20/0"),
    ]


@real_data
@pytest.mark.parametrize(("file", "number", "runs"), [("1389401", 2, 5), ("1150537", 2, 10)])
async def test_real_penalty_runs_before_an_innings(file: str, number: int, runs: int) -> None:
    recording = load(RECORDINGS / f"{file}.json")
    reported = await all_events_of(recording, 24)

    of_innings = [delivery for delivery in recording.balls if delivery.innings == number]
    for event in reported:
        if event.ball is not None and event.innings == number and event.kind is not CricketEventKind.CORRECTION:
            upto = [delivery for delivery in of_innings if delivery.ball_id <= event.ball.ball_id]
            out = sum(len(delivery.wickets) for delivery in upto)
            assert event.score == f"{runs + sum(delivery.runs for delivery in upto)}/{out}"
    assert sum(event.innings == number for event in reported) > 10


async def test_milestones_of_a_batter() -> None:
    sixes = [over(index, *[ball(6)] * 6) for index in range(6)]
    kinds = (CricketEventKind.FIFTY, CricketEventKind.HUNDRED, CricketEventKind.MILESTONE)

    assert await innings_lines(*sixes, kinds=kinds) == [
        ("R1 reaches 50", "54/0"),
        ("R1 reaches 100", "102/0"),
        ("R1 reaches 150", "150/0"),
        ("R1 reaches 200", "204/0"),
    ]


async def test_milestones_are_per_innings() -> None:
    forty = [over(index, *[ball(6)] * 3, *[ball(3)] * 2) for index in range(2)]
    document = match_json(
        innings(REDS, *forty[:1]), innings(BLUES), innings(REDS, *forty), match_type="Test", overs=None
    )

    reported = await all_events_of(read(document, match_id="m"))

    assert not [event for event in reported if event.kind is CricketEventKind.FIFTY]


async def test_a_batter_who_retires_and_returns_keeps_the_runs() -> None:
    tens = [ball(6), ball(4)]
    document = match_json(
        innings(
            REDS,
            over(0, *tens * 2, ball(out="R1", kind="retired hurt"), ball(batter="R3")),
            over(1, *[ball(6, batter="R3"), ball(4, batter="R3")] * 3),
            over(2, ball(out="R3", batter="R3"), *[ball(6)] * 5),
        )
    )

    assert await lines(document, CricketEventKind.FIFTY) == [("R1 reaches 50", "80/1")]


async def test_a_partnership_ends_when_a_batter_retires() -> None:
    sixes = [ball(6)] * 8
    document = match_json(
        innings(
            REDS,
            over(0, *sixes[:6]),
            over(1, *sixes[:2], ball(out="R1", kind="retired hurt"), *[ball(6, batter="R3")] * 2, ball(batter="R3")),
            over(2, *[ball(6, batter="R3")] * 6),
            over(3, *[ball(6, batter="R3")] * 2),
        )
    )

    reported = await lines(document, CricketEventKind.PARTNERSHIP)

    assert reported == [("50 partnership between R3 and R2", "102/0")]
    assert sum(kind == "PARTNERSHIP" for kind, *_ in match_events(document).elements()) == 1


async def test_a_partnership_counts_extras_and_ends_with_a_wicket() -> None:
    wides = [ball(wides=5)] * 9
    document = match_json(
        innings(REDS, over(0, *wides, ball(4), ball(1)), over(1, ball(out="R1"), ball(6, batter="R3"), *[DOT] * 4))
    )

    assert await lines(document, CricketEventKind.PARTNERSHIP) == [("50 partnership between R1 and R2", "50/0")]


MAIDEN = ("A maiden over from B11", "0/0")


@pytest.mark.parametrize(
    ("balls", "is_maiden"),
    [
        (DOTS, True),
        ([*DOTS[:5], ball(legbyes=4)], True),
        ([*DOTS[:5], ball(byes=1)], True),
        ([*DOTS, ball(wides=1)], True),  # the umpires allowed one ball too many
        ([ball(wides=1), *DOTS], False),
        ([ball(noballs=1), *DOTS], False),
        ([*DOTS[:5], ball(1)], False),
        (DOTS[:5], False),
        ([*DOTS[:3], *[ball(by="B10")] * 3], False),
    ],
)
async def test_maidens(balls: list[Json], is_maiden: bool) -> None:
    found = await innings_lines(over(0, *balls), kinds=(CricketEventKind.MAIDEN,))

    assert [text for text, _ in found] == ["A maiden over from B11"] * is_maiden


async def test_a_maiden_needs_one_bowler_also_in_overs_of_five() -> None:
    document = match_json(innings(REDS, over(0, *DOTS[:5]), over(1, *[ball(by="B10")] * 5)), balls_per_over=5)

    assert await lines(document, CricketEventKind.MAIDEN) == [
        ("A maiden over from B11", "0/0"),
        ("A maiden over from B10", "0/0"),
    ]


async def test_an_over_of_fourteen_balls() -> None:
    wides = [ball(wides=1)] * 8
    document = match_json(innings(REDS, over(0, *wides, *DOTS[:5], ball(4)), over(1, *DOTS)))

    assert await innings_lines(*document["innings"][0]["overs"]) == [
        ("FOUR! R1 off B11", "12/0"),
        ("A maiden over from B11", "12/0"),
    ]


def dismissal_ball(**more: Any) -> Json:
    return ball(**{"out": "R1"} | more)


HAT_TRICK = (CricketEventKind.HAT_TRICK,)


@pytest.mark.parametrize(
    ("balls", "tricks"),
    [
        ([dismissal_ball(), dismissal_ball(), dismissal_ball()], 1),
        ([dismissal_ball(), dismissal_ball(), dismissal_ball(), dismissal_ball()], 1),
        ([dismissal_ball()] * 6, 2),
        ([dismissal_ball(), dismissal_ball(), DOT, dismissal_ball()], 0),
        ([dismissal_ball(), dismissal_ball(), ball(wides=1), dismissal_ball()], 0),
        ([dismissal_ball(), dismissal_ball(kind="run out"), dismissal_ball()], 0),
        ([dismissal_ball(kind="run out"), dismissal_ball(), dismissal_ball()], 0),
        ([dismissal_ball(), dismissal_ball(), dismissal_ball(kind="stumped", wides=1)], 1),
        ([dismissal_ball(), dismissal_ball(), dismissal_ball(kind="retired hurt")], 0),
        ([dismissal_ball(kind="caught"), dismissal_ball(kind="lbw"), dismissal_ball(kind="hit wicket")], 1),
    ],
)
async def test_hat_tricks(balls: list[Json], tricks: int) -> None:
    found = await innings_lines(over(0, *balls), kinds=HAT_TRICK)

    assert [text for text, _ in found] == ["Hat-trick for B11!"] * tricks


async def test_a_hat_trick_across_overs() -> None:
    other = over(1, *[ball(by="B10")] * 6)

    found = await innings_lines(
        over(0, *[DOT] * 4, dismissal_ball(), dismissal_ball()), other, over(2, dismissal_ball(), DOT), kinds=HAT_TRICK
    )

    assert found == [("Hat-trick for B11!", "0/3")]


async def test_a_hat_trick_continues_across_innings_but_not_into_a_super_over() -> None:
    ending = innings(REDS, over(0, DOT, dismissal_ball(), dismissal_ball()))
    two_innings = match_json(
        ending, innings(BLUES), innings(REDS, over(0, dismissal_ball())), match_type="Test", overs=None
    )
    super_over = match_json(ending, innings(BLUES), innings(REDS, over(0, dismissal_ball()), super_over=True))

    assert len(await lines(two_innings, *HAT_TRICK)) == 1
    assert len(await lines(super_over, *HAT_TRICK)) == 0


async def test_super_overs_have_their_own_targets() -> None:
    def super_over(team: str, delivery: Json, **more: Any) -> Json:
        return innings(team, over(0, delivery), super_over=True, **more)

    document = match_json(
        innings(REDS, over(0, ball(6))),
        innings(BLUES, over(0, blues(6)), target={"runs": 7, "overs": 20}),
        super_over(BLUES, blues(4)),
        super_over(REDS, ball(4)),
        super_over(REDS, ball(4)),
        super_over(BLUES, blues(6)),
        outcome={"result": "tie", "eliminator": BLUES},
    )

    reported = await lines(
        document,
        CricketEventKind.TARGET,
        CricketEventKind.SUPER_OVER,
        CricketEventKind.INNINGS_BREAK,
        CricketEventKind.RESULT,
    )

    assert [text for text, _ in reported] == [
        "Innings break: Reds 6/0",
        "Target 7 from 20 overs",
        "Innings break: Blues 6/0",
        "Super over!",
        "Innings break: Blues 4/0",
        "Target 5 in the super over",
        "Innings break: Reds 4/0",
        "Super over!",
        "Innings break: Reds 4/0",
        "Target 5 in the super over",
        "Match tied (Blues won the super over)",
    ]


async def test_a_declaration_and_a_rain_rule() -> None:
    declared = match_json(innings(REDS, over(0, ball(6)), declared=True), innings(BLUES, over(0, blues(1))), overs=None)
    rain = match_json(
        innings(REDS, over(0, ball(6))),
        innings(BLUES, over(0, blues(1)), target={"runs": 64, "overs": 7}),
        outcome={"winner": REDS, "by": {"runs": 3}, "method": "D/L"},
    )

    assert await lines(declared, CricketEventKind.INNINGS_BREAK) == [("Innings break: Reds 6/0d", "6/0d")]
    assert await lines(rain, CricketEventKind.TARGET, CricketEventKind.RESULT) == [
        ("Target 64 from 7 overs (D/L)", None),
        ("Reds won by 3 runs (D/L)", None),
    ]


async def test_a_match_without_a_result_is_interrupted_first() -> None:
    document = match_json(innings(REDS, over(0, DOT)), outcome={"result": "no result"})

    assert await lines(document, CricketEventKind.RAIN, CricketEventKind.RESULT) == [
        ("Play is interrupted (Int.)", None),
        ("No result", None),
    ]


async def test_an_event_has_its_ball_and_its_player() -> None:
    document = match_json(innings(REDS, over(0, ball(4), ball(out="R2", kind="run out"))))

    _, four, wicket, _ = await all_events_of(read(document, match_id="m"))

    assert (four.event_id, four.player_id, four.player, four.value) == ("m:100001:four", "id-r1", "R1", 4)
    assert (wicket.event_id, wicket.player, wicket.innings) == ("m:100002:wicket", "R2", 1)
    assert wicket.ball is not None
    assert wicket.ball.label == "0.2"


@pytest.mark.parametrize("balls_per_tick", [1, 5, 1000])
async def test_the_events_are_the_same_at_every_pace(balls_per_tick: int) -> None:
    document = match_json(
        innings(
            REDS, over(0, ball(4), dismissal_ball(), dismissal_ball(), dismissal_ball(), ball(6), DOT), over(1, *DOTS)
        ),
        innings(BLUES, over(0, *[blues(6)] * 6), over(1, *[blues(6)] * 6), target={"runs": 11, "overs": 20}),
    )

    reported = await all_events_of(read(document, match_id="m"), balls_per_tick)

    kinds = Counter(event.kind.name for event in reported)
    assert kinds == Counter(kind for kind, *_ in match_events(document).elements())
