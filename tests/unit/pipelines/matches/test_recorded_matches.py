"""The replay of recorded matches: what files say, in which order it is shown, and when."""

import json
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from datastore.matches.cricket import Match, MatchPhase, MatchSnapshot, ResultKind, Target
from datastore.matches.json_records import to_json
from pipelines.demo.match import TEAMS, demo_match
from pipelines.matches.providers.cricsheet import reader as cricsheet
from pipelines.matches.providers.cricsheet.reader import load, read
from pipelines.matches.providers.playback import Playback
from pipelines.matches.providers.provider import Malformed, Provider, ProviderError
from pipelines.matches.providers.recordings import Recording
from pipelines.matches.providers.replay import ReplayProvider
from tests.support.cricket_count import Json, count, winner
from tests.support.cricket_samples import (
    BLUES,
    FILES,
    RECORDINGS,
    REDS,
    ball,
    blues,
    innings,
    match,
    over,
    real_data,
    real_files,
)
from tests.support.scorebook import counted, without_hits
from tests.support.served import NOON, Clock

DOTS = [ball()] * 6
BLUE_DOTS = [blues()] * 6
SHORT = match(
    innings(REDS, over(0, *DOTS), over(1, *DOTS[:3])),
    innings(BLUES, over(0, *BLUE_DOTS[:4]), target={"runs": 1, "overs": 20}),
)
DAY = date(2026, 6, 25)


def recorded(document: Json, match_id: str = "m") -> Recording:
    return read(document, match_id=match_id)


def replay(*recordings: Recording, **options: Any) -> ReplayProvider:
    return ReplayProvider(recordings, **{"now": Clock()} | options)


async def to_the_end(provider: ReplayProvider, match_id: str = "m") -> list[MatchSnapshot]:
    """Every snapshot until the match is over."""
    snapshots = []
    for _ in range(10_000):
        snapshot = await provider.match(match_id)
        assert snapshot is not None
        snapshots.append(snapshot)
        if provider.is_over(match_id):
            return snapshots
    raise AssertionError("The match does not end.")


def statuses(snapshots: list[MatchSnapshot]) -> list[str]:
    """The statuses in order, repetitions left out."""
    told: list[str] = []
    for snapshot in snapshots:
        if told[-1:] != [snapshot.match.status]:
            told.append(snapshot.match.status)
    return told


def final(document: Json) -> Match:
    playback = Playback(recorded(document))
    return playback.at(playback.timeline.last).match


def read_json(path: Path) -> Json:
    document: Json = json.loads(path.read_bytes())
    return document


def names_of(recording: Recording, document: Json) -> dict[str, str]:
    teams = zip(recording.teams, document["info"]["teams"], strict=True)
    return {team.team_id: name for team, name in teams}


@pytest.mark.parametrize("path", real_files())
async def test_a_real_match_ends_as_counted_from_its_file(path: Path) -> None:
    document = read_json(path)
    recording = load(path)

    *_, last = await to_the_end(replay(recording, balls_per_tick=7), path.stem)

    assert counted(last, names_of(recording, document)) == without_hits(count(document))
    assert last.balls == recording.balls
    assert last.match.phase is (MatchPhase.ABANDONED if "No result" in str(last.match.note) else MatchPhase.FINISHED)
    result, outcome = last.match.result, document["info"]["outcome"]
    assert result is not None
    told = names_of(recording, document).get(result.winner_team_id or "")
    assert told == winner(document)
    by = outcome.get("by", {})
    assert (result.by_runs, result.by_wickets) == (by.get("runs"), by.get("wickets"))
    assert (result.by_innings, result.method) == ("innings" in by, outcome.get("method"))
    assert result.eliminator == ("eliminator" in outcome)


