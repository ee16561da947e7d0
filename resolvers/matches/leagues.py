"""Leagues: LG-1 … LG-6."""

from collections.abc import Sequence
from typing import Annotated, Unpack

import strawberry

from datastore.keyspace.matches import leagues as keys
from datastore.matches.leagues import League
from datastore.session.pagination import SortOrder
from resolvers.matches import ids
from resolvers.matches.reference_lists import list_by_name
from resolvers.shared import validation as validate
from resolvers.shared.arguments import EXPECTED_VERSION, Consistent, argument, optional, required
from resolvers.shared.authorization import require
from resolvers.shared.context import Info
from resolvers.shared.paging import Connection, Paging, paged_in

OWN_CHECKS: dict[str, validate.Check] = {"current_season_id": ids.season_id}

Id = Annotated[strawberry.ID, argument("The league's `leagueId` or `id`.")]
NewId = Annotated[
    strawberry.ID,
    argument("The league's id at the source, 1 to 100 characters, or the `id` of a stored league."),
]
Active = Annotated[bool | None, argument("Whether to return active or inactive leagues; by default all.")]


@strawberry.input(description="A league as the source describes it.")
class LeagueInput:
    name: str = required("The full name, 1 to 200 characters.")
    code: str = required("The short name, such as IPL, 1 to 20 characters. ASCII letters are stored in upper case.")
    active: bool = strawberry.field(
        description="Whether the league's matches are synchronised and polled.", default=True
    )
    current_season_id: strawberry.ID | None = optional(
        "The `seasonId` or `id` of the current season, 1 to 100 characters; null if it is unknown."
    )
    image_url: str | None = optional(
        "The http(s) address of the league's badge, at most 1,000 characters; null without one."
    )
    country_id: strawberry.ID | None = optional(
        "The country's id at the source, 1 to 100 characters; null if it is unknown."
    )
    type: str | None = optional(
        "The type of league in the source's words, such as league or phase, 1 to 100 characters; null if it is unknown."
    )


@strawberry.input(description="The fields of a league to change. Omitted fields keep their values.")
class UpdateLeagueInput:
    name: strawberry.Maybe[str | None] = optional("The full name, 1 to 200 characters.")
    code: strawberry.Maybe[str | None] = optional(
        "The short name, 1 to 20 characters. ASCII letters are stored in upper case. Stored matches keep the previous "
        "code."
    )
    active: strawberry.Maybe[bool | None] = optional("Whether the league's matches are synchronised and polled.")
    current_season_id: strawberry.Maybe[strawberry.ID | None] = optional(
        "The `seasonId` or `id` of the current season, 1 to 100 characters. Null removes it."
    )
    image_url: strawberry.Maybe[str | None] = optional(
        "The http(s) address of the league's badge, at most 1,000 characters. Null removes it."
    )
    country_id: strawberry.Maybe[strawberry.ID | None] = optional(
        "The country's id at the source, 1 to 100 characters. Null removes it."
    )
    type: strawberry.Maybe[str | None] = optional(
        "The type of league in the source's words, 1 to 100 characters. Null removes it."
    )
    expected_version: int | None = optional(EXPECTED_VERSION)


Input = Annotated[LeagueInput, argument("The league to store.")]
Changes = Annotated[UpdateLeagueInput, argument("The changes, at least one field.")]


async def league(info: Info, id: Id, consistent: Consistent = False) -> League | None:
    return await info.context.leagues.by_id(ids.league_id("id", id), consistent=consistent)


async def leagues_by_id(league_ids: Sequence[str], info: Info) -> Sequence[League | Exception | None]:
    return await info.context.leagues.by_ids(league_ids)


@paged_in(SortOrder.ASCENDING)
async def leagues(info: Info, active: Active = None, **paging: Unpack[Paging]) -> Connection[League]:
    connection = list_by_name(info, keys.ALL_LEAGUES, {"active": active})
    span = connection.span(**paging)
    return connection.of(info.context.leagues.page(await info.context.leagues.all(active=active), span))


async def put_league(info: Info, id: NewId, input: Input) -> League:
    require(info.context.identity, keys.PUT_LEAGUE)
    league_id = ids.league_id("id", id)
    return await info.context.leagues.put(League(league_id, **validate.fields(input, League, own=OWN_CHECKS)))


async def update_league(info: Info, id: Id, input: Changes) -> League:
    require(info.context.identity, keys.UPDATE_LEAGUE)
    changes, expected = validate.changes(input, League, own=OWN_CHECKS), validate.version(input.expected_version)
    return await info.context.leagues.update(ids.league_id("id", id), changes, expected)


async def delete_league(info: Info, id: Id) -> League | None:
    require(info.context.identity, keys.DELETE_LEAGUE)
    return await info.context.leagues.delete(ids.league_id("id", id))
