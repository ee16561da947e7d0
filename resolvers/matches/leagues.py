"""Leagues: LG-1 … LG-6."""

from collections.abc import Sequence
from typing import Annotated

import strawberry

from datastore.keyspace.matches import leagues as keys
from datastore.matches.leagues import League
from datastore.matches.team_seasons import Season
from resolvers.shared import validation as validate
from resolvers.shared.arguments import EXPECTED_VERSION
from resolvers.shared.authorization import require
from resolvers.shared.context import Info

CHECKS: dict[str, validate.Check] = {
    "name": validate.name,
    "code": validate.code,
    "active": validate.boolean,
    "season_id": validate.id,
    "image_url": validate.url,
    "country_id": validate.id,
    "type": validate.id,
}
INPUT_CHECKS: dict[str, validate.Check] = {"league_id": validate.id, **CHECKS}
REMOVABLE = ("season_id", "image_url", "country_id", "type")

Id = Annotated[strawberry.ID, strawberry.argument(description="The league's `leagueId`.")]
Active = Annotated[
    bool | None,
    strawberry.argument(description="Whether to return active or inactive leagues; by default all."),
]


@strawberry.input(description="A league as the source describes it.")
class LeagueInput:
    league_id: strawberry.ID = strawberry.field(description="The league's id at the source, 1 to 100 characters.")
    name: str = strawberry.field(description="The full name, 1 to 200 characters.")
    code: str = strawberry.field(
        description="The short name, such as IPL, 1 to 20 characters. It is stored in upper case."
    )
    active: bool = strawberry.field(
        description="Whether the league's matches are synchronised and polled.", default=True
    )
    season_id: strawberry.ID | None = strawberry.field(
        description="The current season's id at the source.", default=None
    )
    image_url: str | None = strawberry.field(description="The http(s) address of the league's badge.", default=None)
    country_id: strawberry.ID | None = strawberry.field(description="The country's id at the source.", default=None)
    type: str | None = strawberry.field(description="The kind of league, such as league or phase.", default=None)


@strawberry.input(description="The fields of a league to change. Omitted fields keep their values.")
class UpdateLeagueInput:
    name: strawberry.Maybe[str | None] = strawberry.field(
        description="The full name, 1 to 200 characters.", default=None
    )
    code: strawberry.Maybe[str | None] = strawberry.field(
        description="The short name, 1 to 20 characters. Stored matches keep the previous code.", default=None
    )
    active: strawberry.Maybe[bool | None] = strawberry.field(
        description="Whether the league's matches are synchronised and polled.", default=None
    )
    season_id: strawberry.Maybe[strawberry.ID | None] = strawberry.field(
        description="The current season's id at the source, 1 to 100 characters. Null removes it.", default=None
    )
    image_url: strawberry.Maybe[str | None] = strawberry.field(
        description="The http(s) address of the league's badge. Null removes it.", default=None
    )
    country_id: strawberry.Maybe[strawberry.ID | None] = strawberry.field(
        description="The country's id at the source, 1 to 100 characters. Null removes it.", default=None
    )
    type: strawberry.Maybe[str | None] = strawberry.field(
        description="The kind of league, 1 to 100 characters. Null removes it.", default=None
    )
    expected_version: int | None = strawberry.field(description=EXPECTED_VERSION, default=None)


Input = Annotated[LeagueInput, strawberry.argument(description="The league to store.")]
Changes = Annotated[UpdateLeagueInput, strawberry.argument(description="The changes, at least one field.")]


async def league(info: Info, id: Id) -> League | None:
    return await info.context.leagues.by_id(validate.id("id", id))


async def leagues(info: Info, active: Active = None) -> Sequence[League]:
    return await info.context.leagues.all(active=active)


async def season(parent: strawberry.Parent[League]) -> Season | None:
    return None if parent.season_id is None else Season(parent.season_id)


async def put_league(info: Info, input: Input) -> League:
    require(info.context.identity, keys.PUT_LEAGUE)
    return await info.context.leagues.put(League(**validate.fields(input, INPUT_CHECKS)))


async def update_league(info: Info, id: Id, input: Changes) -> League:
    require(info.context.identity, keys.UPDATE_LEAGUE)
    changes, expected = validate.changes(input, CHECKS, REMOVABLE), validate.version(input.expected_version)
    return await info.context.leagues.update(validate.id("id", id), changes, expected)


async def delete_league(info: Info, id: Id) -> League:
    require(info.context.identity, keys.DELETE_LEAGUE)
    return await info.context.leagues.delete(validate.id("id", id))