@pytest.mark.parametrize("path", real_files())
async def test_a_real_match_is_shown_ball_by_ball_without_a_gap(path: Path) -> None:
    recording = load(path)
    ids = [one.ball_id for one in recording.balls]

    snapshots = await to_the_end(replay(recording), path.stem)

    assert ids == sorted(set(ids))
    assert [len(one.balls) for one in snapshots] == sorted(len(one.balls) for one in snapshots)
    assert {len(one.balls) for one in snapshots} == set(range(len(ids) + 1))
    assert snapshots[0].match.status == "NS"
    for number, snapshot in enumerate(snapshots):
        runs = sum(one.runs for one in snapshot.match.innings)
        assert runs == sum(one.runs for one in snapshot.balls) + penalties(recording, snapshot)
        if number % 97 == 0:
            assert Playback(recording).at(number) == snapshot


def penalties(recording: Recording, snapshot: MatchSnapshot) -> int:
    """Runs awarded before the innings that have begun; the real files have none after one."""
    return sum(one.penalty_before for one in recording.innings[: len(snapshot.match.innings)])


@real_data
def test_the_words_for_real_results() -> None:
    texts = {path.stem: load(path).result for path in FILES}

    told = {stem: texts[stem].text for stem in texts if texts[stem]}  # type: ignore[union-attr]
    assert told["1389401"] == "India won by 434 runs"
    assert told["1187017"] == "India won by an innings and 46 runs"
    assert told["1152848"] == "England won by 1 wicket"
    assert told["1345425"] == "Match tied (India won the super over)"
    assert told["1144530"] == "Match tied (super over tied too, England won on countback)"
    assert told["1322277"] == "Match tied (D/L)"
    assert told["1198242"] == "Match drawn"
    assert told["1298152"] == "No result"


@real_data
def test_two_revisions_of_a_match_have_the_same_balls() -> None:
    first = load(RECORDINGS / "1270836_rev1.json", match_id="1270836")
    second = load(RECORDINGS / "1270836.json")

    assert (first.revision, second.revision) == (1, 2)
    assert [one.ball_id for one in first.balls] == [one.ball_id for one in second.balls]
    assert first.balls != second.balls
    assert first.match == second.match


@real_data
async def test_a_revision_replayed_over_a_finished_match_shows_its_end_at_once() -> None:
    first = load(RECORDINGS / "1270836_rev1.json", match_id="1270836")
    second = load(RECORDINGS / "1270836.json")
    [*_, before] = await to_the_end(replay(first), "1270836")
    again = replay(second)

    again.start_at("1270836", before.balls[-1].ball_id)
    after = await again.match("1270836")

    assert after is not None
    assert after.match.status == "Finished"
    assert after.match.innings == before.match.innings
    assert after.match.scorecards != before.match.scorecards
    assert again.is_over("1270836")


@real_data
async def test_a_batter_who_leaves_without_a_word_is_retired() -> None:
    """C Green left for a while in the second over; the file has no wicket for it."""
    playback = Playback(load(RECORDINGS / "1370352.json"))
    gone = playback.timeline.after((2 * 1000 + 1) * 100 + 7)

    card = playback.at(gone).match.scorecards
    end = playback.at(playback.timeline.last).match.scorecards

    assert card is not None
    assert end is not None
    [green] = [line for line in card[1].batting if line.name == "C Green"]
    [later] = [line for line in end[1].batting if line.name == "C Green"]
    assert (green.status, green.dismissal) == ("retired", "retired")
    assert (later.status, later.how_out) == ("out", "bowled")


@real_data
def test_who_came_in_for_another_is_a_substitute() -> None:
    recording = load(RECORDINGS / "1173070.json")

    assert [one.name for one in recording.lineups if one.substitute] == ["RM Ghosh"]
    assert len(recording.lineups) == 23


async def test_every_status_is_shown_however_many_balls_a_tick_takes() -> None:
    slowly = await to_the_end(replay(recorded(SHORT)))
    fast = await to_the_end(replay(recorded(SHORT), balls_per_tick=1000))

    assert statuses(slowly) == ["NS", "1st Innings", "Innings Break", "2nd Innings", "Finished"]
    assert statuses(fast) == statuses(slowly)
    assert [len(one.balls) for one in fast] == [0, 0, 9, 9, 9, 13, 13]
    assert fast[-1] == slowly[-1]
    assert fast[2].match.innings[0].overs == "1.3"
    assert fast[3].match.note == "Blues need 1 to win"


