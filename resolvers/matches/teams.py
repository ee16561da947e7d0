"""Teams: TM-1 … TM-4."""

from collections.abc import Sequence
from typing import Annotated, Unpack

import strawberry

from datastore.keyspace.matches import teams as keys
from datastore.matches.teams import Team
from datastore.session.pagination import SortOrder
from resolvers.matches import ids
from resolvers.matches.reference_lists import list_by_name
from resolvers.shared import validation as validate
from resolvers.shared.arguments import EXPECTED_VERSION, Consistent, argument, optional, required
from resolvers.shared.authorization import require
from resolvers.shared.context import Info
from resolvers.shared.paging import Connection, Paging, paged_in

OWN_CHECKS: dict[str, validate.Check] = {"team_id": ids.team_id}

Id = Annotated[strawberry.ID, argument("The team's `teamId` or `id`.")]


@strawberry.input(description="A team as the source describes it.")
class TeamInput:
    team_id: strawberry.ID = required("The team's id at the source, 1 to 100 characters, or the `id` of a stored team.")
    name: str = required("The full name, 1 to 200 characters.")
    code: str = required("The short name, such as IND, 1 to 20 characters.")
    image_url: str | None = optional(
        "The http(s) address of the team's badge, at most 1,000 characters; null without one."
    )
    country_id: strawberry.ID | None = optional(
        "The country's id at the source, 1 to 100 characters; null if it is unknown."
    )
    national: bool = strawberry.field(
        description="Whether the team is a country's side; otherwise it is a club.", default=False
    )


@strawberry.input(description="The fields of a team to change. Omitted fields keep their values.")
class UpdateTeamInput:
    name: strawberry.Maybe[str | None] = optional("The full name, 1 to 200 characters.")
    code: strawberry.Maybe[str | None] = optional("The short name, 1 to 20 characters.")
    image_url: strawberry.Maybe[str | None] = optional(
        "The http(s) address of the team's badge, at most 1,000 characters. Null removes it."
    )
    country_id: strawberry.Maybe[strawberry.ID | None] = optional(
        "The country's id at the source, 1 to 100 characters. Null removes it."
    )
    national: strawberry.Maybe[bool | None] = optional("Whether the team is a country's side.")
    expected_version: int | None = optional(EXPECTED_VERSION)


TeamInputs = Annotated[list[TeamInput], argument("The teams, at most 100.")]
Changes = Annotated[UpdateTeamInput, argument("The changes, at least one field.")]


async def team(info: Info, id: Id, consistent: Consistent = False) -> Team | None:
    return await info.context.teams.by_id(ids.team_id("id", id), consistent=consistent)


async def teams_by_id(team_ids: Sequence[str], info: Info) -> Sequence[Team | Exception | None]:
    return await info.context.teams.by_ids(team_ids)


@paged_in(SortOrder.ASCENDING)
async def teams(info: Info, **paging: Unpack[Paging]) -> Connection[Team]:
    connection = list_by_name(info, keys.ALL_TEAMS)
    span = connection.span(**paging)
    return connection.of(info.context.teams.page(await info.context.teams.all(), span))


async def sync_teams(info: Info, input: TeamInputs) -> list[Team]:
    require(info.context.identity, keys.SYNC_TEAMS)
    validate.list_size("input", input)
    return await info.context.teams.put_all(
        [Team(**validate.fields(team, Team, f"input[{index}].", own=OWN_CHECKS)) for index, team in enumerate(input)]
    )


async def update_team(info: Info, id: Id, input: Changes) -> Team:
    require(info.context.identity, keys.UPDATE_TEAM)
    changes, expected = validate.changes(input, Team), validate.version(input.expected_version)
    return await info.context.teams.update(ids.team_id("id", id), changes, expected)
