"""The provider that replays recorded matches, at a speed or ball by ball."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from datastore.matches.cricket import Match, MatchSnapshot, ResultKind
from datastore.matches.leagues import League
from datastore.matches.team_seasons import TeamSeason
from datastore.matches.teams import Team
from pipelines.matches.providers.playback import Playback
from pipelines.matches.providers.provider import ProviderError
from pipelines.matches.providers.recordings import Recording

ABOUT_TO_BEGIN = timedelta(minutes=15)
JUST_ENDED = timedelta(minutes=10)


class ReplayProvider:
    """A provider that replays several recorded matches at once.

    With a `speed`, a match follows the clock: `speed` seconds of play pass in each second of `now()` since its start.
    With None, the first call of `match()` returns the current state, and each later call advances the match by
    `balls_per_tick` balls, at most to the next change of status, so that no status is skipped.

    `start_times` hold the start of each match. A match without one starts now, and its fixture keeps the recorded
    date. A match leaves `live()` when it has been over for `linger`.
    """

    name = "replay"

    def __init__(
        self,
        recordings: Iterable[Recording],
        *,
        now: Callable[[], datetime],
        speed: float | None = None,
        balls_per_tick: int = 1,
        start_times: Mapping[str, datetime] | None = None,
        linger: timedelta = JUST_ENDED,
    ) -> None:
        if balls_per_tick < 1 or (speed is not None and speed <= 0):
            raise ValueError("A replay must go forward.")
        self._now = now
        self._balls_per_tick = balls_per_tick
        self._linger = linger
        self._replays: dict[str, _Replay] = {}
        for recording in recordings:
            if recording.match_id in self._replays:
                raise ValueError(f"Two recordings have the id {recording.match_id}.")
            start = (start_times or {}).get(recording.match_id)
            self._replays[recording.match_id] = _Replay(recording, now(), start, speed)

    def start_at(self, match_id: str, ball_id: int) -> None:
        """Continue after a ball; 0 is the start of the match. After the last ball the match is over.

        A ball's id is the same in every run and revision of a file: innings, over, and position in the over. In a
        newer revision, which may have other balls, a match that had ended therefore shows its end again.
        """
        self._replay(match_id).start_after(ball_id, self._now())

    def is_over(self, match_id: str) -> bool:
        """Return whether a match is in its last state."""
        return self._replay(match_id).is_over(self._now())

    async def live(self) -> Sequence[Match]:
        now = self._now()
        return [replay.summary(now) for replay in self._replays.values() if replay.is_live(now, self._linger)]

    async def match(self, match_id: str) -> MatchSnapshot | None:
        replay = self._replays.get(match_id)
        return replay.tick(self._now(), self._balls_per_tick) if replay else None

    async def fixtures(self, league_ids: Sequence[str], start: datetime, end: datetime) -> AsyncIterator[Match]:
        now = self._now()
        for replay in self._replays.values():
            fixture = replay.fixture
            if fixture.league_id in league_ids and start <= fixture.start_time <= end:
                yield replay.summary(now)

    async def leagues(self) -> Sequence[League]:
        replays = self._replays.values()
        leagues = [replace(replay.recording.league, current_season_id=replay.fixture.season_id) for replay in replays]
        return list({league.league_id: league for league in leagues}.values())

    async def teams(self) -> Sequence[Team]:
        replays = self._replays.values()
        return list({team.team_id: team for replay in replays for team in replay.recording.teams}.values())

    async def team_seasons(self, season_id: str) -> Sequence[TeamSeason]:
        """Count the matches of the season that are over. There are no points."""
        now = self._now()
        rows: dict[str, list[Match]] = {}
        season = None
        for replay in self._replays.values():
            if replay.fixture.season_id == season_id:
                season = replay.recording
                match = replay.summary(now)
                for team_id in (match.home_team_id, match.away_team_id):
                    rows.setdefault(team_id, []).append(match)
        if season is None:
            return []
        return [_team_season(season, season_id, team_id, matches) for team_id, matches in rows.items()]

    def _replay(self, match_id: str) -> "_Replay":
        try:
            return self._replays[match_id]
        except KeyError:
            raise ProviderError(f"There is no recording of match {match_id}.") from None


class _Replay:
    """One match and its current state."""

    def __init__(self, recording: Recording, now: datetime, start: datetime | None, speed: float | None) -> None:
        self.recording = recording
        self.fixture = replace(recording.match, start_time=start or recording.match.start_time)
        self._playback = Playback(recording)
        self._timeline = self._playback.timeline
        self._start = start or now
        self._speed = speed
        self._index = 0
        self._shown = False
        self._ended: datetime | None = None

    def start_after(self, ball_id: int, now: datetime) -> None:
        self._index = self._timeline.after(ball_id)
        self._shown = False
        self._ended = None
        if self._speed is not None:
            self._start = now - timedelta(seconds=self._timeline.moments[self._index] / self._speed)
        self._record_end(now)

    def tick(self, now: datetime, balls: int) -> MatchSnapshot:
        """Advance by `balls` balls, if the match does not follow the clock, and return the state."""
        if self._speed is None:
            if self._shown:
                self._index = self._timeline.onwards(self._index, balls)
            self._shown = True
            self._record_end(now)
        snapshot = self._playback.at(self._state_index(now))
        return replace(snapshot, match=self._with_start_time(snapshot.match))

    def summary(self, now: datetime) -> Match:
        """Return the current state without scorecards, and without advancing."""
        return replace(self._with_start_time(self._playback.at(self._state_index(now)).match), scorecards=None)

    def is_over(self, now: datetime) -> bool:
        return self._state_index(now) == self._timeline.last

    def is_live(self, now: datetime, linger: timedelta) -> bool:
        ended = self._end()
        return self._start <= now + ABOUT_TO_BEGIN and (ended is None or now - ended <= linger)

    def _state_index(self, now: datetime) -> int:
        if self._speed is None:
            return self._index
        return self._timeline.at((now - self._start).total_seconds() * self._speed)

    def _end(self) -> datetime | None:
        if self._speed is None:
            return self._ended
        return self._start + timedelta(seconds=self._timeline.moments[-1] / self._speed)

    def _record_end(self, now: datetime) -> None:
        if self._index == self._timeline.last and self._ended is None:
            self._ended = now

    def _with_start_time(self, match: Match) -> Match:
        return replace(match, start_time=self.fixture.start_time)


def _team_season(season: Recording, season_id: str, team_id: str, matches: Sequence[Match]) -> TeamSeason:
    results = [match.result for match in matches if match.result is not None]
    winners = [result.winner_team_id for result in results if result.winner_team_id is not None]
    kinds = [result.kind for result in results if result.winner_team_id is None]
    return TeamSeason(
        season_id=season_id,
        team_id=team_id,
        league_id=season.league.league_id,
        season_name=season.season,
        played=len(results),
        won=winners.count(team_id),
        lost=len(winners) - winners.count(team_id),
        drawn=len(kinds) - kinds.count(ResultKind.NO_RESULT),
        no_result=kinds.count(ResultKind.NO_RESULT),
    )