async def test_the_last_state_stays_and_the_first_call_shows_where_it_stands() -> None:
    provider = replay(recorded(SHORT))
    first, second = await provider.match("m"), await provider.match("m")
    snapshots = await to_the_end(provider)

    assert first is not None
    assert second is not None
    assert [first.match.status, second.match.status, len(second.balls)] == ["NS", "1st Innings", 0]
    assert await provider.match("m") == snapshots[-1]


async def test_several_balls_a_tick() -> None:
    snapshots = await to_the_end(replay(recorded(SHORT), balls_per_tick=4))

    assert [len(one.balls) for one in snapshots] == [0, 0, 4, 8, 9, 9, 9, 13, 13]


async def test_at_a_speed_the_clock_decides() -> None:
    clock = Clock()
    provider = replay(recorded(SHORT), now=clock, speed=60)

    async def at(seconds: float) -> tuple[str, int]:
        """The status and the balls so many seconds after the start."""
        clock.now = NOON + timedelta(seconds=seconds)
        snapshot = await provider.match("m")
        assert snapshot is not None
        return snapshot.match.status, len(snapshot.balls)

    # A minute before play, half a minute a ball, another half between overs, five minutes between innings.
    assert await at(0.5) == ("NS", 0)
    assert await at(1) == ("1st Innings", 0)
    assert await at(1.5) == ("1st Innings", 1)
    assert await at(4.9) == ("1st Innings", 6)
    assert await at(5) == ("1st Innings", 7)
    assert await at(6.4) == ("1st Innings", 9)
    assert await at(6.5) == ("Innings Break", 9)
    assert await at(11.4) == ("Innings Break", 9)
    assert await at(11.5) == ("2nd Innings", 9)
    assert await at(1) == ("1st Innings", 0)
    assert await at(14) == ("Finished", 13)
    assert await at(10_000) == ("Finished", 13)


async def test_a_match_begins_at_its_start_time() -> None:
    clock = Clock()
    start = NOON + timedelta(hours=1)
    provider = replay(recorded(SHORT), now=clock, speed=1, start_times={"m": start})

    assert await provider.live() == []
    clock.forward(minutes=50)
    [soon] = await provider.live()
    clock.forward(minutes=11, seconds=30)
    [playing] = await provider.live()

    assert (soon.status, soon.start_time) == ("NS", start)
    assert (playing.status, playing.innings[0].legal_balls) == ("1st Innings", 1)


async def test_the_list_of_live_matches_does_not_go_on_and_forgets_those_that_are_over() -> None:
    clock = Clock()
    other = recorded(SHORT, "other")
    provider = replay(recorded(SHORT), other, now=clock, linger=timedelta(minutes=5))

    for _ in range(3):
        assert [one.status for one in await provider.live()] == ["NS", "NS"]
    await to_the_end(provider)
    clock.forward(minutes=4)
    [ended, _] = await provider.live()
    clock.forward(minutes=2)
    left = await provider.live()

    assert (ended.match_id, ended.status, ended.scorecards) == ("m", "Finished", None)
    assert [one.match_id for one in left] == ["other"]
    assert await provider.match("nobody") is None


@pytest.mark.parametrize("speed", [None, 60.0])
async def test_a_replay_goes_on_after_the_ball_it_is_told(speed: float | None) -> None:
    clock = Clock()
    recording = recorded(SHORT)
    whole = Playback(recording)
    for place, one in enumerate(recording.balls[:-1], 1):
        provider = replay(recording, now=clock, speed=speed)

        provider.start_at("m", one.ball_id)
        snapshot = await provider.match("m")

        assert snapshot is not None
        assert len(snapshot.balls) == place
        assert snapshot == whole.at(whole.timeline.after(one.ball_id))


