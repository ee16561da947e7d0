"""GraphQL types and fields of cricket: a module for each table."""

from schema.matches.active_matches import (
    ActiveMatch,
    ActiveMatchMutations,
    ActiveMatchQueries,
    ActiveMatchSubscriptions,
)
from schema.matches.devices import Device, DeviceMutations, DeviceQueries
from schema.matches.display_states import DisplayState, DisplayStateQueries
from schema.matches.fixtures import FixtureMutations, FixtureQueries, Match
from schema.matches.leagues import League, LeagueMutations, LeagueQueries
from schema.matches.live_activities import LiveActivity, LiveActivityMutations, LiveActivityQueries
from schema.matches.locks import LockQueries
from schema.matches.match_follows import MatchFollow, MatchFollowMutations, MatchFollowQueries
from schema.matches.team_seasons import TeamSeason, TeamSeasonMutations, TeamSeasonQueries
from schema.matches.teams import Team, TeamMutations, TeamQueries
from schema.systems import System

SYSTEM = System(
    queries=(
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
    ),
    mutations=(
        FixtureMutations,
        ActiveMatchMutations,
        TeamMutations,
        TeamSeasonMutations,
        LeagueMutations,
        MatchFollowMutations,
        DeviceMutations,
        LiveActivityMutations,
    ),
    subscriptions=(ActiveMatchSubscriptions,),
    nodes=(Match, ActiveMatch, MatchFollow, Team, TeamSeason, League, DisplayState, Device, LiveActivity),
)
