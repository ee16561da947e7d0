"""The interface and the errors of all sources of match data."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Protocol

from datastore.matches.cricket import Match, MatchSnapshot
from datastore.matches.leagues import League
from datastore.matches.team_seasons import TeamSeason
from datastore.matches.teams import Team


class ProviderError(Exception):
    """The failure of a call to a provider. Its text is safe to log: it holds no secret."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        #: Seconds until a retry makes sense, None when the usual interval applies.
        self.retry_after = retry_after


class ProviderUnavailable(ProviderError):
    """A temporary failure: a timeout, a failed connection, a 5xx, or an exhausted quota (429)."""


class ProviderRefused(ProviderError):
    """A failure that needs an operator: a missing or wrong token, or a plan that does not include the request."""


class Malformed(ProviderError):
    """A response that cannot be decoded, or that contradicts itself."""


class Provider(Protocol):
    """A source of match data.

    Every method raises `ProviderError`. A list leaves out and logs records that cannot be read.
    """

    name: str

    async def live(self) -> Sequence[Match]:
        """Return the matches in play, the matches about to begin, and the matches that have just ended."""

    async def match(self, match_id: str) -> MatchSnapshot | None:
        """Return the current state of a match, or None when the provider does not know it (any more)."""

    def fixtures(self, league_ids: Sequence[str], start: datetime, end: datetime) -> AsyncIterator[Match]:
        """Yield the matches of these leagues that start from `start` to `end`, page after page."""

    async def leagues(self) -> Sequence[League]:
        """Return all leagues of the plan."""

    async def teams(self) -> Sequence[Team]:
        """Return all teams."""

    async def team_seasons(self, season_id: str) -> Sequence[TeamSeason]:
        """Return the teams of a season."""
