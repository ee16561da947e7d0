"""What the API says about seasons and their teams: the shape only."""

from datetime import datetime

import strawberry

from datastore.keyspace.matches import team_seasons as patterns
from datastore.keyspace.matches import teams as team_patterns
from resolvers.matches import team_seasons as resolve
from schema.connections import Connection
from schema.fields import ask
from schema.matches.teams import Team


@strawberry.type(description="How a team fares in a season of a league. A figure is null where it is not known.")
class TeamSeason:
    season_id: strawberry.ID = strawberry.field(description="The source's id of the season.")
    season_name: str | None = strawberry.field(description="The name of the season, such as 2026.")
    league_id: strawberry.ID | None = strawberry.field(description="The `leagueId` of the season's league.")
    team_id: strawberry.ID = strawberry.field(description="The `teamId`.")
    team = ask(
        team_patterns.TEAM,
        resolver=resolve.team,
        by="team_id",
        graphql_type=Team | None,
        description="The team, or null when it is not known (yet).",
    )
    position: int | None = strawberry.field(description="Its place in the table, from 1.")
    played: int | None = strawberry.field(description="Matches played.")
    won: int | None = strawberry.field(description="Matches won.")
    lost: int | None = strawberry.field(description="Matches lost.")
    drawn: int | None = strawberry.field(description="Matches drawn or tied.")
    no_result: int | None = strawberry.field(description="Matches without a result.")
    points: float | None = strawberry.field(description="Points.")
    net_run_rate: float | None = strawberry.field(
        description="Runs an over more than the others made against it; negative when they made more."
    )
    updated_at: datetime | None = strawberry.field(description="When it was last stored.")


@strawberry.type(description="A season of a league.")
class Season:
    season_id: strawberry.ID = strawberry.field(description="Its id at the source.")
    teams = ask(
        patterns.TEAMS_OF_SEASON,
        resolver=resolve.teams_of_season,
        graphql_type=Connection[TeamSeason],
        description="The teams and how they fare, by `teamId`.",
    )


@strawberry.type
class TeamSeasonQueries:
    season_teams = ask(
        patterns.TEAMS_OF_SEASON,
        resolver=resolve.season_teams,
        graphql_type=Connection[TeamSeason],
        description="The teams of a season and how they fare, by `teamId`.",
    )


@strawberry.type
class TeamSeasonMutations:
    sync_team_seasons = ask(
        patterns.SYNC_TEAM_SEASONS,
        resolver=resolve.sync_team_seasons,
        graphql_type=list[TeamSeason],
        description="Store rows of a season's table, each in place of the team's last one: the rows as they stand "
        "now. Of two with one team the last counts; rows of teams that are not named stay.",
    )
