"""The provider of the benchmarks: invented matches with a clock of their own."""

import dataclasses
import random
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from msgspec.structs import replace

from datastore.matches.cricket import Match, MatchSnapshot
from datastore.matches.json_records import from_json, to_json
from datastore.matches.leagues import League
from datastore.matches.team_seasons import TeamSeason
from datastore.matches.teams import Team
from pipelines.demo.match import demo_match
from pipelines.matches.providers.cricsheet.reader import read
from pipelines.matches.providers.playback import Playback
from pipelines.matches.providers.recordings import Recording

# The range of a match's progress, as a share of its length, at the first poll.
EARLIEST, LATEST = 0.05, 0.85


def invented_match(number: int) -> Recording:
    """Return match `number`, equal in every run."""
    rng = random.Random(number)
    return read(demo_match(rng, number, datetime(2026, 6, 25, tzinfo=UTC).date()), match_id=f"match-{number:03}")


class MatchClock:
    """A clock of match time in seconds. It is stopped at first."""

    def __init__(self) -> None:
        self.speed = 0.0
        self._passed = 0.0
        self._since = time.monotonic()

    def play(self, speed: float) -> None:
        """Run at `speed` times the real pace from now on; 0 stops the clock."""
        self._passed, self._since, self.speed = self.passed(), time.monotonic(), speed

    def passed(self) -> float:
        return self._passed + (time.monotonic() - self._since) * self.speed

    def moment_of(self, passed: float) -> float:
        """Return the time (of `time.monotonic`) of a match time, at the current speed."""
        return self._since + (passed - self._passed) / self.speed if self.speed else self._since


@dataclass(slots=True)
class _PlayedMatch:
    recording: Recording
    playback: Playback
    begins_at: float
    index: int = -1
    text: str = ""
    match: Match | None = None


class InventedMatches:
    """A `Provider` whose responses are decoded each time, like responses from the network."""

    name = "invented"

    def __init__(self, count: int, clock: MatchClock, start: datetime) -> None:
        self._clock = clock
        self._matches = {played.recording.match_id: played for played in self._create(count, start)}
        #: For each match the time at which the oldest change of its last response became available.
        self.visible_since: dict[str, float] = {}
        #: The CPU seconds of the provider, which do not belong to a tick.
        self.cpu = 0.0

    def _create(self, count: int, start: datetime) -> Iterator[_PlayedMatch]:
        for number in range(count):
            recording = invented_match(number)
            match = replace(recording.match, start_time=start)
            playback = Playback(dataclasses.replace(recording, match=match))
            share = EARLIEST + (LATEST - EARLIEST) * random.Random(count + number).random()
            yield _PlayedMatch(recording, playback, playback.timeline.moments[-1] * share)

    async def live(self) -> Sequence[Match]:
        return [self._summary(played) for played in self._matches.values()]

    async def match(self, match_id: str) -> MatchSnapshot | None:
        began = time.thread_time()
        played = self._matches[match_id]
        self._advance(played)
        snapshot = from_json(played.text, MatchSnapshot)
        self.cpu += time.thread_time() - began
        return snapshot

    async def fixtures(self, league_ids: Sequence[str], start: datetime, end: datetime) -> AsyncIterator[Match]:
        for match in await self.live():
            yield match

    async def leagues(self) -> Sequence[League]:
        leagues = [played.recording.league for played in self._matches.values()]
        return list({league.league_id: league for league in leagues}.values())

    async def teams(self) -> Sequence[Team]:
        teams = [team for played in self._matches.values() for team in played.recording.teams]
        return list({team.team_id: team for team in teams}.values())

    async def team_seasons(self, season_id: str) -> Sequence[TeamSeason]:
        return []

    def _summary(self, played: _PlayedMatch) -> Match:
        if played.match is None:
            self._advance(played)
        assert played.match is not None
        return replace(played.match, scorecards=None)

    def _advance(self, played: _PlayedMatch) -> None:
        """Advance the match to the clock's time."""
        timeline = played.playback.timeline
        index = timeline.at(played.begins_at + self._clock.passed())
        if index == played.index:
            return
        first_change = timeline.moments[min(played.index + 1, index)] if played.index >= 0 else timeline.moments[index]
        self.visible_since[played.recording.match_id] = self._clock.moment_of(first_change - played.begins_at)
        snapshot = played.playback.at(index)
        played.index, played.text, played.match = index, to_json(snapshot), snapshot.match
