"""Global ids of cricket."""

import strawberry

from datastore.keyspace.matches import active_matches as active_match_keys
from datastore.keyspace.matches import match_follows as match_follow_keys
from datastore.matches.cricket import Match
from datastore.matches.display import DisplayState
from datastore.matches.leagues import League
from datastore.matches.live_state import ActiveMatch
from datastore.matches.match_follows import MatchFollow
from datastore.matches.teams import Team
from resolvers.shared.authorization import require
from resolvers.shared.context import Context
from resolvers.shared.node_ids import NodeReaders, global_id


def match_id(parent: strawberry.Parent[Match]) -> strawberry.ID:
    return global_id("Match", parent.match_id)


def active_match_id(parent: strawberry.Parent[ActiveMatch]) -> strawberry.ID:
    return global_id("ActiveMatch", parent.match_id)


def display_state_id(parent: strawberry.Parent[DisplayState]) -> strawberry.ID:
    return global_id("DisplayState", parent.match_id, parent.team_id)


def team_id(parent: strawberry.Parent[Team]) -> strawberry.ID:
    return global_id("Team", parent.team_id)


def league_id(parent: strawberry.Parent[League]) -> strawberry.ID:
    return global_id("League", parent.league_id)


def match_follow_id(parent: strawberry.Parent[MatchFollow]) -> strawberry.ID:
    return global_id("MatchFollow", parent.match_id, parent.user_id)


async def _match(context: Context, match_id: str) -> Match | None:
    return await context.fixtures.by_id(match_id)


async def _active_match(context: Context, match_id: str) -> ActiveMatch | None:
    require(context.identity, active_match_keys.STATE)
    return await context.active_matches.by_id(match_id)


async def _display_state(context: Context, match_id: str, team_id: str) -> DisplayState | None:
    return await context.display_states.by_id(match_id, team_id)


async def _team(context: Context, team_id: str) -> Team | None:
    return await context.teams.by_id(team_id)


async def _league(context: Context, league_id: str) -> League | None:
    return await context.leagues.by_id(league_id)


async def _match_follow(context: Context, match_id: str, user_id: str) -> MatchFollow | None:
    require(context.identity, match_follow_keys.FOLLOW_OF_USER, owner=user_id)
    return await context.match_follows.by_key(match_id, user_id)


NODE_READERS: NodeReaders = {
    "ActiveMatch": (1, _active_match),
    "DisplayState": (2, _display_state),
    "League": (1, _league),
    "Match": (1, _match),
    "MatchFollow": (2, _match_follow),
    "Team": (1, _team),
}
