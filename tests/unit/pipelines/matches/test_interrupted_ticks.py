"""Ticks that are interrupted before or after a commit."""

from typing import Any

import pytest

from datastore.matches.active_matches import ActiveMatches
from datastore.matches.cricket import Target
from datastore.matches.live_state import initial_state
from datastore.session.store import Store
from pipelines.matches.live.diff import MatchWatch
from tests.support.score_corrections import FIXTURE, PolledMatch, ball_at, live, out, snapshot_with

__all__ = ["live"]


class ProcessDied(Exception):
    """The process ends."""


async def test_a_tick_interrupted_before_its_commit_is_repeated(
    live: PolledMatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next tick also finds amended balls that are older than the balls in the state."""
    balls = [ball_at(1), ball_at(2), *[ball_at(position) for position in range(3, 50)]]
    await live.tick(snapshot_with(*balls))
    changed = snapshot_with(balls[0], out(2, kind="caught"), *balls[2:], ball_at(50, 4))

    async def die(*_: object) -> bool:
        raise ProcessDied

    with monkeypatch.context() as patch:
        patch.setattr(ActiveMatches, "commit", die)
        with pytest.raises(ProcessDied):
            await live.tick(changed)

    assert await live.texts(changed) == [
        "Correction at 0.2: no run, now R1 caught",
        "WICKET! R1 caught b B11",
        "FOUR! R1 off B11",
    ]


async def test_events_of_several_versions_are_complete_after_interruptions_between_them(live: PolledMatch) -> None:
    sixes = [ball_at(position, 6) for position in range(1, 101)]
    end = snapshot_with(*sixes, ball_at(1, innings=2), status="2nd Innings", target=Target(601, "20"))
    whole = MatchWatch("m").compare(initial_state(FIXTURE), end).events
    changed = live.instance.poller._on_change

    async def die(store: Store, change: Any) -> None:
        await changed(store, change)
        raise ProcessDied

    live.instance.poller._on_change = die
    crashes = 0
    while (await live.state()).previous_ball_id < end.balls[-1].ball_id:
        with pytest.raises(ProcessDied):
            await live.tick(end)
        crashes += 1
    live.instance.poller._on_change = changed
    await live.tick(end)

    events = [event for change in live.instance.changes for event in change.active.events]
    assert crashes > 3
    assert sorted(event.event_id for event in events) == sorted(event.event_id for event in whole)
