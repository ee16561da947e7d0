"""GraphQL types and fields of cricket: a module for each table."""

import strawberry

from schema.matches.active_matches import (
    ActiveMatch,
    ActiveMatchMutations,
    ActiveMatchQueries,
    ActiveMatchSubscriptions,
)
from schema.matches.devices import DeviceMutations, DeviceQueries
from schema.matches.display_states import DisplayState, DisplayStateQueries
from schema.matches.fixtures import FixtureMutations, FixtureQueries, Match
from schema.matches.leagues import League, LeagueMutations, LeagueQueries
from schema.matches.live_activities import LiveActivityMutations, LiveActivityQueries
from schema.matches.locks import LockQueries
from schema.matches.match_follows import MatchFollow, MatchFollowMutations, MatchFollowQueries
from schema.matches.team_seasons import TeamSeasonMutations, TeamSeasonQueries
from schema.matches.teams import Team, TeamMutations, TeamQueries

NODES = [ActiveMatch, DisplayState, League, Match, MatchFollow, Team]


@strawberry.type
class MatchQueries(
    FixtureQueries,
    ActiveMatchQueries,
    DisplayStateQueries,
    TeamQueries,
    TeamSeasonQueries,
    LeagueQueries,
    MatchFollowQueries,
    DeviceQueries,
    LiveActivityQueries,
    LockQueries,
):
    pass


@strawberry.type
class MatchMutations(
    FixtureMutations,
    ActiveMatchMutations,
    TeamMutations,
    TeamSeasonMutations,
    LeagueMutations,
    MatchFollowMutations,
    DeviceMutations,
    LiveActivityMutations,
):
    pass


@strawberry.type
class MatchSubscriptions(ActiveMatchSubscriptions):
    pass
