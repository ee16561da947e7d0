"""Random corrections lose no wicket and repeat no event."""

from collections.abc import Iterable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from datastore.matches.cricket import (
    Ball,
    CricketEvent,
    CricketEventKind,
    MatchSnapshot,
)
from datastore.matches.live_state import initial_state
from pipelines.matches.live.diff import MatchWatch
from tests.support.score_corrections import FIXTURE, ball, out, told, totals

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


class Script:
    """Edits a list of balls as chance has it. Each batter is out once at most, so a wicket has a name."""

    def __init__(self, chance: Any) -> None:
        self._chance = chance
        self.balls: list[Ball] = []
        self._place = 0
        self._batter = 0

    def edit(self, edit: str) -> None:
        if edit in ("bowl", "wicket", "four"):
            self._place += 3
            self.balls.append(self._some(self._place, edit))
        elif edit == "amend" and self.balls:
            at = self._index()
            self.balls[at] = self._some(self.balls[at].ball_id % 100_000 // 10, self._pick("bowl", "wicket", "four"))
        elif edit == "take back" and self.balls:
            del self.balls[self._index()]
        elif edit == "renumber" and self.balls:
            first = self._index()
            self.balls[first:] = [replace(one, ball_id=one.ball_id + 1) for one in self.balls[first:]]
        elif edit == "insert" and self.balls:
            place = self.balls[self._index()].ball_id % 100_000 // 10 - 1
            if all(one.ball_id != ball(place).ball_id for one in self.balls):
                self.balls.append(self._some(place, self._pick("wicket", "four")))
                self.balls.sort(key=lambda one: one.ball_id)

    def _some(self, place: int, kind: str) -> Ball:
        if kind == "wicket":
            self._batter += 1
            return out(place, f"W{self._batter}")
        return ball(place, 4 if kind == "four" else 1)

    def _index(self) -> int:
        return int(self._chance.draw(st.integers(0, len(self.balls) - 1)))

    def _pick(self, *kinds: str) -> str:
        return str(self._chance.draw(st.sampled_from(kinds)))


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from(EDITS), max_size=40), st.data())
def test_random_corrections_lose_no_wicket_and_repeat_no_event(edits: Iterable[str], chance: Any) -> None:
    script = Script(chance)
    active = replace(initial_state(FIXTURE), version=1)
    watch = MatchWatch("m")
    said: list[CricketEvent] = []
    ever_out: set[str] = set()

    def tick(snapshot: MatchSnapshot) -> None:
        nonlocal active
        found = watch.compare(active, snapshot)
        said.extend(found.events)
        assert found.last_ball_id >= active.previous_ball_id
        version = active.version + (not found.is_empty)
        active = replace(
            active,
            live=found.live,
            version=version,
            previous_ball_id=found.last_ball_id,
            announced=found.announced,
        )

    for edit in edits:
        script.edit(edit)
        snapshot = told(*script.balls, begun=1)
        if edit == "restart":
            watch = MatchWatch("m", watch.previous)
        elif edit == "no cache" and watch.previous is not None:
            watch = MatchWatch("m", replace(watch.previous, balls=watch.previous.balls[-5:]))
        elif edit == "no balls":
            tick(replace(snapshot, balls=()))
        elif edit == "lag":
            tick(totals(snapshot, runs=0))
        elif edit == "reset":
            tick(told(status="NS"))
            tick(told(status="NS"))
        tick(snapshot)
        tick(snapshot)
        ever_out |= {wicket.player_id for one in script.balls for wicket in one.wickets}

    tick(told(*script.balls, begun=1))
    ids = [event.event_id for event in said]
    assert len(ids) == len(set(ids))
    wickets = [event.player_id for event in said if event.kind is CricketEventKind.WICKET]
    assert set(wickets) == ever_out
    assert len(wickets) == len(ever_out)
    assert active.live.innings == told(*script.balls, begun=1).match.innings
    assert all(event.ball is None or event.ball.batter_runs >= 0 for event in said)
