"""Where match data comes from: one small interface for all sources."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Protocol

from datastore.matches.cricket import Match, MatchSnapshot
from datastore.matches.leagues import League
from datastore.matches.team_seasons import TeamSeason
from datastore.matches.teams import Team


class ProviderError(Exception):
    """A provider did not give what was asked. Its text is safe to log: it holds no secret.

    `retry_after`: seconds until it makes sense to ask again, None when the usual pace will do.
    """

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ProviderUnavailable(ProviderError):
    """Timeouts, connections that fail, 5xx, or a used up quota (429): it will pass."""


class ProviderRefused(ProviderError):
    """The token is missing or wrong, or the plan does not include what was asked: somebody must act."""


class Malformed(ProviderError):
    """An answer that cannot be read, or that contradicts itself."""


class Provider(Protocol):
    """Every method raises `ProviderError`. One bad record is left out and logged; it never stops a list."""

    name: str

    async def live(self) -> Sequence[Match]:
        """The matches in play now, those about to begin, and those that have just ended."""

    async def match(self, match_id: str) -> MatchSnapshot | None:
        """A match as it stands; None when the provider does not know it (any more)."""

    def fixtures(self, league_ids: Sequence[str], start: datetime, end: datetime) -> AsyncIterator[Match]:
        """The matches of these leagues that start in a time, page after page."""

    async def leagues(self) -> Sequence[League]:
        """All leagues of the plan."""

    async def teams(self) -> Sequence[Team]:
        """All teams."""

    async def team_seasons(self, season_id: str) -> Sequence[TeamSeason]:
        """The teams of a season."""
