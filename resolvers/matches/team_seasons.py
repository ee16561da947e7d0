"""Records of teams in seasons: TS-1, TS-2."""

from typing import Annotated, Unpack

import strawberry

from datastore.keyspace.matches import team_seasons as keys
from datastore.matches.team_seasons import Season, TeamSeason
from datastore.session.pagination import SortOrder
from resolvers.matches import ids
from resolvers.shared import validation as validate
from resolvers.shared.arguments import argument, optional, required
from resolvers.shared.authorization import require
from resolvers.shared.context import Info
from resolvers.shared.paging import Connection, Paging, connection_of, paged_in

DECIMALS = 6


def _decimal(field: str, value: float) -> float:
    # DynamoDB rejects tiny numbers, such as 1e-200.
    return round(validate.number(field, value, minimum=-100_000.0, maximum=100_000.0), DECIMALS)


OWN_CHECKS: dict[str, validate.Check] = {
    "team_id": ids.team_id,
    "league_id": ids.league_id,
    "points": _decimal,
    "net_run_rate": _decimal,
}

SeasonId = Annotated[strawberry.ID, argument("The season's `seasonId` or `id`.")]
NewSeasonId = Annotated[
    strawberry.ID,
    argument("The season's id at the source, 1 to 100 characters, or the `id` of a known season."),
]


@strawberry.input(description="A team's record in a season.")
class TeamSeasonInput:
    team_id: strawberry.ID = required("The `teamId` or `id` of the team, 1 to 100 characters.")
    position: int | None = optional("The position in the table, 1 to 10,000; null if it is unknown.")
    played: int | None = optional("The matches played, 0 to 10,000; null if it is unknown.")
    won: int | None = optional("The matches won, 0 to 10,000; null if it is unknown.")
    lost: int | None = optional("The matches lost, 0 to 10,000; null if it is unknown.")
    drawn: int | None = optional("The matches drawn or tied, 0 to 10,000; null if it is unknown.")
    no_result: int | None = optional("The matches without a result, 0 to 10,000; null if it is unknown.")
    points: float | None = optional(
        "The points, -100,000 to 100,000, with at most six decimals; null if it is unknown."
    )
    net_run_rate: float | None = optional(
        "The net run rate, -100,000 to 100,000, with at most six decimals; null if it is unknown."
    )


@strawberry.input(description="Teams' records in a season.")
class SyncTeamSeasonsInput:
    season_name: str | None = optional(
        "The name of the season, such as 2026, 1 to 200 characters; null if it is unknown."
    )
    league_id: strawberry.ID | None = optional(
        "The `leagueId` or `id` of the season's league, 1 to 100 characters; null if it is unknown."
    )
    team_seasons: list[TeamSeasonInput] = required("The teams' records, at most 100.")


Input = Annotated[SyncTeamSeasonsInput, argument("The teams' records.")]


@paged_in(SortOrder.ASCENDING, consistent=True)
async def team_seasons(info: Info, season_id: SeasonId, **paging: Unpack[Paging]) -> Connection[TeamSeason]:
    return await _of_season(info, ids.season_id("seasonId", season_id), paging)


@paged_in(SortOrder.ASCENDING)
async def team_seasons_of_season(
    parent: strawberry.Parent[Season], info: Info, **paging: Unpack[Paging]
) -> Connection[TeamSeason]:
    return await _of_season(info, parent.season_id, paging)


async def _of_season(info: Info, season_id: str, paging: Paging) -> Connection[TeamSeason]:
    connection = connection_of(info, keys.TEAMS_OF_SEASON, TeamSeason.decoder, {"seasonId": season_id})
    page = await info.context.team_seasons.of_season(season_id, connection.span(**paging))
    return connection.of(page)


async def sync_team_seasons(info: Info, season_id: NewSeasonId, input: Input) -> list[TeamSeason]:
    require(info.context.identity, keys.SYNC_TEAM_SEASONS)
    validate.list_size("teamSeasons", input.team_seasons)
    of_season = validate.fields(input, TeamSeason, own=OWN_CHECKS)
    season = ids.season_id("seasonId", season_id)
    return await info.context.team_seasons.put_all(
        [
            TeamSeason(
                season,
                **of_season,
                **validate.fields(team, TeamSeason, f"teamSeasons[{index}].", own=OWN_CHECKS),
            )
            for index, team in enumerate(input.team_seasons)
        ]
    )
