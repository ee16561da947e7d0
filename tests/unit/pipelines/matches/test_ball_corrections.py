"""Corrections of balls that are amended, removed, inserted or renumbered."""

import pytest
from msgspec.structs import replace

from datastore.matches.cricket import Ball, Extras, Wicket
from datastore.matches.cricket_events import CricketEventKind
from tests.support.score_corrections import OVER, PolledMatch, amended, ball_at, live, out, snapshot_with

__all__ = ["live"]


@pytest.mark.parametrize(
    ("new", "text"),
    [
        (ball_at(2, 1), "Correction at 0.2: 4 off the bat, now 1 off the bat"),
        (ball_at(2, extras=Extras(byes=4)), "Correction at 0.2: 4 off the bat, now 4 byes"),
        (ball_at(2, extras=Extras(no_balls=1), legal=False), "Correction at 0.2: 4 off the bat, now 1 no-ball"),
        (replace(ball_at(2, 4), bowler="B10", bowler_id="B10"), "Correction at 0.2: the bowler is B10, not B11"),
    ],
)  # fmt: skip
async def test_an_amended_ball_is_only_a_correction(live: PolledMatch, new: Ball, text: str) -> None:
    await live.tick(snapshot_with(*OVER))
    [event] = await live.tick(snapshot_with(*amended(2, new)))

    assert (event.kind, event.text, event.ball, event.innings) == (CricketEventKind.CORRECTION, text, new, 1)
    assert (await live.state()).live.innings[0].runs == snapshot_with(*amended(2, new)).match.innings[0].runs
    assert await live.tick(snapshot_with(*amended(2, new))) == []


async def test_an_added_wicket_is_reported(live: PolledMatch) -> None:
    await live.tick(snapshot_with(*OVER[:3]))

    correction, wicket = await live.tick(snapshot_with(*OVER[:2], out(3, kind="caught", fielders=("B2",))))

    assert correction.text == "Correction at 0.3: no run, now R1 caught by B2"
    assert (wicket.kind, wicket.text, wicket.score) == (CricketEventKind.WICKET, "WICKET! R1 c B2 b B11", "4/1")


async def test_a_four_that_becomes_a_six_is_reported(live: PolledMatch) -> None:
    await live.tick(snapshot_with(*OVER[:2]))

    assert await live.texts(snapshot_with(OVER[0], ball_at(2, 6))) == [
        "Correction at 0.2: 4 off the bat, now 6 off the bat",
        "SIX! R1 off B11",
    ]


async def test_a_withdrawn_wicket_that_is_given_again(live: PolledMatch) -> None:
    await live.tick(snapshot_with(*OVER))

    assert await live.texts(snapshot_with(*amended(4, ball_at(4)))) == ["Correction at 0.4: R1 bowled, now no run"]
    assert (await live.state()).live.innings[0].wickets == 0
    assert await live.texts(snapshot_with(*OVER)) == ["Correction at 0.4: no run, now R1 bowled"]
    assert (await live.state()).live.innings[0].wickets == 1


async def test_a_fielder_who_is_added_is_a_correction_without_a_second_wicket(live: PolledMatch) -> None:
    await live.tick(snapshot_with(*amended(4, out(4, kind="caught"))))

    [event] = await live.tick(snapshot_with(*amended(4, out(4, kind="caught", fielders=("B2",)))))

    assert event.text == "Correction at 0.4: R1 caught, now R1 caught by B2"


async def test_another_batter_out_is_another_wicket(live: PolledMatch) -> None:
    run_out = out(4, kind="run out")
    await live.tick(snapshot_with(*amended(4, run_out)))
    other = replace(run_out, wickets=(Wicket("R2", "R2", "run out", (), bowler_credited=False),))

    assert await live.texts(snapshot_with(*amended(4, other))) == [
        "Correction at 0.4: R1 run out, now R2 run out",
        "WICKET! R2 run out",
    ]


async def test_the_last_ball_is_withdrawn_when_it_is_missing_twice(live: PolledMatch) -> None:
    await live.tick(snapshot_with(*OVER))
    assert await live.tick(snapshot_with(*OVER[:5])) == []
    assert (await live.state()).live.innings[0].legal_balls == 6

    assert await live.texts(snapshot_with(*OVER[:5])) == ["Correction: the ball at 0.6 (1 off the bat) was taken back"]
    assert (await live.state()).live.innings[0].legal_balls == 5
    again = ball_at(6, 2, batter="R3")
    assert await live.texts(snapshot_with(*OVER[:5], replace(again, ball_id=again.ball_id + 1))) == []


