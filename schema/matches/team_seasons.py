"""GraphQL types and fields of seasons and their teams."""

from datetime import datetime

import strawberry

from datastore.keyspace.matches import team_seasons as patterns
from datastore.keyspace.matches import teams as team_patterns
from datastore.matches import team_seasons as records
from resolvers.matches import team_seasons as resolve
from resolvers.matches import teams as resolve_teams
from schema.connections import Connection
from schema.fields import batch_field, described, pattern_field
from schema.matches.teams import Team
from schema.nodes import Node, node_type, object_type


@node_type(
    records.TeamSeason,
    patterns.TEAM_SEASON,
    parts=("season_id", "team_id"),
    read=lambda context, *key: context.team_seasons.by_key(*key),
    description="A team's record in a season of a league.",
)
class TeamSeason(Node):
    season_id: strawberry.ID = described("The season's id at the source.")
    season_name: str | None = described("The name of the season, such as 2026; null if it is unknown.")
    league_id: strawberry.ID | None = described("The `leagueId` of the season's league; null if it is unknown.")
    team_id: strawberry.ID = described("The `teamId` of the team.")
    team = batch_field(
        team_patterns.TEAM,
        resolver=resolve_teams.teams_by_id,
        depends_on="team_id",
        graphql_type=Team | None,
        description="The team; null if it is not stored.",
    )
    position: int | None = described("The position in the table, from 1; null if it is unknown.")
    played: int | None = described("The matches played; null if it is unknown.")
    won: int | None = described("The matches won; null if it is unknown.")
    lost: int | None = described("The matches lost; null if it is unknown.")
    drawn: int | None = described("The matches drawn or tied; null if it is unknown.")
    no_result: int | None = described("The matches without a result; null if it is unknown.")
    points: float | None = described("The points; null if it is unknown.")
    net_run_rate: float | None = described(
        "The net run rate: runs scored per over minus runs conceded per over; null if it is unknown."
    )
    updated_at: datetime | None = described("The time at which the record was last stored; null if it is unknown.")


@object_type("season_id", description="A season of a league.")
class Season:
    season_id: strawberry.ID = described("The season's id at the source.")
    team_seasons = pattern_field(
        patterns.TEAMS_OF_SEASON,
        resolver=resolve.team_seasons_of_season,
        graphql_type=Connection[TeamSeason],
        description="The teams' records in the season, by `teamId`.",
    )


@strawberry.type
class TeamSeasonQueries:
    team_seasons = pattern_field(
        patterns.TEAMS_OF_SEASON,
        resolver=resolve.team_seasons,
        graphql_type=Connection[TeamSeason],
        description="Return the teams' records in a season, by `teamId`; an empty list for an unknown season.",
    )


@strawberry.type
class TeamSeasonMutations:
    sync_team_seasons = pattern_field(
        patterns.SYNC_TEAM_SEASONS,
        resolver=resolve.sync_team_seasons,
        graphql_type=list[TeamSeason],
        description="Store teams' records in a season, each in place of the team's stored record, and return them in "
        "the order of the input, at most 100. If several name the same team, the last one counts. Records of teams "
        "that are not named stay.",
    )
