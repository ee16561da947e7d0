"""Random corrections lose no wicket and repeat no event."""

from collections.abc import Iterable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from datastore.matches.cricket import Ball, MatchSnapshot
from datastore.matches.cricket_events import CricketEvent, CricketEventKind
from datastore.matches.live_state import initial_state
from pipelines.matches.live.diff import MatchWatch
from tests.support.score_corrections import FIXTURE, ball_at, out, snapshot_with, with_total

EDITS = (
    "bowl",
    "wicket",
    "four",
    "amend",
    "take back",
    "insert",
    "no balls",
    "restart",
    "no cache",
    "lag",
    "reset",
    "renumber",
)


class RandomScorer:
    """Random edits of a list of balls. Each batter is out at most once, so a name identifies a wicket."""

    def __init__(self, rng: Any) -> None:
        self._rng = rng
        self.balls: list[Ball] = []
        self._position = 0
        self._batter = 0

    def edit(self, edit: str) -> None:
        if edit in ("bowl", "wicket", "four"):
            self._position += 3
            self.balls.append(self._ball(self._position, edit))
        elif edit == "amend" and self.balls:
            at = self._index()
            self.balls[at] = self._ball(self.balls[at].ball_id % 100_000 // 10, self._pick("bowl", "wicket", "four"))
        elif edit == "take back" and self.balls:
            del self.balls[self._index()]
        elif edit == "renumber" and self.balls:
            first = self._index()
            self.balls[first:] = [replace(delivery, ball_id=delivery.ball_id + 1) for delivery in self.balls[first:]]
        elif edit == "insert" and self.balls:
            position = self.balls[self._index()].ball_id % 100_000 // 10 - 1
            if all(delivery.ball_id != ball_at(position).ball_id for delivery in self.balls):
                self.balls.append(self._ball(position, self._pick("wicket", "four")))
                self.balls.sort(key=lambda delivery: delivery.ball_id)

    def _ball(self, position: int, kind: str) -> Ball:
        if kind == "wicket":
            self._batter += 1
            return out(position, f"W{self._batter}")
        return ball_at(position, 4 if kind == "four" else 1)

    def _index(self) -> int:
        return int(self._rng.draw(st.integers(0, len(self.balls) - 1)))

    def _pick(self, *kinds: str) -> str:
        return str(self._rng.draw(st.sampled_from(kinds)))


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from(EDITS), max_size=40), st.data())
def test_random_corrections_lose_no_wicket_and_repeat_no_event(edits: Iterable[str], rng: Any) -> None:
    scorer = RandomScorer(rng)
    active = replace(initial_state(FIXTURE), version=1)
    watch = MatchWatch("m")
    reported: list[CricketEvent] = []
    ever_out: set[str] = set()

    def tick(snapshot: MatchSnapshot) -> None:
        nonlocal active
        diff = watch.compare(active, snapshot)
        reported.extend(diff.events)
        assert diff.last_ball_id >= active.previous_ball_id
        version = active.version + (not diff.is_empty)
        active = replace(
            active,
            live=diff.live,
            version=version,
            previous_ball_id=diff.last_ball_id,
            announced=diff.announced,
        )

    for edit in edits:
        scorer.edit(edit)
        snapshot = snapshot_with(*scorer.balls, begun=1)
        if edit == "restart":
            watch = MatchWatch("m", watch.previous)
        elif edit == "no cache" and watch.previous is not None:
            watch = MatchWatch("m", replace(watch.previous, balls=watch.previous.balls[-5:]))
        elif edit == "no balls":
            tick(replace(snapshot, balls=()))
        elif edit == "lag":
            tick(with_total(snapshot, runs=0))
        elif edit == "reset":
            tick(snapshot_with(status="NS"))
            tick(snapshot_with(status="NS"))
        tick(snapshot)
        tick(snapshot)
        ever_out |= {wicket.player_id for delivery in scorer.balls for wicket in delivery.wickets}

    tick(snapshot_with(*scorer.balls, begun=1))
    ids = [event.event_id for event in reported]
    assert len(ids) == len(set(ids))
    wickets = [event.player_id for event in reported if event.kind is CricketEventKind.WICKET]
    assert set(wickets) == ever_out
    assert len(wickets) == len(ever_out)
    assert active.live.innings == snapshot_with(*scorer.balls, begun=1).match.innings
    assert all(event.ball is None or event.ball.batter_runs >= 0 for event in reported)
