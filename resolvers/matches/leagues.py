"""Leagues: LG-1 … LG-6."""

from collections.abc import Sequence
from typing import Annotated

import strawberry

from datastore.keyspace.matches import leagues as keys
from datastore.matches.leagues import League
from datastore.matches.team_seasons import Season
from resolvers.shared import validation as bounds
from resolvers.shared.arguments import EXPECTED_VERSION
from resolvers.shared.authorization import require
from resolvers.shared.context import Info

CHECKS: dict[str, bounds.Check] = {
    "name": bounds.name,
    "code": bounds.code,
    "active": bounds.flag,
    "season_id": bounds.id,
    "image_url": bounds.url,
    "country_id": bounds.id,
    "type": bounds.id,
}
WHOLE_CHECKS: dict[str, bounds.Check] = {"league_id": bounds.id, **CHECKS}
REMOVABLE = ("season_id", "image_url", "country_id", "type")

Id = Annotated[strawberry.ID, strawberry.argument(description="The `leagueId`.")]
Active = Annotated[
    bool | None,
    strawberry.argument(description="Those that are active, or those that are not; all if nothing is said."),
]


@strawberry.input(description="A league as its source tells of it.")
class LeagueInput:
    league_id: strawberry.ID = strawberry.field(description="Its id at the source, 1 to 100 characters.")
    name: str = strawberry.field(description="The full name, 1 to 200 characters.")
    code: str = strawberry.field(description="The short name, such as IPL, 1 to 20 characters; kept in upper case.")
    active: bool = strawberry.field(description="Whether its matches are synced and polled.", default=True)
    season_id: strawberry.ID | None = strawberry.field(description="The id of the season now on.", default=None)
    image_url: str | None = strawberry.field(description="An http(s) address of its badge.", default=None)
    country_id: strawberry.ID | None = strawberry.field(description="The source's id of its country.", default=None)
    type: str | None = strawberry.field(description="What kind it is, such as league or phase.", default=None)


@strawberry.input(description="What to change of a league. What is left out stays as it is.")
class UpdateLeagueInput:
    name: strawberry.Maybe[str | None] = strawberry.field(description="1 to 200 characters.", default=None)
    code: strawberry.Maybe[str | None] = strawberry.field(
        description="1 to 20 characters. Matches keep the code that they were stored with.", default=None
    )
    active: strawberry.Maybe[bool | None] = strawberry.field(
        description="Whether its matches are synced and polled.", default=None
    )
    season_id: strawberry.Maybe[strawberry.ID | None] = strawberry.field(
        description="1 to 100 characters; null takes it away.", default=None
    )
    image_url: strawberry.Maybe[str | None] = strawberry.field(
        description="An http(s) address; null takes it away.", default=None
    )
    country_id: strawberry.Maybe[strawberry.ID | None] = strawberry.field(
        description="1 to 100 characters; null takes it away.", default=None
    )
    type: strawberry.Maybe[str | None] = strawberry.field(
        description="1 to 100 characters; null takes it away.", default=None
    )
    expected_version: int | None = strawberry.field(description=EXPECTED_VERSION, default=None)


Input = Annotated[LeagueInput, strawberry.argument(description="The league as it shall stand.")]
Changes = Annotated[UpdateLeagueInput, strawberry.argument(description="At least one field to change.")]


async def league(info: Info, id: Id) -> League | None:
    return await info.context.leagues.by_id(bounds.id("id", id))


async def leagues(info: Info, active: Active = None) -> Sequence[League]:
    return await info.context.leagues.all(active=active)


async def season(parent: strawberry.Parent[League]) -> Season | None:
    return None if parent.season_id is None else Season(parent.season_id)


async def put_league(info: Info, input: Input) -> League:
    require(info.context.identity, keys.PUT_LEAGUE)
    return await info.context.leagues.put(League(**bounds.checked(input, WHOLE_CHECKS)))


async def update_league(info: Info, id: Id, input: Changes) -> League:
    require(info.context.identity, keys.UPDATE_LEAGUE)
    changes, expected = bounds.changes(input, CHECKS, REMOVABLE), bounds.version(input.expected_version)
    return await info.context.leagues.update(bounds.id("id", id), changes, expected)


async def delete_league(info: Info, id: Id) -> League:
    require(info.context.identity, keys.DELETE_LEAGUE)
    return await info.context.leagues.delete(bounds.id("id", id))
