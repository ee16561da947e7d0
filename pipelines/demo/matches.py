"""Cricket that never ends, for demos: invented matches by the clock, two at any time.

What is played when follows from the time alone. So a gateway that starts finds a match in full swing, one that was
away goes on where the match stands by now, and several tell the same.
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
    """A `Provider`: match `demo-<n>` begins n times eight minutes after 1970, and is played at ten times the pace."""

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
        """Of the hours around now: there is no end of them."""
        now = self._now()
        for number in _begun_between(max(start, now - LISTED), min(end, now + LISTED)):
            async for match in self._match(number).fixtures(league_ids, start, end):
                yield match

    async def leagues(self) -> Sequence[League]:
        return await self._match(_latest(self._now())).leagues()

    async def teams(self) -> Sequence[Team]:
        """The two of each match: in a few of them each team plays."""
        latest = _latest(self._now())
        found = [team for number in range(latest - 5, latest + 1) for team in await self._match(number).teams()]
        return list({team.team_id: team for team in found}.values())

    async def team_seasons(self, season_id: str) -> Sequence[TeamSeason]:
        """The matches of the last hours added up: two points for a win, one for no result."""
        now = self._now()
        table: dict[str, TeamSeason] = {}
        for number in _begun_between(now - LISTED, now):
            for row in await self._match(number).team_seasons(season_id):
                table[row.team_id] = _added(table.get(row.team_id), row)
        ranked = sorted(table.values(), key=lambda row: (-(row.points or 0), row.team_id))
        return [replace(row, position=position) for position, row in enumerate(ranked, 1)]

    def _match(self, number: int) -> ReplayProvider:
        if number not in self._matches:
            self._forget()
            match_id, start = f"{PREFIX}{number}", _start(number)
            recording = read(demo_match(random.Random(match_id), number, start.date()), match_id=match_id)
            self._matches[number] = ReplayProvider(
                [recording], now=self._now, speed=SPEED, start_times={match_id: start}, linger=LINGER
            )
        return self._matches[number]

    def _forget(self) -> None:
        """Those that are neither played nor listed."""
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
    """The last match that has begun."""
    return (now - datetime(1970, 1, 1, tzinfo=UTC)) // BEGIN_EVERY


def _begun_between(start: datetime, end: datetime) -> Iterator[int]:
    """The matches that begin between two moments, the end included."""
    return iter(range(_latest(start) + 1, _latest(end) + 1))
