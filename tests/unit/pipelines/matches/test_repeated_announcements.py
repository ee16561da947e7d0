"""Announcements of a provider that changes its mind: breaks, rain, targets, results."""

import pytest

from datastore.matches.active_matches import ActiveMatches
from datastore.matches.cricket import MatchPhase, MatchSnapshot, Result, ResultKind, Target
from datastore.matches.cricket_events import CricketEventKind
from datastore.session.store import Store
from tests.support.score_corrections import OVER, PolledMatch, ball_at, live, out, snapshot_with
from tests.support.served import Served, call_name

__all__ = ["live"]


async def test_a_flapping_break_is_announced_once(live: PolledMatch) -> None:
    first = snapshot_with(*OVER, status="2nd Innings", begun=2)
    await live.tick(snapshot_with(*OVER))

    assert await live.texts(snapshot_with(*OVER, status="Innings Break")) == ["Innings break: reds 11/1"]
    assert await live.texts(first) == []
    assert await live.texts(snapshot_with(*OVER, status="Innings Break", begun=2)) == []
    assert await live.texts(snapshot_with(*OVER, ball_at(1, innings=2), status="2nd Innings")) == [
        "blues bat: innings 2 begins"
    ]


async def test_flapping_rain_is_announced_once_in_five_minutes(live: PolledMatch, served: Served) -> None:
    stores: list[Store] = []
    open_store = served.store

    def recorded() -> Store:
        stores.append(open_store())
        return stores[-1]

    live.instance.poller._open_store = recorded
    playing, raining = snapshot_with(*OVER), snapshot_with(*OVER, status="Int.")
    await live.tick(playing)

    stores.clear()
    assert await live.texts(raining) == ["Play is interrupted (Int.)"]
    calls = [call_name(call) for store in stores for call in store.meter.calls]
    assert calls[-4:] == [
        "UpdateItem cricket-fixtures",
        "UpdateItem active-matches",
        "PutItem cricket-fixture-cache",
        "DeleteItem cricket-locks",
    ]
    assert await live.texts(playing) == ["Play resumes"]
    for _ in range(3):
        assert await live.texts(raining) == []
        assert await live.texts(playing) == []
    assert (await live.state()).live.phase is MatchPhase.LIVE

    live.restart()
    served.clock.forward(minutes=4, seconds=59)
    assert await live.texts(raining) == []
    served.clock.forward(seconds=2)
    assert await live.texts(playing) == ["Play resumes"]
    assert await live.texts(raining) == ["Play is interrupted (Int.)"]


async def test_a_target_that_is_revised(live: PolledMatch) -> None:
    def chase(runs: int | None, overs: str = "20", method: str | None = None) -> MatchSnapshot:
        target = Target(runs, overs, method) if runs else None
        return snapshot_with(*OVER, status="2nd Innings", begun=2, target=target)

    await live.tick(snapshot_with(*OVER, status="Innings Break"))

    assert await live.texts(chase(12)) == ["Target 12 from 20 overs"]
    assert await live.texts(chase(None)) == []
    assert await live.texts(chase(12)) == []
    assert await live.texts(chase(10, "15", "D/L")) == ["Target revised to 10 from 15 overs (D/L)"]
    assert await live.texts(chase(8, "9", "D/L")) == ["Target revised to 8 from 9 overs (D/L)"]
    assert await live.texts(chase(10, "15", "D/L")) == ["Target revised to 10 from 15 overs (D/L)"]


def won(text: str, winner: str) -> Result:
    return Result(ResultKind.WIN, text, winner)


async def test_a_result_that_changes(live: PolledMatch) -> None:
    reds, blues = won("Reds won", "reds"), won("Blues won", "blues")
    await live.tick(snapshot_with(*OVER))

    assert await live.texts(snapshot_with(*OVER, status="Finished", result=reds)) == ["Reds won"]
    assert await live.texts(snapshot_with(*OVER, status="Finished")) == []
    assert await live.texts(snapshot_with(*OVER, status="Finished", result=reds)) == []
    assert await live.texts(snapshot_with(*OVER, status="Finished", result=blues)) == ["Blues won"]
    assert await live.texts(snapshot_with(*OVER, status="Finished", result=reds)) == ["Reds won"]


async def test_an_abandoned_match_that_goes_on_later(live: PolledMatch) -> None:
    await live.tick(snapshot_with(*OVER))

    assert await live.texts(snapshot_with(*OVER, status="Aban.")) == ["Match abandoned"]
    assert await live.texts(snapshot_with(*OVER)) == ["Correction: the match goes on (Match abandoned)"]
    assert await live.kinds(snapshot_with(*OVER, out(7, "R3"))) == [CricketEventKind.WICKET]
    assert await live.texts(snapshot_with(*OVER, out(7, "R3"), status="Aban.")) == ["Match abandoned"]


async def test_an_unknown_status_changes_only_the_status(live: PolledMatch) -> None:
    await live.tick(snapshot_with(*OVER))

    assert await live.tick(snapshot_with(*OVER, status="Bad light, umpires confer")) == []
    assert (await live.state()).live.phase is MatchPhase.UNKNOWN
    assert await live.kinds(snapshot_with(*OVER, out(7, "R3"), status="Bad light, umpires confer")) == [
        CricketEventKind.WICKET
    ]


@pytest.mark.parametrize("is_forgotten", [False, True])
async def test_a_match_that_is_listed_again_repeats_no_event(
    live: PolledMatch, served: Served, is_forgotten: bool
) -> None:
    """If its state was deleted, the announced events are derived from its fixture."""
    balls = (*OVER, ball_at(1, 4, innings=2))
    end = snapshot_with(*balls, status="Finished", target=Target(12, "20"), result=won("Reds won", "reds"))
    await live.tick(snapshot_with(*OVER, status="Innings Break", target=Target(12, "20")))
    assert CricketEventKind.RESULT in await live.kinds(end)
    await live.instance.orchestrator.finish(await live.state())
    if is_forgotten:
        await ActiveMatches(served.store(), served.clock()).delete("m")
    await live.instance.orchestrator.start(end.match)
    await live.instance.orchestrator._stop_poll("m")
    live.version = 0

    assert await live.tick(end) == []
    assert await live.kinds(snapshot_with(*balls, ball_at(2, 6, innings=2), status="2nd Innings")) == [
        CricketEventKind.SIX,
        CricketEventKind.CORRECTION,
    ]
