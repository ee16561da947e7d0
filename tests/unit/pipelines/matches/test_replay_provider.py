"""The replay provider: its speed, its order of states, and its lists."""

from datetime import UTC, datetime, timedelta

import pytest

from pipelines.matches.providers.playback import Playback
from pipelines.matches.providers.provider import Provider, ProviderError
from tests.support.cricket_samples import (
    BLUES,
    REDS,
    ball,
    innings,
    match_json,
    over,
)
from tests.support.replays import SHORT, distinct_statuses, recorded, replay_recordings, to_the_end
from tests.support.served import NOON, Clock


async def test_every_status_is_shown_however_many_balls_a_tick_takes() -> None:
    slowly = await to_the_end(replay_recordings(recorded(SHORT)))
    fast = await to_the_end(replay_recordings(recorded(SHORT), balls_per_tick=1000))

    assert distinct_statuses(slowly) == ["NS", "1st Innings", "Innings Break", "2nd Innings", "Finished"]
    assert distinct_statuses(fast) == distinct_statuses(slowly)
    assert [len(snapshot.balls) for snapshot in fast] == [0, 0, 9, 9, 9, 13, 13]
    assert fast[-1] == slowly[-1]
    assert fast[2].match.innings[0].overs == "1.3"
    assert fast[3].match.note == "Blues need 1 to win"


async def test_the_first_call_returns_the_current_state_and_the_last_state_stays() -> None:
    provider = replay_recordings(recorded(SHORT))
    first, second = await provider.match("m"), await provider.match("m")
    snapshots = await to_the_end(provider)

    assert first is not None
    assert second is not None
    assert [first.match.status, second.match.status, len(second.balls)] == ["NS", "1st Innings", 0]
    assert await provider.match("m") == snapshots[-1]


async def test_several_balls_a_tick() -> None:
    snapshots = await to_the_end(replay_recordings(recorded(SHORT), balls_per_tick=4))

    assert [len(snapshot.balls) for snapshot in snapshots] == [0, 0, 4, 8, 9, 9, 9, 13, 13]


async def test_at_a_speed_the_clock_decides() -> None:
    clock = Clock()
    provider = replay_recordings(recorded(SHORT), now=clock, speed=60)

    async def at(seconds: float) -> tuple[str, int]:
        """Return the status and the number of balls at a time after the start."""
        clock.now = NOON + timedelta(seconds=seconds)
        snapshot = await provider.match("m")
        assert snapshot is not None
        return snapshot.match.status, len(snapshot.balls)

    # A minute before play, half a minute for each ball and between overs, five minutes between innings.
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
    provider = replay_recordings(recorded(SHORT), now=clock, speed=1, start_times={"m": start})

    assert await provider.live() == []
    clock.forward(minutes=50)
    [soon] = await provider.live()
    clock.forward(minutes=11, seconds=30)
    [playing] = await provider.live()

    assert (soon.status, soon.start_time) == ("NS", start)
    assert (playing.status, playing.innings[0].legal_balls) == ("1st Innings", 1)


async def test_the_list_of_live_matches_does_not_advance_and_drops_ended_matches() -> None:
    clock = Clock()
    other = recorded(SHORT, "other")
    provider = replay_recordings(recorded(SHORT), other, now=clock, linger=timedelta(minutes=5))

    for _ in range(3):
        assert [match.status for match in await provider.live()] == ["NS", "NS"]
    await to_the_end(provider)
    clock.forward(minutes=4)
    [ended, _] = await provider.live()
    clock.forward(minutes=2)
    remaining = await provider.live()

    assert (ended.match_id, ended.status, ended.scorecards) == ("m", "Finished", None)
    assert [match.match_id for match in remaining] == ["other"]
    assert await provider.match("nobody") is None


@pytest.mark.parametrize("speed", [None, 60.0])
async def test_a_replay_continues_after_a_given_ball(speed: float | None) -> None:
    clock = Clock()
    recording = recorded(SHORT)
    whole = Playback(recording)
    for number, delivery in enumerate(recording.balls[:-1], 1):
        provider = replay_recordings(recording, now=clock, speed=speed)

        provider.start_at("m", delivery.ball_id)
        snapshot = await provider.match("m")

        assert snapshot is not None
        assert len(snapshot.balls) == number
        assert snapshot == whole.at(whole.timeline.after(delivery.ball_id))


async def test_a_replay_continues_after_ball_0_or_an_unknown_ball() -> None:
    provider = replay_recordings(recorded(SHORT))

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


async def test_fixtures_leagues_teams_and_seasons() -> None:
    drawn = match_json(innings(REDS, over(0, ball())), outcome={"result": "draw"})
    tied = match_json(innings(REDS, over(0, ball())), outcome={"result": "tie", "eliminator": BLUES})
    provider = replay_recordings(recorded(SHORT), recorded(drawn, "drawn"), recorded(tied, "tied"))
    noon = datetime(2026, 6, 25, 12, tzinfo=UTC)
    for match_id in ("m", "drawn"):
        await to_the_end(provider, match_id)

    async def fixtures(league: str, start: datetime, end: datetime) -> list[str]:
        return [match.match_id async for match in provider.fixtures([league], start, end)]

    assert await fixtures("harbour-cup-t20", noon - timedelta(hours=2), noon) == ["m", "drawn", "tied"]
    assert await fixtures("harbour-cup-t20", noon, noon + timedelta(days=1)) == []
    assert await fixtures("other", noon - timedelta(hours=2), noon) == []
    assert [league.code for league in await provider.leagues()] == ["HC"]
    assert [team.team_id for team in await provider.teams()] == ["reds", "blues"]
    reds, second = await provider.team_seasons("harbour-cup-t20-2026")
    assert (reds.season_name, reds.played, reds.won, reds.lost, reds.drawn, reds.no_result) == ("2026", 2, 1, 0, 1, 0)
    assert (second.team_id, second.played, second.won, second.lost) == ("blues", 2, 0, 1)
    assert await provider.team_seasons("unknown") == []


def test_invalid_options_of_a_replay_are_refused() -> None:
    with pytest.raises(ValueError, match="Two recordings have the id m"):
        replay_recordings(recorded(SHORT), recorded(SHORT))
    with pytest.raises(ValueError, match="must go forward"):
        replay_recordings(speed=0)
    provider: Provider = replay_recordings()
    assert provider.name == "replay"
