"""Records of teams in seasons: TS-1, TS-2."""

from functools import partial
from typing import Annotated

import strawberry

from datastore.keyspace.matches import team_seasons as keys
from datastore.matches.team_seasons import Season, TeamSeason, team_season_from
from datastore.matches.teams import Team
from resolvers.shared import validation as validate
from resolvers.shared.arguments import After, Before, First, Last
from resolvers.shared.authorization import require
from resolvers.shared.context import Context, Info
from resolvers.shared.paging import Connection, PagingArguments

MAX_MATCHES = 10_000
DECIMALS = 6


def _decimal(field: str, value: float) -> float:
    # DynamoDB rejects tiny numbers, such as 1e-200.
    return round(validate.number(field, value, minimum=-100_000.0, maximum=100_000.0), DECIMALS)


_count = partial(validate.number, minimum=0, maximum=MAX_MATCHES)
CHECKS: dict[str, validate.Check] = {
    "team_id": validate.id,
    "position": partial(validate.number, minimum=1, maximum=MAX_MATCHES),
    "played": _count,
    "won": _count,
    "lost": _count,
    "drawn": _count,
    "no_result": _count,
    "points": _decimal,
    "net_run_rate": _decimal,
}
SEASON_CHECKS: dict[str, validate.Check] = {
    "season_id": validate.id,
    "season_name": validate.name,
    "league_id": validate.id,
}

SeasonId = Annotated[strawberry.ID, strawberry.argument(description="The season's id at the source.")]


@strawberry.input(description="A team's record in a season. Omit unknown figures.")
class TeamSeasonInput:
    team_id: strawberry.ID = strawberry.field(description="The `teamId` of the team, 1 to 100 characters.")
    position: int | None = strawberry.field(description="The position in the table, 1 to 10,000.", default=None)
    played: int | None = strawberry.field(description="The matches played, 0 to 10,000.", default=None)
    won: int | None = strawberry.field(description="The matches won, 0 to 10,000.", default=None)
    lost: int | None = strawberry.field(description="The matches lost, 0 to 10,000.", default=None)
    drawn: int | None = strawberry.field(description="The matches drawn or tied, 0 to 10,000.", default=None)
    no_result: int | None = strawberry.field(description="The matches without a result, 0 to 10,000.", default=None)
    points: float | None = strawberry.field(
        description="The points, -100,000 to 100,000, with at most six decimals.", default=None
    )
    net_run_rate: float | None = strawberry.field(
        description="The net run rate, -100,000 to 100,000, with at most six decimals.", default=None
    )


@strawberry.input(description="The table of a season.")
class SyncTeamSeasonsInput:
    season_id: strawberry.ID = strawberry.field(description="The season's id at the source, 1 to 100 characters.")
    season_name: str | None = strawberry.field(
        description="The name of the season, such as 2026, 1 to 200 characters.", default=None
    )
    league_id: strawberry.ID | None = strawberry.field(
        description="The `leagueId` of the season's league.", default=None
    )
    teams: list[TeamSeasonInput] = strawberry.field(description="The teams' records, at most 100.")


Input = Annotated[SyncTeamSeasonsInput, strawberry.argument(description="The season and its teams' records.")]


async def season_teams(
    info: Info,
    season_id: SeasonId,
    first: First = None,
    after: After = None,
    last: Last = None,
    before: Before = None,
) -> Connection[TeamSeason]:
    paging = (first, after, last, before)
    return await _teams(info.context, "Query.seasonTeams", validate.id("seasonId", season_id), paging)


async def teams_of_season(
    parent: strawberry.Parent[Season],
    info: Info,
    first: First = None,
    after: After = None,
    last: Last = None,
    before: Before = None,
) -> Connection[TeamSeason]:
    return await _teams(info.context, "Season.teams", parent.season_id, (first, after, last, before))


async def _teams(context: Context, field: str, season_id: str, paging: PagingArguments) -> Connection[TeamSeason]:
    connection = Connection(
        context.services.cursors, keys.TEAMS_OF_SEASON, field, {"seasonId": season_id}, team_season_from
    )
    page = await context.team_seasons.of_season(season_id, connection.span(*paging))
    return connection.of(page)


async def team(parent: strawberry.Parent[TeamSeason], info: Info) -> Team | None:
    return await info.context.teams.by_id(parent.team_id)


async def sync_team_seasons(info: Info, input: Input) -> list[TeamSeason]:
    require(info.context.identity, keys.SYNC_TEAM_SEASONS)
    validate.list_size("teams", input.teams)
    of_season = validate.fields(input, SEASON_CHECKS)
    return await info.context.team_seasons.put_all(
        [
            TeamSeason(**of_season, **validate.fields(team, CHECKS, f"teams[{index}]."))
            for index, team in enumerate(input.teams)
        ]
    )