async def test_a_replay_told_of_no_ball_or_an_unknown_one() -> None:
    provider = replay(recorded(SHORT))

    async def start(ball_id: int) -> int:
        provider.start_at("m", ball_id)
        snapshot = await provider.match("m")
        assert snapshot is not None
        return len(snapshot.balls)

    assert await start(0) == 0
    assert await start(100_004) == 4
    assert await start(100_050) == 6
    assert await start(999_999) == 13
    with pytest.raises(ProviderError, match="no recording of match nobody"):
        provider.start_at("nobody", 0)


async def test_super_overs_one_after_another() -> None:
    def super_over(team: str, one: Json, target: Json | None = None) -> Json:
        return innings(team, over(0, one), super_over=True, **({"target": target} if target else {}))

    document = match(
        innings(REDS, over(0, ball(6))),
        innings(BLUES, over(0, blues(6))),
        super_over(BLUES, blues(4)),
        super_over(REDS, ball(4)),
        super_over(REDS, ball(1)),
        super_over(BLUES, blues(2)),
        outcome={"result": "tie", "eliminator": BLUES},
    )

    snapshots = await to_the_end(replay(recorded(document)))

    over_and_break = ["Super Over", "Innings Break"]
    start = ["NS", "1st Innings", "Innings Break", "2nd Innings", "Innings Break"]
    assert statuses(snapshots) == [*start, *over_and_break * 3, "Super Over", "Finished"]
    end = snapshots[-1].match
    assert [one.number for one in end.innings] == [1, 2, 3, 4, 5, 6]
    assert [one.super_over for one in end.innings] == [False] * 2 + [True] * 4
    assert end.scorecards is not None
    assert [[line.name for line in card.batting] for card in end.scorecards[4:]] == [["R1", "R2"], ["B1", "B2"]]
    assert end.result is not None
    assert (end.result.kind, end.result.eliminator, end.result.winner_team_id) == (ResultKind.TIE, True, "blues")
    assert end.result.text == "Match tied (Blues won the super over)"
    targets = {len(one.match.innings): one.match.target for one in snapshots if one.match.phase is MatchPhase.LIVE}
    five, two = Target(5, "1"), Target(2, "1")
    assert targets == {1: None, 2: Target(7), 3: None, 4: five, 5: None, 6: two}


async def test_penalty_runs_before_and_after_an_innings() -> None:
    document = match(
        innings(REDS, over(0, ball(1)), penalty_runs={"post": 5}),
        innings(BLUES, over(0, blues(2)), penalty_runs={"pre": 10}),
    )

    snapshots = await to_the_end(replay(recorded(document)))

    runs = [[one.runs for one in snapshot.match.innings] for snapshot in snapshots]
    assert runs == [[], [0], [1], [6], [6, 10], [6, 12], [6, 12]]
    assert [one.extras.penalty for one in snapshots[-1].match.innings] == [5, 10]
    assert [count(document)[number]["runs"] for number in (0, 1)] == [6, 12]


async def test_a_follow_on_a_declaration_and_an_innings_forfeited() -> None:
    document = match(
        innings(REDS, over(0, ball(6)), declared=True),
        innings(BLUES, over(0, blues(1))),
        innings(BLUES, over(0, blues(6), blues(6))),
        innings(REDS, forfeited=True),
        match_type="Test",
        overs=None,
        dates=["2026-06-25", "2026-06-26"],
    )

    snapshots = await to_the_end(replay(recorded(document)))

    end = snapshots[-1].match
    assert [one.match.follow_on for one in snapshots] == [len(one.match.innings) > 2 for one in snapshots]
    assert [(one.declared, one.forfeited) for one in end.innings] == [
        (True, False),
        (False, False),
        (False, False),
        (False, True),
    ]
    assert statuses(snapshots)[-4:] == ["3rd Innings", "Innings Break", "4th Innings", "Finished"]
    assert end.target == Target(8)


async def test_a_match_of_several_days_has_lunch_tea_and_stumps() -> None:
    overs = [over(index, *DOTS) for index in range(60)]
    document = match(innings(REDS, *overs), dates=["2026-06-25", "2026-06-26"], overs=None, outcome={"result": "draw"})

    snapshots = await to_the_end(replay(recorded(document), balls_per_tick=6))

    day = ["1st Innings", "Lunch", "1st Innings", "Tea Break", "1st Innings"]
    assert statuses(snapshots) == ["NS", *day, "Stump Day 1", *day, "Finished"]
    phases = {one.match.status: one.match.phase for one in snapshots}
    assert (phases["Lunch"], phases["Stump Day 1"]) == (MatchPhase.BREAK, MatchPhase.STUMPS)


