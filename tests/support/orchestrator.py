"""Steps and data of the tests of orchestrator."""

import random
from datetime import date

from datastore.matches.cricket import Match, MatchSnapshot
from pipelines.demo.match import demo_match
from pipelines.matches.providers.cricsheet.reader import read
from pipelines.matches.providers.provider import ProviderUnavailable
from pipelines.matches.providers.replay import ReplayProvider
from tests.support.served import Served


class Scripted(ReplayProvider):
    """A replay of some matches whose list of live ones is the test's; None: it does not tell."""

    def __init__(self, served: Served, *match_ids: str, balls_per_tick: int = 24) -> None:
        recordings = [
            read(demo_match(random.Random(match_id), 1, date(2026, 6, 25)), match_id=match_id) for match_id in match_ids
        ]
        super().__init__(recordings, now=served.clock, balls_per_tick=balls_per_tick)
        for recording in recordings:  # in play, so that the first tick already brings something
            self.start_at(recording.match_id, recording.balls[24].ball_id)
        self.listed: set[str] | None = set(match_ids)
        self.unknown: set[str] = set()

    async def live(self) -> list[Match]:
        if self.listed is None:
            raise ProviderUnavailable("later")
        return [match for match in await super().live() if match.match_id in self.listed]

    async def match(self, match_id: str) -> MatchSnapshot | None:
        return None if match_id in self.unknown else await super().match(match_id)
