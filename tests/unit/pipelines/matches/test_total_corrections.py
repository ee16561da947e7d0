"""Corrections of totals and dismissals, and responses that are stale or incomplete."""

import pytest
from msgspec.structs import replace

from datastore.keyspace.matches import fixture_cache
from datastore.matches.cricket_events import CricketEventKind
from datastore.matches.fixtures import Fixtures
from tests.support.score_corrections import (
    OVER,
    PolledMatch,
    amended,
    ball_at,
    live,
    out,
    snapshot_with,
    with_total,
)
from tests.support.served import NOON, Served

__all__ = ["live"]


async def test_withdrawn_runs_without_balls(live: PolledMatch) -> None:
    snapshot = snapshot_with(*OVER)
    await live.tick(snapshot)
    fewer = with_total(snapshot, runs=9)
    assert await live.tick(fewer) == []
    assert await live.tick(snapshot) == []
    assert await live.tick(fewer) == []

    [event] = await live.tick(fewer)

    assert (event.kind, event.text) == (CricketEventKind.CORRECTION, "Correction: 11/1 (1) is now 9/1 (1)")
    assert (await live.state()).live.innings[0].runs == 9


async def test_a_batter_is_recalled_without_balls(live: PolledMatch) -> None:
    with_out, without = snapshot_with(*OVER), snapshot_with(*amended(4, ball_at(4)))
    await live.tick(replace(with_out, balls=()))
    await live.tick(replace(without, balls=()))

    assert await live.texts(replace(without, balls=())) == [
        "Correction: 11/1 (1) is now 11/0 (1)",
        "Correction: R1, b B11, is now retired",
    ]


async def test_a_withdrawn_innings(live: PolledMatch) -> None:
    second = [ball_at(1, 4, innings=2), ball_at(2, innings=2)]
    await live.tick(snapshot_with(*OVER, *second, status="2nd Innings"))
    await live.tick(snapshot_with(*OVER))

    assert await live.texts(snapshot_with(*OVER)) == ["Correction: innings 2 was taken back"]
    assert [score.number for score in (await live.state()).live.innings] == [1]
    assert await live.texts(snapshot_with(*OVER, *second, status="2nd Innings")) == []
    more = snapshot_with(*OVER, *second, ball_at(3, 4, innings=2), status="2nd Innings")
    assert await live.kinds(more) == [CricketEventKind.FOUR]


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_response_without_balls_withdraws_nothing(live: PolledMatch, restarts: bool) -> None:
    await live.tick(snapshot_with(*OVER))
    balls = (await live.state()).live.recent_balls
    if restarts:
        live.restart()

    assert await live.tick(replace(snapshot_with(*OVER), balls=())) == []
    assert (await live.state()).live.recent_balls == balls
    assert await live.kinds(snapshot_with(*OVER, out(7, "R3"))) == [CricketEventKind.WICKET]


async def test_a_stale_response_right_after_a_takeover_is_ignored(live: PolledMatch, served: Served) -> None:
    await live.tick(snapshot_with(*OVER))
    before = await live.state()
    live.restart()

    assert await live.tick(snapshot_with(*OVER[:4])) == []
    assert (await live.state()).live == before.live
    fixture = await Fixtures(served.store(), NOON).latest("m")
    assert fixture is not None
    assert (
        fixture.innings == snapshot_with(*OVER).match.innings
    )  # the stale response is not written to the fixture either
    assert await live.tick(snapshot_with(*OVER)) == []

    live.restart()
    assert await live.tick(snapshot_with(*OVER[:5])) == []
    assert await live.texts(snapshot_with(*OVER[:5])) == ["Correction: the ball at 0.6 (1 off the bat) was taken back"]


async def test_without_cache_and_balls_the_first_complete_response_has_no_events(
    live: PolledMatch, served: Served
) -> None:
    """After a restart only the last 30 balls are known. The events before them were reported."""
    balls = [ball_at(1, 4), out(2), *[ball_at(position, batter="R3") for position in range(3, 50)]]
    await live.tick(snapshot_with(*balls))
    await forget_cache(served)
    live.restart()

    assert await live.tick(replace(snapshot_with(*balls), balls=())) == []
    assert await live.tick(snapshot_with(*balls)) == []
    assert await live.kinds(snapshot_with(*balls, ball_at(50, 6))) == [CricketEventKind.SIX]


async def test_without_cache_a_ball_among_the_last_is_corrected(live: PolledMatch, served: Served) -> None:
    balls = [ball_at(1, 4), *[ball_at(position) for position in range(2, 50)]]
    await live.tick(snapshot_with(*balls))
    await forget_cache(served)
    live.restart()

    changed = [balls[0], *balls[1:44], out(45), *balls[45:]]
    assert await live.texts(snapshot_with(*changed)) == ["Correction at 7.3: no run, now R1 bowled", "WICKET! R1 b B11"]


async def test_without_cache_a_dismissal_long_ago_is_corrected_by_the_scorecard(
    live: PolledMatch, served: Served
) -> None:
    rest = [ball_at(position, batter="R3") for position in range(2, 50)]
    await live.tick(snapshot_with(out(1, kind="caught"), *rest))
    await forget_cache(served)
    live.restart()

    last = replace(rest[-1], batter_runs=1)
    assert await live.texts(snapshot_with(out(1, kind="caught", fielders=("B4",)), *rest[:-1], last)) == [
        "Correction at 8.1: no run, now 1 off the bat",
        "Correction: R1, caught b B11, is now c B4 b B11",
    ]


async def test_totals_that_lag_behind_their_balls_or_lead_them(live: PolledMatch) -> None:
    await live.tick(snapshot_with(*OVER[:3]))
    lagging = replace(snapshot_with(*OVER[:3]), balls=OVER[:4])
    leading = with_total(snapshot_with(*OVER[:4]), runs=10)

    assert await live.kinds(lagging) == [CricketEventKind.WICKET]
    assert await live.kinds(snapshot_with(*OVER[:4])) == []
    assert await live.kinds(leading) == []
    assert await live.kinds(snapshot_with(*OVER)) == [CricketEventKind.SIX]
    assert (await live.state()).live.innings[0].runs == 11


async def forget_cache(served: Served) -> None:
    await served.store().delete(fixture_cache.CACHE, fixture_cache.cached("m"))