async def test_a_single_stale_response_is_ignored(live: PolledMatch) -> None:
    await live.tick(snapshot_with(*OVER))
    version = (await live.state()).version

    for length in (4, 6, 0, 6, 5, 6):
        assert await live.tick(snapshot_with(*OVER[:length], begun=1)) == []

    assert (await live.state()).version == version


async def test_a_withdrawn_wicket_that_returns(live: PolledMatch) -> None:
    await live.tick(snapshot_with(*OVER[:4]))
    await live.tick(snapshot_with(*OVER[:3]))
    assert await live.texts(snapshot_with(*OVER[:3])) == ["Correction: the ball at 0.4 (R1 bowled) was taken back"]

    assert await live.texts(snapshot_with(*OVER[:4])) == ["Correction: R1 is out after all"]


async def test_another_ball_with_the_id_of_a_withdrawn_ball_is_reported(live: PolledMatch) -> None:
    await live.tick(snapshot_with(*OVER[:3]))
    await live.tick(snapshot_with(*OVER[:2]))
    await live.tick(snapshot_with(*OVER[:2]))

    assert await live.texts(snapshot_with(*OVER[:2], out(3))) == ["WICKET! R1 b B11"]


async def test_a_missing_ball_in_the_middle_is_withdrawn_at_once(live: PolledMatch) -> None:
    await live.tick(snapshot_with(*OVER))

    assert await live.texts(snapshot_with(*OVER[:1], *OVER[2:])) == [
        "Correction: the ball at 0.2 (4 off the bat) was taken back"
    ]
    assert (await live.state()).live.innings[0].runs == 7


async def test_renumbered_balls_are_not_reported_again(live: PolledMatch) -> None:
    await live.tick(snapshot_with(*OVER))

    assert (
        await live.tick(
            snapshot_with(*OVER[:3], *[replace(delivery, ball_id=delivery.ball_id + 500) for delivery in OVER[3:]])
        )
        == []
    )
    assert (
        await live.tick(snapshot_with(*[replace(delivery, ball_id=delivery.ball_id - 90_000) for delivery in OVER]))
        == []
    )
    more = [replace(ball_at(position, 4), ball_id=20_000 + position) for position in (7, 8)]
    renumbered = [replace(delivery, ball_id=delivery.ball_id - 90_000) for delivery in OVER]
    assert await live.kinds(snapshot_with(*renumbered, *more)) == [CricketEventKind.FOUR] * 2


async def test_a_withdrawn_over(live: PolledMatch) -> None:
    more = [ball_at(7), ball_at(8)]
    await live.tick(snapshot_with(*OVER, *more))

    events = await live.tick(snapshot_with(*more))

    assert [event.kind for event in events] == [CricketEventKind.CORRECTION] * 6
    assert (await live.state()).live.innings[0].runs == 0


async def test_many_amended_balls_are_summed_up(live: PolledMatch) -> None:
    balls = [ball_at(position) for position in range(1, 31)]
    await live.tick(snapshot_with(*balls))

    events = await live.tick(snapshot_with(*[replace(delivery, batter_runs=1) for delivery in balls]))

    assert len(events) == 13
    assert events[-1].text == "Correction: 18 more balls were amended"


@pytest.mark.parametrize(
    ("late", "text"),
    [
        (out(2), "WICKET! R1 b B11"),
        (ball_at(2, 4), "FOUR! R1 off B11"),
        (ball_at(2, 6), "SIX! R1 off B11"),
    ],
)
async def test_a_ball_that_is_inserted_late_is_reported(live: PolledMatch, late: Ball, text: str) -> None:
    after = [ball_at(3, batter="R3"), ball_at(4, 4, batter="R3")]
    await live.tick(snapshot_with(ball_at(1), *after))

    assert await live.texts(snapshot_with(ball_at(1), late, *after)) == [text]
    assert await live.tick(snapshot_with(ball_at(1), late, *after)) == []


async def test_a_fifty_reached_by_a_correction_is_reported(live: PolledMatch) -> None:
    balls = [ball_at(position, 4) for position in range(1, 13)]
    await live.tick(snapshot_with(*balls))

    texts = await live.texts(snapshot_with(*balls[:5], ball_at(6, 6), *balls[6:]))

    assert texts == [
        "Correction at 0.6: 4 off the bat, now 6 off the bat",
        "SIX! R1 off B11",
        "R1 reaches 50",
        "50 partnership between R1 and R2",
    ]
