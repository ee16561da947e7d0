"""The provider that is measured with: invented matches that are played by a clock of their own."""

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

# A match stands somewhere between the first overs and the last when it begins to be polled.
EARLIEST, LATEST = 0.05, 0.85


def invented(number: int) -> Recording:
    """The same at every run."""
    chance = random.Random(number)
    return read(demo_match(chance, number, datetime(2026, 6, 25, tzinfo=UTC).date()), match_id=f"match-{number:03}")


class MatchClock:
    """Seconds of match time that have passed. It stands still at first."""

    def __init__(self) -> None:
        self.speed = 0.0
        self._passed = 0.0
        self._since = time.monotonic()

    def play(self, speed: float) -> None:
        """From now on so many times as fast as cricket is; 0 stands still."""
        self._passed, self._since, self.speed = self.passed(), time.monotonic(), speed

    def passed(self) -> float:
        return self._passed + (time.monotonic() - self._since) * self.speed

    def moment_of(self, passed: float) -> float:
        """When (of `time.monotonic`) so much had passed at the speed of now."""
        return self._since + (passed - self._passed) / self.speed if self.speed else self._since


@dataclass(slots=True)
class _Invented:
    recording: Recording
    playback: Playback
    begins_at: float
    index: int = -1
    text: str = ""
    match: Match | None = None


class InventedMatches:
    """A `Provider` whose answers are decoded anew each time, as answers from the network are.

    `visible_since` tells of each match since when the oldest change could be seen that the last answer brought, and
    `cpu` the seconds spent here: they are no part of a tick.
    """

    name = "invented"

    def __init__(self, count: int, clock: MatchClock, start: datetime) -> None:
        self._clock = clock
        self._matches = {one.recording.match_id: one for one in self._invent(count, start)}
        self.visible_since: dict[str, float] = {}
        self.cpu = 0.0

    def _invent(self, count: int, start: datetime) -> Iterator[_Invented]:
        for number in range(count):
            recording = invented(number)
            match = replace(recording.match, start_time=start)
            playback = Playback(dataclasses.replace(recording, match=match))
            share = EARLIEST + (LATEST - EARLIEST) * random.Random(count + number).random()
            yield _Invented(recording, playback, playback.timeline.moments[-1] * share)

    async def live(self) -> Sequence[Match]:
        return [self._summary(one) for one in self._matches.values()]

    async def match(self, match_id: str) -> MatchSnapshot | None:
        began = time.thread_time()
        one = self._matches[match_id]
        self._go_on(one)
        snapshot = from_json(one.text, MatchSnapshot)
        self.cpu += time.thread_time() - began
        return snapshot

    async def fixtures(self, league_ids: Sequence[str], start: datetime, end: datetime) -> AsyncIterator[Match]:
        for match in await self.live():
            yield match

    async def leagues(self) -> Sequence[League]:
        return list({one.recording.league.league_id: one.recording.league for one in self._matches.values()}.values())

    async def teams(self) -> Sequence[Team]:
        return list({team.team_id: team for one in self._matches.values() for team in one.recording.teams}.values())

    async def team_seasons(self, season_id: str) -> Sequence[TeamSeason]:
        return []

    def _summary(self, one: _Invented) -> Match:
        if one.match is None:
            self._go_on(one)
        assert one.match is not None
        return replace(one.match, scorecards=None)

    def _go_on(self, one: _Invented) -> None:
        """To where the match stands by now."""
        timeline = one.playback.timeline
        index = timeline.at(one.begins_at + self._clock.passed())
        if index == one.index:
            return
        news = timeline.moments[min(one.index + 1, index)] if one.index >= 0 else timeline.moments[index]
        self.visible_since[one.recording.match_id] = self._clock.moment_of(news - one.begins_at)
        snapshot = one.playback.at(index)
        one.index, one.text, one.match = index, to_json(snapshot), snapshot.match
