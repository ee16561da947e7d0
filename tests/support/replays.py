"""Recordings for tests, and replays of them."""

from typing import Any

from datastore.matches.cricket import MatchSnapshot
from pipelines.matches.providers.cricsheet.reader import read
from pipelines.matches.providers.recordings import Recording
from pipelines.matches.providers.replay import ReplayProvider
from tests.support.cricket_count import Json
from tests.support.cricket_samples import (
    BLUES,
    REDS,
    ball,
    blues,
    innings,
    match_json,
    over,
)
from tests.support.served import Clock

DOTS = [ball()] * 6
BLUE_DOTS = [blues()] * 6
SHORT = match_json(
    innings(REDS, over(0, *DOTS), over(1, *DOTS[:3])),
    innings(BLUES, over(0, *BLUE_DOTS[:4]), target={"runs": 1, "overs": 20}),
)


def recorded(document: Json, match_id: str = "m") -> Recording:
    return read(document, match_id=match_id)


def replay_recordings(*recordings: Recording, **options: Any) -> ReplayProvider:
    return ReplayProvider(recordings, **{"now": Clock()} | options)


async def to_the_end(provider: ReplayProvider, match_id: str = "m") -> list[MatchSnapshot]:
    """Return every snapshot until the match is over."""
    snapshots = []
    for _ in range(10_000):
        snapshot = await provider.match(match_id)
        assert snapshot is not None
        snapshots.append(snapshot)
        if provider.is_over(match_id):
            return snapshots
    raise AssertionError("The match does not end.")


def distinct_statuses(snapshots: list[MatchSnapshot]) -> list[str]:
    """Return the statuses in order, without repetitions."""
    result: list[str] = []
    for snapshot in snapshots:
        if result[-1:] != [snapshot.match.status]:
            result.append(snapshot.match.status)
    return result


def names_of(recording: Recording, document: Json) -> dict[str, str]:
    teams = zip(recording.teams, document["info"]["teams"], strict=True)
    return {team.team_id: name for team, name in teams}