async def test_a_reserve_day_brings_no_pauses_into_a_match_of_limited_overs() -> None:
    overs = [over(index, *DOTS) for index in range(50)]
    document = match(innings(REDS, *overs), dates=["2026-06-25", "2026-06-26"], overs=50, outcome={"result": "tie"})

    snapshots = await to_the_end(replay(recorded(document), balls_per_tick=6))

    assert statuses(snapshots) == ["NS", "1st Innings", "Finished"]


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
    end = final(match(innings(REDS, over(0, ball())), outcome=outcome))

    assert (end.status, end.note) == (status, text)
    assert (end.result and end.result.kind, end.result and end.result.text) == (kind, text if kind else None)


async def test_a_match_awarded_without_a_ball() -> None:
    document = match(outcome={"winner": BLUES, "method": "Awarded"})

    snapshots = await to_the_end(replay(recorded(document)))

    assert statuses(snapshots) == ["NS", "Finished"]
    assert snapshots[-1].match.note == "Blues were awarded the match"


@pytest.mark.parametrize(
    ("told", "outcome", "target"),
    [
        ({"runs": 7, "overs": 20}, {"result": "tie"}, Target(7, "20")),
        ({"runs": 5, "overs": 9.2}, {"result": "no result"}, Target(5, "9.2", "D/L")),
        ({"runs": 5, "overs": 9}, {"winner": REDS, "by": {"runs": 2}, "method": "VJD"}, Target(5, "9", "VJD")),
        ({"runs": 7, "overs": 20}, {"winner": REDS, "method": "Awarded"}, Target(7, "20")),
        (None, {"result": "tie"}, Target(7)),
    ],
)
def test_a_target_names_the_rule_that_made_it(told: Json | None, outcome: Json, target: Target) -> None:
    chase = innings(BLUES, over(0, blues(1)), **({"target": told} if told else {}))

    assert final(match(innings(REDS, over(0, ball(6))), chase, outcome=outcome)).target == target


def test_a_substitute_is_to_bat_and_who_went_off_is_not() -> None:
    change = {"match": [{"in": "R12", "out": "R11", "team": REDS, "reason": "impact_player"}]}
    document = match(innings(REDS, over(0, ball(), ball(replacements=change))), innings(BLUES))
    playback = Playback(recorded(document))

    before, after = playback.at(2).match.scorecards, playback.at(3).match.scorecards

    assert before is not None
    assert after is not None
    assert [line.name for line in before[0].batting][-1] == "R11"
    assert [line.name for line in after[0].batting][-2:] == ["R10", "R12"]
    assert [one.name for one in playback.recording.lineups if one.substitute] == ["R12"]


def test_who_was_replaced_in_the_field_does_not_bat_later() -> None:
    change = {"match": [{"in": "B12", "out": "B3", "team": BLUES, "reason": "concussion_substitute"}]}
    document = match(innings(REDS, over(0, ball(replacements=change))), innings(BLUES, over(0, blues())))

    cards = final(document).scorecards

    assert cards is not None
    names = [line.name for line in cards[1].batting]
    assert "B3" not in names
    assert names[-2:] == ["B11", "B12"]


def test_facts_of_a_match() -> None:
    women = match(
        innings(REDS, over(0, ball())), gender="female", team_type="international", toss={"uncontested": True}
    )

    recording, other = recorded(SHORT), recorded(women)

    assert recording.match.league_code == "HC"
    assert recording.match.season_id == "harbour-cup-t20-2026"
    assert recording.match.start_time == datetime(2026, 6, 25, 11, tzinfo=UTC)
    assert (recording.match.round, recording.match.format) == ("Match 1", "T20")
    assert recording.match.toss is not None
    assert recording.match.toss.team_id == "reds"
    assert [team.code for team in recording.teams] == ["RED", "BLU"]
    assert (other.match.league_id, other.match.league_code) == ("harbour-cup-t20-women", "HCT20W")
    assert [team.team_id for team in other.teams] == ["reds-women", "blues-women"]
    assert (other.match.toss, other.match.format, other.teams[0].national) == (None, "T20I", True)


