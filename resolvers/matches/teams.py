"""Teams: TM-1 … TM-4."""

from collections.abc import Sequence
from typing import Annotated

import strawberry

from datastore.keyspace.matches import teams as keys
from datastore.matches.teams import Team
from resolvers.shared import validation as validate
from resolvers.shared.arguments import EXPECTED_VERSION
from resolvers.shared.authorization import require
from resolvers.shared.context import Info

CHECKS: dict[str, validate.Check] = {
    "name": validate.name,
    "code": validate.code,
    "image_url": validate.url,
    "country_id": validate.id,
    "national": validate.boolean,
}
INPUT_CHECKS: dict[str, validate.Check] = {"team_id": validate.id, **CHECKS}
REMOVABLE = ("image_url", "country_id")

Id = Annotated[strawberry.ID, strawberry.argument(description="The team's `teamId`.")]


@strawberry.input(description="A team as the source describes it.")
class TeamInput:
    team_id: strawberry.ID = strawberry.field(description="The team's id at the source, 1 to 100 characters.")
    name: str = strawberry.field(description="The full name, 1 to 200 characters.")
    code: str = strawberry.field(description="The short name, such as IND, 1 to 20 characters.")
    image_url: str | None = strawberry.field(description="The http(s) address of the team's badge.", default=None)
    country_id: strawberry.ID | None = strawberry.field(description="The country's id at the source.", default=None)
    national: bool = strawberry.field(
        description="Whether the team is a country's side; otherwise it is a club.", default=False
    )


@strawberry.input(description="The fields of a team to change. Omitted fields keep their values.")
class UpdateTeamInput:
    name: strawberry.Maybe[str | None] = strawberry.field(
        description="The full name, 1 to 200 characters.", default=None
    )
    code: strawberry.Maybe[str | None] = strawberry.field(
        description="The short name, 1 to 20 characters.", default=None
    )
    image_url: strawberry.Maybe[str | None] = strawberry.field(
        description="The http(s) address of the team's badge. Null removes it.", default=None
    )
    country_id: strawberry.Maybe[strawberry.ID | None] = strawberry.field(
        description="The country's id at the source, 1 to 100 characters. Null removes it.", default=None
    )
    national: strawberry.Maybe[bool | None] = strawberry.field(
        description="Whether the team is a country's side.", default=None
    )
    expected_version: int | None = strawberry.field(description=EXPECTED_VERSION, default=None)


TeamInputs = Annotated[list[TeamInput], strawberry.argument(description="The teams, at most 100.")]
Changes = Annotated[UpdateTeamInput, strawberry.argument(description="The changes, at least one field.")]


async def team(info: Info, id: Id) -> Team | None:
    return await info.context.teams.by_id(validate.id("id", id))


async def teams(info: Info) -> Sequence[Team]:
    return await info.context.teams.all()


async def sync_teams(info: Info, teams: TeamInputs) -> list[Team]:
    require(info.context.identity, keys.SYNC_TEAMS)
    validate.list_size("teams", teams)
    return await info.context.teams.put_all(
        [Team(**validate.fields(team, INPUT_CHECKS, f"teams[{index}].")) for index, team in enumerate(teams)]
    )


async def update_team(info: Info, id: Id, input: Changes) -> Team:
    require(info.context.identity, keys.UPDATE_TEAM)
    changes, expected = validate.changes(input, CHECKS, REMOVABLE), validate.version(input.expected_version)
    return await info.context.teams.update(validate.id("id", id), changes, expected)
