"""Display states as the table `DisplayStateCache` keeps them for a while (DSC-1, DSC-2)."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any, TypeVar

from datastore.dynamodb.codec import Item
from datastore.dynamodb.records import parsed
from datastore.errors import BadUserInput, DomainError, Internal
from datastore.keyspace.matches import display_states, leagues, teams
from datastore.matches.active_matches import ActiveMatches
from datastore.matches.cricket import Match, MatchPhase, from_json, to_json
from datastore.matches.display import DisplayState, MatchNames, display_state
from datastore.matches.fixtures import Fixtures
from datastore.matches.leagues import league_from
from datastore.matches.live_state import ActiveMatch
from datastore.matches.teams import team_from
from datastore.model.access_patterns import AccessPattern
from datastore.model.composite_keys import Key, key_attributes
from datastore.session.store import Store

T = TypeVar("T")

LIVE_LIFETIME = timedelta(seconds=60)
UPCOMING_LIFETIME = timedelta(minutes=10)
FINISHED_LIFETIME = timedelta(hours=24)

logger = logging.getLogger(__name__)


class DisplayStates:
    """One method for each access pattern, and `refresh` for whoever changes matches."""

    def __init__(self, store: Store, now: datetime) -> None:
        self._store = store
        self._now = now

    async def by_id(self, match_id: str, team_id: str) -> DisplayState | None:
        """DSC-1: what is kept, else built from the tables and kept; None for an unknown match.

        Raises `BadUserInput` when the team does not play in it.
        """
        if (kept := await self._kept(match_id, team_id)) is not None:
            return kept
        match, active = await asyncio.gather(
            Fixtures(self._store, self._now).by_id(match_id), ActiveMatches(self._store, self._now).by_id(match_id)
        )
        if match is None:
            return None
        _plays(match, team_id)
        return await self._build(match, active, team_id)

    async def of_match(self, match: Match, team_id: str) -> DisplayState:
        """DSC-1 of a match that was read already; a state that is older than the match does not serve.

        Raises `BadUserInput` when the team does not play in it.
        """
        _plays(match, team_id)
        kept = await self._kept(match.match_id, team_id)
        if kept is not None and kept.version >= match.version:
            return kept
        # Its live state, both teams and the league are asked for in one tick, and so go out as one BatchGetItem.
        active, names = await asyncio.gather(
            ActiveMatches(self._store, self._now).by_id(match.match_id), self.names(match)
        )
        return await self._keep(display_state(match, active, names, team_id))

    async def kept(self, match: Match) -> dict[str, DisplayState]:
        """What is kept of the match, by team id: one BatchGetItem, and nothing is built."""
        teams = (match.home_team_id, match.away_team_id)
        states = await asyncio.gather(*[self._kept(match.match_id, team) for team in teams])
        return {state.team_id: state for state in states if state is not None}

    async def names(self, match: Match) -> MatchNames:
        """TM-1 and LG-1: who plays, and where; what is unknown or damaged is None."""
        home, away, league = await asyncio.gather(
            self._named(teams.TEAM, match.home_team_id),
            self._named(teams.TEAM, match.away_team_id),
            self._named(leagues.LEAGUE, match.league_id),
        )
        return MatchNames(_read(team_from, home), _read(team_from, away), _read(league_from, league))

    async def _named(self, pattern: AccessPattern, id: str) -> Item | None:
        """Return the item of an id; None for an empty id, as of a fixture of another program that names no team."""
        return await self._store.get(pattern, Key(id)) if id else None

    async def refresh(
        self, match: Match, active: ActiveMatch, *, names: MatchNames | None = None
    ) -> dict[str, DisplayState]:
        """DSC-2: build and keep the states of both teams, by team id. With `names` nothing is read.

        A version may be told again, without its events: what is kept of it then stays, and is answered.
        A state that cannot be kept is logged, and answered all the same: what is kept ends by itself.
        """
        if names is None:
            names = await self.names(match)
        built = [display_state(match, active, names, team) for team in (match.home_team_id, match.away_team_id)]
        kept = await asyncio.gather(*[self._keep(state) for state in built])
        return {state.team_id: state for state in kept}

    async def _build(self, match: Match, active: ActiveMatch | None, team_id: str) -> DisplayState:
        return await self._keep(display_state(match, active, await self.names(match), team_id))

    async def _kept(self, match_id: str, team_id: str) -> DisplayState | None:
        item = await self._store.get(display_states.DISPLAY_STATE, display_states.display_state(match_id, team_id))
        return self._valid(item)

    async def _keep(self, state: DisplayState) -> DisplayState:
        """The newer of this state and the one that is kept."""
        item = display_state_item(state, self._now)
        # Of two states of one version the one that tells what happened stays.
        least = state.version if state.last_event is not None else state.version - 1
        values = {"version": least, "now": int(self._now.timestamp())}
        try:
            written = await self._store.put(display_states.KEEP, item, **values)
        except DomainError as problem:
            logger.warning("The display state of match %s could not be kept: %s", state.match_id, problem)
            return state
        return state if written.ok else self._valid(written.item) or state

    def _valid(self, item: Item | None) -> DisplayState | None:
        """Return None for what has expired, and for what another program or earlier release keeps in another form."""
        if item is None or "state" not in item or item.get("ttl", 0) <= self._now.timestamp():
            return None
        return _read(display_state_from, item)


def display_state_item(state: DisplayState, now: datetime) -> Item:
    key = display_states.display_state(state.match_id, state.team_id)
    return {
        **key_attributes(display_states.DISPLAY_STATES, key),
        "matchId": state.match_id,
        "teamId": state.team_id,
        "version": state.version,
        "ttl": int((now + lifetime(state.phase)).timestamp()),
        "state": to_json(state),
    }


def display_state_from(item: Mapping[str, Any]) -> DisplayState:
    return from_json(item["state"], DisplayState)


def lifetime(phase: MatchPhase) -> timedelta:
    """How long a state is good for: one of a live match is soon replaced, or its poller is dead."""
    if phase.is_over:
        return FINISHED_LIFETIME
    return UPCOMING_LIFETIME if phase is MatchPhase.UPCOMING else LIVE_LIFETIME


def _plays(match: Match, team_id: str) -> None:
    if team_id not in (match.home_team_id, match.away_team_id):
        raise BadUserInput(
            f"`teamId` must be a team of the match: {match.home_team_id!r} or {match.away_team_id!r}.", field="teamId"
        )


def _read(convert: Callable[[Mapping[str, Any]], T], item: Item | None) -> T | None:
    found = None if item is None else parsed(convert, item)
    return None if isinstance(found, Internal) else found