def test_what_a_file_may_leave_out_and_what_it_may_have_more() -> None:
    document = match(innings(REDS, over(0, ball(out="R1", kind="caught"), ball(batter="R3"))), innings(BLUES))
    for name in ("event", "season", "players", "registry", "venue", "city", "toss", "overs", "outcome", "gender"):
        del document["info"][name]
    del document["meta"]
    document["info"]["weather"] = {"rain": True}
    delivery = document["innings"][0]["overs"][0]["deliveries"][0]
    delivery |= {"review": {"by": REDS}, "speed": 140.5}
    delivery["wickets"][0]["fielders"] = [{"substitute": True}]

    recording = recorded(document)

    assert (recording.match.league_id, recording.match.league_code) == ("t20-matches-t20", "T20M")
    assert recording.balls[0].batter_id == "name-r1"
    assert recording.balls[0].wickets[0].fielders == ("sub",)
    assert (recording.match.venue, recording.match.season_id, recording.result) == (None, None, None)


def change(path: str, value: Any) -> Callable[[Json], None]:
    def apply(document: Json) -> None:
        *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
        place: Any = document
        for part in way:
            place = place[part]
        place[last] = value

    return apply


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (change("innings.0.overs.1.over", "two"), r"Expected `int`, got `str` - at `\$.innings\[0\].overs\[1\].over`"),
        (change("innings.0.overs.1.over", 0), "innings 1: over 0 comes after over 0"),
        (change("innings.0.overs.0.deliveries.2.runs.total", 3), "innings 1, over 0, ball 3: its runs do not add up"),
        (change("innings.0.overs.0.deliveries.2.runs.total", -1), "Expected `int` >= 0"),
        (change("innings.0.team", "Greens"), "'Greens' is not one of the two teams"),
        (change("info.outcome.winner", "Greens"), "'Greens' is not one of the two teams"),
        (change("info.toss.winner", "Greens"), "'Greens' is not one of the two teams"),
        (change("info.teams", ["Reds"]), "Expected `array` of length 2"),
        (change("info.dates", []), "Expected `array` of length >= 1"),
        (change("info.dates", ["yesterday"]), "date"),
        (change("info.balls_per_over", 0), "Expected `int` >= 1"),
        (change("innings.0.miscounted_overs", {"1": {"balls": "some"}}), "miscounted over 1: 'some' is not a number"),
        (change("innings.0.overs.0.deliveries", [ball()] * 100), "Expected `array` of length <= 99"),
        (change("info", None), "Expected `object`, got `null`"),
    ],
)
def test_a_damaged_file_is_named_with_what_is_wrong(damage: Callable[[Json], None], told: str, tmp_path: Path) -> None:
    document = json.loads(json.dumps(SHORT))
    damage(document)
    path = tmp_path / "broken.json"
    path.write_text(json.dumps(document))

    with pytest.raises(Malformed, match=told) as caught:
        load(path)
    assert str(caught.value).startswith("broken.json: ")


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"\xff\xfe", b'"', b"[" * 100_000, b'{"innings": [' + b'{"a":' * 9999]
)
def test_a_file_that_is_no_match_at_all(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "broken.json"
    path.write_bytes(text)

    with pytest.raises(Malformed, match=r"^broken\.json: not a match in Cricsheet's format: "):
        load(path)


def test_a_file_that_is_too_large_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "match.json"
    path.write_text(json.dumps(SHORT))
    assert load(path).match_id == "match"
    monkeypatch.setattr(cricsheet, "MAX_FILE_BYTES", 100)

    with pytest.raises(Malformed, match=r"match\.json: [\d,]+ bytes are more than the limit of 100"):
        load(path)
    with pytest.raises(ProviderError, match=r"none\.json: cannot be read: No such file"):
        load(tmp_path / "none.json")


async def test_fixtures_leagues_teams_and_seasons() -> None:
    drawn = match(innings(REDS, over(0, ball())), outcome={"result": "draw"})
    tied = match(innings(REDS, over(0, ball())), outcome={"result": "tie", "eliminator": BLUES})
    provider = replay(recorded(SHORT), recorded(drawn, "drawn"), recorded(tied, "tied"))
    noon = datetime(2026, 6, 25, 12, tzinfo=UTC)
    for match_id in ("m", "drawn"):
        await to_the_end(provider, match_id)

    async def fixtures(league: str, start: datetime, end: datetime) -> list[str]:
        return [one.match_id async for one in provider.fixtures([league], start, end)]

    assert await fixtures("harbour-cup-t20", noon - timedelta(hours=2), noon) == ["m", "drawn", "tied"]
    assert await fixtures("harbour-cup-t20", noon, noon + timedelta(days=1)) == []
    assert await fixtures("other", noon - timedelta(hours=2), noon) == []
    assert [one.code for one in await provider.leagues()] == ["HC"]
    assert [one.team_id for one in await provider.teams()] == ["reds", "blues"]
    reds, second = await provider.team_seasons("harbour-cup-t20-2026")
    assert (reds.season_name, reds.played, reds.won, reds.lost, reds.drawn, reds.no_result) == ("2026", 2, 1, 0, 1, 0)
    assert (second.team_id, second.played, second.won, second.lost) == ("blues", 2, 0, 1)
    assert await provider.team_seasons("unknown") == []


def test_a_replay_refuses_what_cannot_be_played() -> None:
    with pytest.raises(ValueError, match="Two recordings have the id m"):
        replay(recorded(SHORT), recorded(SHORT))
    with pytest.raises(ValueError, match="must go forward"):
        replay(speed=0)
    provider: Provider = replay()
    assert provider.name == "replay"


def test_the_demo_match_is_the_same_for_the_same_chance() -> None:
    one, two, other = (demo_match(random.Random(seed), 3, DAY) for seed in (7, 7, 8))

    assert to_json(one) == to_json(two)
    assert to_json(one) != to_json(other)
    assert one["info"]["dates"] == ["2026-06-25"]


def test_demo_matches_are_believable() -> None:
    documents = [demo_match(random.Random(seed), seed, DAY) for seed in range(100)]
    totals = [one["runs"] for document in documents for one in count(document)]
    wickets = [one["wickets"] for document in documents for one in count(document)]
    chased = [document for document in documents if "wickets" in document["info"]["outcome"].get("by", {})]

    assert 130 <= sum(totals) / len(totals) <= 170
    assert min(totals) > 40
    assert max(totals) < 260
    assert 5 <= sum(wickets) / len(wickets) <= 8
    assert 30 <= len(chased) <= 70
    assert {team for document in documents for team in document["info"]["teams"]} == TEAMS.keys()


@pytest.mark.parametrize("seed", range(12))
async def test_a_demo_match_is_cricket(seed: int) -> None:
    document = demo_match(random.Random(seed), seed, DAY)
    recording = recorded(document)

    *_, last = await to_the_end(replay(recording, balls_per_tick=5))

    first, second = count(document)
    assert counted(last, names_of(recording, document)) == without_hits([first, second])
    assert all(float(line["overs"]) <= 4 for one in (first, second) for line in one["bowling"].values())
    assert all(len(eleven) == len(set(eleven)) == 11 for eleven in document["info"]["players"].values())
    for one in (first, second):
        assert one["wickets"] == 10 or one["overs"] == "20" or one["runs"] > first["runs"]
    best = first["team"] if first["runs"] > second["runs"] else second["team"]
    assert winner(document) == (None if first["runs"] == second["runs"] else best)
    for played in document["innings"]:
        bowlers = [one["deliveries"][0]["bowler"] for one in played["overs"]]
        assert all(one != following for one, following in pairwise(bowlers))
