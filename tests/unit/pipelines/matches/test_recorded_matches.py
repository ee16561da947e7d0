"""The replay of real matches agrees with a count of their files."""

import json
from pathlib import Path

import pytest

from datastore.matches.cricket import MatchPhase, MatchSnapshot
from pipelines.matches.providers.cricsheet.reader import load
from pipelines.matches.providers.playback import Playback
from pipelines.matches.providers.recordings import Recording
from tests.support.cricket_count import Json, count_match, winner
from tests.support.cricket_samples import (
    FILES,
    RECORDINGS,
    real_data,
    real_files,
)
from tests.support.replays import names_of, replay_recordings, to_the_end
from tests.support.scorebook import counts_of_snapshot, without_hits


def read_recording(path: Path) -> Json:
    document: Json = json.loads(path.read_bytes())
    return document


@pytest.mark.parametrize("path", real_files())
async def test_a_real_match_ends_as_counted_from_its_file(path: Path) -> None:
    document = read_recording(path)
    recording = load(path)

    *_, last = await to_the_end(replay_recordings(recording, balls_per_tick=7), path.stem)

    assert counts_of_snapshot(last, names_of(recording, document)) == without_hits(count_match(document))
    assert last.balls == recording.balls
    assert last.match.phase is (MatchPhase.ABANDONED if "No result" in str(last.match.note) else MatchPhase.FINISHED)
    result, outcome = last.match.result, document["info"]["outcome"]
    assert result is not None
    expected = names_of(recording, document).get(result.winner_team_id or "")
    assert expected == winner(document)
    by = outcome.get("by", {})
    assert (result.by_runs, result.by_wickets) == (by.get("runs"), by.get("wickets"))
    assert (result.by_innings, result.method) == ("innings" in by, outcome.get("method"))
    assert result.eliminator == ("eliminator" in outcome)


@pytest.mark.proof
@pytest.mark.parametrize("path", real_files())
async def test_a_real_match_is_shown_ball_by_ball_without_a_gap(path: Path) -> None:
    recording = load(path)
    ids = [delivery.ball_id for delivery in recording.balls]

    snapshots = await to_the_end(replay_recordings(recording), path.stem)

    assert ids == sorted(set(ids))
    assert [len(snapshot.balls) for snapshot in snapshots] == sorted(len(snapshot.balls) for snapshot in snapshots)
    assert {len(snapshot.balls) for snapshot in snapshots} == set(range(len(ids) + 1))
    assert snapshots[0].match.status == "NS"
    for number, snapshot in enumerate(snapshots):
        runs = sum(score.runs for score in snapshot.match.innings)
        assert runs == sum(delivery.runs for delivery in snapshot.balls) + penalties(recording, snapshot)
        if number % 97 == 0:
            assert Playback(recording).at(number) == snapshot


def penalties(recording: Recording, snapshot: MatchSnapshot) -> int:
    """Return the runs awarded before the innings that have begun. The real files have none after an innings."""
    return sum(score.penalty_before for score in recording.innings[: len(snapshot.match.innings)])


@real_data
def test_the_texts_of_real_results() -> None:
    texts = {path.stem: load(path).result for path in FILES}

    expected = {stem: texts[stem].text for stem in texts if texts[stem]}  # type: ignore[union-attr]
    assert expected["1389401"] == "India won by 434 runs"
    assert expected["1187017"] == "India won by an innings and 46 runs"
    assert expected["1152848"] == "England won by 1 wicket"
    assert expected["1345425"] == "Match tied (India won the super over)"
    assert expected["1144530"] == "Match tied (super over tied too, England won on countback)"
    assert expected["1322277"] == "Match tied (D/L)"
    assert expected["1198242"] == "Match drawn"
    assert expected["1298152"] == "No result"


@real_data
def test_two_revisions_of_a_match_have_the_same_balls() -> None:
    first = load(RECORDINGS / "1270836_rev1.json", match_id="1270836")
    second = load(RECORDINGS / "1270836.json")

    assert (first.revision, second.revision) == (1, 2)
    assert [delivery.ball_id for delivery in first.balls] == [delivery.ball_id for delivery in second.balls]
    assert first.balls != second.balls
    assert first.match == second.match


@real_data
async def test_a_revision_replayed_over_a_finished_match_shows_its_end_at_once() -> None:
    first = load(RECORDINGS / "1270836_rev1.json", match_id="1270836")
    second = load(RECORDINGS / "1270836.json")
    [*_, before] = await to_the_end(replay_recordings(first), "1270836")
    again = replay_recordings(second)

    again.start_at("1270836", before.balls[-1].ball_id)
    after = await again.match("1270836")

    assert after is not None
    assert after.match.status == "Finished"
    assert after.match.innings == before.match.innings
    assert after.match.scorecards != before.match.scorecards
    assert again.is_over("1270836")


@real_data
async def test_a_batter_who_leaves_without_a_wicket_is_retired() -> None:
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
def test_a_replacement_is_a_substitute() -> None:
    recording = load(RECORDINGS / "1173070.json")

    assert [player.name for player in recording.lineups if player.substitute] == ["RM Ghosh"]
    assert len(recording.lineups) == 23
