"""What the API says about leagues: the shape only."""

from datetime import datetime
from typing import Any

import strawberry

from datastore.keyspace.matches import leagues as patterns
from datastore.matches import leagues as records
from datastore.model.access_patterns import Extent
from resolvers.matches import leagues as resolve
from resolvers.shared import node_ids as nodes
from schema.connections import Node
from schema.fields import VERSION, ask
from schema.matches.team_seasons import Season


@strawberry.type(description="A cricket league or competition.")
class League(Node):
    id = strawberry.field(resolver=nodes.league_id, graphql_type=strawberry.ID, description="Globally unique.")
    league_id: strawberry.ID = strawberry.field(description="Unique among leagues: its id at the source.")
    name: str = strawberry.field(description="The full name.")
    code: str = strawberry.field(description="The short name in upper case, such as IPL; matches are found by it.")
    active: bool = strawberry.field(description="Whether its matches are synced and polled.")
    season_id: strawberry.ID | None = strawberry.field(description="The id of the season now on.")
    season = strawberry.field(
        resolver=resolve.season, graphql_type=Season | None, description="The season now on, with its teams."
    )
    image_url: str | None = strawberry.field(description="Where its badge is.")
    country_id: strawberry.ID | None = strawberry.field(description="The source's id of its country.")
    type: str | None = strawberry.field(description="What kind it is, as the source has it, such as league or phase.")
    updated_at: datetime | None = strawberry.field(description="When it was last stored or changed.")
    version: int = strawberry.field(description=VERSION)

    @classmethod
    def is_type_of(cls, value: Any, _info: object) -> bool:
        return isinstance(value, records.League)


@strawberry.type
class LeagueQueries:
    league = ask(patterns.LEAGUE, resolver=resolve.league, graphql_type=League | None, description="A league, or null.")
    leagues = ask(
        patterns.ALL_LEAGUES,
        patterns.ACTIVE_LEAGUES,
        resolver=resolve.leagues,
        graphql_type=list[League],
        extent=Extent(size=10),
        description="The leagues by name. What other processes changed may show 30 seconds later.",
    )


@strawberry.type
class LeagueMutations:
    put_league = ask(
        patterns.PUT_LEAGUE,
        resolver=resolve.put_league,
        graphql_type=League,
        description="Store a league in place of the one with its id: the league as it stands now.",
    )
    update_league = ask(
        patterns.UPDATE_LEAGUE,
        resolver=resolve.update_league,
        graphql_type=League,
        description="Change some fields of a league, until it is put again: the league as it is then.",
    )
    delete_league = ask(
        patterns.DELETE_LEAGUE,
        resolver=resolve.delete_league,
        graphql_type=League,
        description="Delete a league; answers the league that was deleted.",
    )
