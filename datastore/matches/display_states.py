"""The cache of display states in the table `DisplayStateCache` (DSC-1, DSC-2)."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import record_or_error
from datastore.errors import BadUserInput, DomainError, Internal
from datastore.items import attributes as stored
from datastore.items.repository import Repository
from datastore.items.stored_item import StoredItem
from datastore.keyspace.matches import display_states, leagues, teams
from datastore.matches.active_matches import ActiveMatches
from datastore.matches.cricket import Lifetimes, Match
from datastore.matches.display import DisplayState, MatchNames, display_state
from datastore.matches.fixtures import Fixtures
from datastore.matches.leagues import League
from datastore.matches.live_state import ActiveMatch
from datastore.matches.teams import Team
from datastore.model.access_patterns import AccessPattern
from datastore.model.composite_keys import Key

T = TypeVar("T")

LIFETIMES = Lifetimes(upcoming=timedelta(minutes=10), live=timedelta(seconds=60), over=timedelta(hours=24))

logger = logging.getLogger(__name__)


def _whole_seconds(moment: datetime) -> int:
    return int(moment.timestamp())


class CachedState(StoredItem, key=display_states.display_state):
    """A display state in the cache."""

    match_id: str = stored.text("matchId", missing="")
    team_id: str = stored.text("teamId", missing="")
    version: int = stored.number("version", missing=0)
    expires_at: datetime = stored.seconds("ttl", encode=_whole_seconds)
    state: DisplayState = stored.json("state", DisplayState, typical=880)


class DisplayStates(Repository):
    """One method for each access pattern."""

    async def by_id(self, match_id: str, team_id: str) -> DisplayState | None:
        """DSC-1: return the cached state, or build and cache it; None for an unknown match.

        Raises `BadUserInput` if the team does not play in the match.
        """
        if (cached := await self._cached(match_id, team_id)) is not None:
            return cached
        match, active = await asyncio.gather(
            Fixtures(self._store, self._now).by_id(match_id), ActiveMatches(self._store, self._now).by_id(match_id)
        )
        if match is None:
            return None
        _check_plays(match, team_id)
        return await self._put(display_state(match, active, await self.names(match), team_id))

    async def of_match(self, match: Match, team_id: str) -> DisplayState:
        """DSC-1: return the state of a match that was read already. A cached state older than the match is not used.

        Raises `BadUserInput` if the team does not play in the match.
        """
        _check_plays(match, team_id)
        cached = await self._cached(match.match_id, team_id)
        if cached is not None and cached.version >= match.version:
            return cached
        # One BatchGetItem reads the live state, both teams and the league.
        active, names = await asyncio.gather(
            ActiveMatches(self._store, self._now).by_id(match.match_id), self.names(match)
        )
        return await self._put(display_state(match, active, names, team_id))

    async def cached(self, match: Match) -> dict[str, DisplayState]:
        """DSC-1: return the cached states of the match by team id, read by one BatchGetItem."""
        teams = (match.home_team_id, match.away_team_id)
        states = await asyncio.gather(*[self._cached(match.match_id, team) for team in teams])
        return {state.team_id: state for state in states if state is not None}

    async def names(self, match: Match) -> MatchNames:
        """TM-1 and LG-1: return the teams and the league of a match. Unknown and damaged ones are None."""
        home, away, league = await asyncio.gather(
            self._item(teams.TEAM, match.home_team_id),
            self._item(teams.TEAM, match.away_team_id),
            self._item(leagues.LEAGUE, match.league_id),
        )
        return MatchNames(_record(Team.decoder, home), _record(Team.decoder, away), _record(League.decoder, league))

    async def _item(self, pattern: AccessPattern, id: str) -> Item | None:
        """Return the item of an id. The id is empty for a fixture of another program without the team."""
        return await self._store.get(pattern, Key(id)) if id else None

    async def refresh(
        self, match: Match, active: ActiveMatch, *, names: MatchNames | None = None
    ) -> dict[str, DisplayState]:
        """DSC-2: build and cache the states of both teams. Return them by team id. With `names` nothing is read.

        A version may be repeated without its events. The cached state of that version then remains, and is returned. A
        state that cannot be cached is logged and returned; the outdated state in the cache expires by its TTL.
        """
        if names is None:
            names = await self.names(match)
        built = [display_state(match, active, names, team) for team in (match.home_team_id, match.away_team_id)]
        newest = await asyncio.gather(*[self._put(state) for state in built])
        return {state.team_id: state for state in newest}

    async def _cached(self, match_id: str, team_id: str) -> DisplayState | None:
        item = await self._store.get(display_states.DISPLAY_STATE, display_states.display_state(match_id, team_id))
        return self._valid(item)

    async def _put(self, state: DisplayState) -> DisplayState:
        """Cache a state unless the cached state is newer. Return the newer of both."""
        expires_at = self._now + LIFETIMES.of(state.phase)
        item = CachedState(state.match_id, state.team_id, state.version, expires_at, state).item()
        # Of two states of one version, the state with an event is the newer.
        replaced = state.version if state.last_event is not None else state.version - 1
        try:
            written = await self._store.put(display_states.CACHE_STATE, item, version=replaced)
        except DomainError as problem:
            logger.warning("The display state of match %s could not be cached: %s", state.match_id, problem)
            return state
        return state if written.ok else self._valid(written.item) or state

    def _valid(self, item: Item | None) -> DisplayState | None:
        """Return the state of an item; None if it has a form other than this release's."""
        if item is None or "state" not in item or "ttl" not in item:
            return None
        cached = _record(CachedState.decoder, item)
        return None if cached is None else cached.state


def _check_plays(match: Match, team_id: str) -> None:
    if team_id not in (match.home_team_id, match.away_team_id):
        raise BadUserInput(
            f"`teamId` must be a team of the match: {match.home_team_id!r} or {match.away_team_id!r}.", field="teamId"
        )


def _record(convert: Callable[[Mapping[str, Any]], T], item: Item | None) -> T | None:
    result = None if item is None else record_or_error(convert, item)
    return None if isinstance(result, Internal) else result
