"""Steps and data for the tests of the orchestrator."""

import random
from datetime import date
from typing import Any

from datastore.matches.cricket import Match, MatchSnapshot
from datastore.matches.fixtures import Fixtures
from datastore.matches.live_state import ActiveStatus
from pipelines.demo.match import demo_match
from pipelines.matches.providers.cricsheet.reader import read
from pipelines.matches.providers.provider import ProviderUnavailable
from pipelines.matches.providers.replay import ReplayProvider
from tests.support.active_matches import active_match_state
from tests.support.cricket_pipeline import PipelineInstance
from tests.support.served import Served


class ScriptedReplay(ReplayProvider):
    """A replay whose list of live matches (`listed`) the test sets; with None the provider fails."""

    def __init__(self, served: Served, *match_ids: str, balls_per_tick: int = 24) -> None:
        recordings = [
            read(demo_match(random.Random(match_id), 1, date(2026, 6, 25)), match_id=match_id) for match_id in match_ids
        ]
        super().__init__(recordings, now=served.clock, balls_per_tick=balls_per_tick)
        for recording in recordings:  # in play, so that the first tick already has changes
            self.start_at(recording.match_id, recording.balls[24].ball_id)
        self.listed: set[str] | None = set(match_ids)
        self.unknown: set[str] = set()

    async def live(self) -> list[Match]:
        if self.listed is None:
            raise ProviderUnavailable("later")
        return [match for match in await super().live() if match.match_id in self.listed]

    async def match(self, match_id: str) -> MatchSnapshot | None:
        return None if match_id in self.unknown else await super().match(match_id)


FAST_INTERVALS: dict[str, Any] = {"tick_seconds": 0.0, "reconcile_seconds": 0.02}


async def fixture(served: Served, match_id: str) -> Match:
    match = await Fixtures(served.store(), served.clock()).latest(match_id)
    assert match is not None
    return match


async def has_changes(instance: PipelineInstance, *match_ids: str) -> bool:
    return {change.match.match_id for change in instance.changes} >= set(match_ids)


async def has_status(served: Served, status: ActiveStatus) -> bool:
    return (await active_match_state(served, "m1")).status is status
