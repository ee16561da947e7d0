"""GraphQL types and fields of seasons and their teams."""

from datetime import datetime

import strawberry

from datastore.keyspace.matches import team_seasons as patterns
from datastore.keyspace.matches import teams as team_patterns
from resolvers.matches import team_seasons as resolve
from schema.connections import Connection
from schema.fields import pattern_field
from schema.matches.teams import Team


@strawberry.type(description="A team's record in a season of a league. Unknown figures are null.")
class TeamSeason:
    season_id: strawberry.ID = strawberry.field(description="The season's id at the source.")
    season_name: str | None = strawberry.field(
        description="The name of the season, such as 2026; null if it is unknown."
    )
    league_id: strawberry.ID | None = strawberry.field(
        description="The `leagueId` of the season's league; null if it is unknown."
    )
    team_id: strawberry.ID = strawberry.field(description="The `teamId` of the team.")
    team = pattern_field(
        team_patterns.TEAM,
        resolver=resolve.team,
        depends_on="team_id",
        graphql_type=Team | None,
        description="The team; null if it is not stored.",
    )
    position: int | None = strawberry.field(description="The position in the table, from 1.")
    played: int | None = strawberry.field(description="The matches played.")
    won: int | None = strawberry.field(description="The matches won.")
    lost: int | None = strawberry.field(description="The matches lost.")
    drawn: int | None = strawberry.field(description="The matches drawn or tied.")
    no_result: int | None = strawberry.field(description="The matches without a result.")
    points: float | None = strawberry.field(description="The points.")
    net_run_rate: float | None = strawberry.field(
        description="The net run rate: runs scored per over minus runs conceded per over."
    )
    updated_at: datetime | None = strawberry.field(description="The time at which the record was last stored.")


@strawberry.type(description="A season of a league.")
class Season:
    season_id: strawberry.ID = strawberry.field(description="The season's id at the source.")
    teams = pattern_field(
        patterns.TEAMS_OF_SEASON,
        resolver=resolve.teams_of_season,
        graphql_type=Connection[TeamSeason],
        description="The teams' records in the season, by `teamId`.",
    )


@strawberry.type
class TeamSeasonQueries:
    season_teams = pattern_field(
        patterns.TEAMS_OF_SEASON,
        resolver=resolve.season_teams,
        graphql_type=Connection[TeamSeason],
        description="Return the teams' records in a season, by `teamId`.",
    )


@strawberry.type
class TeamSeasonMutations:
    sync_team_seasons = pattern_field(
        patterns.SYNC_TEAM_SEASONS,
        resolver=resolve.sync_team_seasons,
        graphql_type=list[TeamSeason],
        description="Store rows of a season's table, each in place of the team's stored row, and return the rows. "
        "If several rows name the same team, the last one counts. Rows of teams that are not named stay.",
    )
