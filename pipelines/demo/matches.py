"""A provider of invented cricket matches for demos. Two matches are live at any time.

The schedule and each ball derive from the clock alone. A gateway that starts finds a match in progress, a gateway that
was stopped continues at the current ball, and several gateways agree.
"""

import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from datastore.matches.cricket import Match, MatchSnapshot
from datastore.matches.leagues import League
from datastore.matches.team_seasons import TeamSeason
from datastore.matches.teams import Team
from pipelines.demo.match import demo_match
from pipelines.matches.providers.cricsheet.reader import read
from pipelines.matches.providers.replay import ReplayProvider

PREFIX = "demo-"
# At ten times the pace of real cricket a ball takes three seconds, and a match a quarter of an hour.
SPEED = 10.0
BEGIN_EVERY = timedelta(minutes=8)
LONGEST = timedelta(minutes=16)
LINGER = timedelta(minutes=2)
LISTED = timedelta(hours=2)


class DemoProvider:
    """A `Provider` whose match `demo-<n>` begins n times 8 minutes after 1970 and runs at ten times the real pace."""

    name = "demo"

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self._matches: dict[int, ReplayProvider] = {}

    async def live(self) -> Sequence[Match]:
        now = self._now()
        found = [await self._match(number).live() for number in _begun_between(now - LONGEST - LINGER, now)]
        return [match for matches in found for match in matches]

    async def match(self, match_id: str) -> MatchSnapshot | None:
        number = match_id.removeprefix(PREFIX)
        if not number.isdecimal() or not match_id.startswith(PREFIX):
            return None
        return await self._match(int(number)).match(match_id)

    async def fixtures(self, league_ids: Sequence[str], start: datetime, end: datetime) -> AsyncIterator[Match]:
        """Yield the fixtures within two hours of now: the schedule has no end."""
        now = self._now()
        for number in _begun_between(max(start, now - LISTED), min(end, now + LISTED)):
            async for match in self._match(number).fixtures(league_ids, start, end):
                yield match

    async def leagues(self) -> Sequence[League]:
        return await self._match(_latest(self._now())).leagues()

    async def teams(self) -> Sequence[Team]:
        """Return the teams of the last six matches: each team of the league plays in one of them."""
        latest = _latest(self._now())
        found = [team for number in range(latest - 5, latest + 1) for team in await self._match(number).teams()]
        return list({team.team_id: team for team in found}.values())

    async def team_seasons(self, season_id: str) -> Sequence[TeamSeason]:
        """Return the table of the matches of the last two hours: two points for a win, one for no result."""
        now = self._now()
        table: dict[str, TeamSeason] = {}
        for number in _begun_between(now - LISTED, now):
            for row in await self._match(number).team_seasons(season_id):
                table[row.team_id] = _added(table.get(row.team_id), row)
        ranked = sorted(table.values(), key=lambda row: (-(row.points or 0), row.team_id))
        return [replace(row, position=position) for position, row in enumerate(ranked, 1)]

    def _match(self, number: int) -> ReplayProvider:
        if number not in self._matches:
            self._drop_old_matches()
            match_id, start = f"{PREFIX}{number}", _start(number)
            recording = read(demo_match(random.Random(match_id), number, start.date()), match_id=match_id)
            self._matches[number] = ReplayProvider(
                [recording], now=self._now, speed=SPEED, start_times={match_id: start}, linger=LINGER
            )
        return self._matches[number]

    def _drop_old_matches(self) -> None:
        """Drop the matches that are neither live nor listed."""
        latest = _latest(self._now())
        for number in [number for number in self._matches if abs(number - latest) > 2 * LISTED / BEGIN_EVERY]:
            del self._matches[number]


def _added(so_far: TeamSeason | None, row: TeamSeason) -> TeamSeason:
    before = so_far or TeamSeason(row.season_id, row.team_id)
    won, no_result = _sum(before.won, row.won), _sum(before.no_result, row.no_result)
    return replace(
        row,
        played=_sum(before.played, row.played),
        won=won,
        lost=_sum(before.lost, row.lost),
        drawn=_sum(before.drawn, row.drawn),
        no_result=no_result,
        points=2.0 * won + no_result,
    )


def _sum(one: int | None, other: int | None) -> int:
    return (one or 0) + (other or 0)


def _start(number: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + number * BEGIN_EVERY


def _latest(now: datetime) -> int:
    """Return the number of the last match that has begun."""
    return (now - datetime(1970, 1, 1, tzinfo=UTC)) // BEGIN_EVERY


def _begun_between(start: datetime, end: datetime) -> Iterator[int]:
    """Return the numbers of the matches that begin after `start` and not after `end`."""
    return iter(range(_latest(start) + 1, _latest(end) + 1))
