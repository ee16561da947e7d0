"""Ticks that are interrupted before or after a commit."""

from typing import Any

import pytest

from datastore.matches.active_matches import ActiveMatches
from datastore.matches.cricket import (
    Target,
)
from datastore.matches.live_state import initial_state
from datastore.session.store import Store
from pipelines.matches.live.diff import MatchWatch
from tests.support.cricket_play import list_match
from tests.support.score_corrections import FIXTURE, Live, ball, out, told
from tests.support.served import Served


@pytest.fixture
async def live(served: Served) -> Live:
    await list_match(served, FIXTURE)
    live = Live(served)
    await live.tick(told(status="NS"))
    return live


class CutOff(Exception):
    """A process that dies."""


async def test_a_tick_interrupted_before_its_commit_is_repeated(live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    """Amended balls too: also those that the state alone does not know any more."""
    balls = [ball(1), ball(2), *[ball(place) for place in range(3, 50)]]
    await live.tick(told(*balls))
    changed = told(balls[0], out(2, kind="caught"), *balls[2:], ball(50, 4))

    async def dies(*_: object) -> bool:
        raise CutOff

    with monkeypatch.context() as patch:
        patch.setattr(ActiveMatches, "commit", dies)
        with pytest.raises(CutOff):
            await live.tick(changed)

    assert await live.texts(changed) == [
        "Correction at 0.2: no run, now R1 caught",
        "WICKET! R1 caught b B11",
        "FOUR! R1 off B11",
    ]


async def test_events_of_several_versions_are_complete_after_interruptions_between_them(live: Live) -> None:
    sixes = [ball(place, 6) for place in range(1, 101)]
    end = told(*sixes, ball(1, innings=2), status="2nd Innings", target=Target(601, "20"))
    whole = MatchWatch("m").compare(initial_state(FIXTURE), end).events
    changed = live.instance.poller._on_change

    async def dies(store: Store, change: Any) -> None:
        await changed(store, change)
        raise CutOff

    live.instance.poller._on_change = dies
    deaths = 0
    while (await live.state()).previous_ball_id < end.balls[-1].ball_id:
        with pytest.raises(CutOff):
            await live.tick(end)
        deaths += 1
    live.instance.poller._on_change = changed
    await live.tick(end)

    events = [event for change in live.instance.changes for event in change.active.events]
    assert deaths > 3
    assert sorted(event.event_id for event in events) == sorted(event.event_id for event in whole)
