"""GraphQL types and fields of leagues."""

from datetime import datetime

import strawberry

from datastore.keyspace.matches import fixtures as fixture_patterns
from datastore.keyspace.matches import leagues as patterns
from datastore.matches import leagues as records
from datastore.model.access_patterns import Extent
from resolvers.matches import fixtures as resolve_fixtures
from resolvers.matches import leagues as resolve
from resolvers.matches import related
from schema.connections import Connection
from schema.fields import VERSION, described, pattern_field
from schema.matches.lazy_types import LazyMatch
from schema.matches.team_seasons import Season
from schema.nodes import Node, node_type


@node_type(
    records.League,
    patterns.LEAGUE,
    parts=("league_id",),
    read=lambda context, *key: context.leagues.by_id(*key),
    description="A cricket league or competition.",
)
class League(Node):
    league_id: strawberry.ID = described("The league's id at the source, unique among leagues.")
    name: str = described("The full name.")
    code: str = described("The short name in upper case, such as IPL. `matchesByLeague` finds matches by it.")
    active: bool = described("Whether the league's matches are synchronised and polled.")
    current_season_id: strawberry.ID | None = described("The `seasonId` of the current season; null if it is unknown.")
    current_season = strawberry.field(
        resolver=related.current_season,
        graphql_type=Season | None,
        description="The current season with its teams; null if it is unknown.",
    )
    image_url: str | None = described("The address of the league's badge; null without one.")
    country_id: strawberry.ID | None = described("The country's id at the source; null if it is unknown.")
    type: str | None = described(
        "The type of league in the source's words, such as league or phase; null if it is unknown."
    )
    updated_at: datetime | None = described(
        "The time at which the league was last stored or changed; null if it is unknown."
    )
    version: int = described(VERSION)
    matches = pattern_field(
        fixture_patterns.BY_LEAGUE,
        resolver=resolve_fixtures.matches_of_league,
        graphql_type=Connection[LazyMatch],
        description="The matches of the league that start within a range of times, soonest first. Matches that were "
        "stored with an earlier `code` of the league are not among them.",
    )


@strawberry.type
class LeagueQueries:
    league = pattern_field(
        patterns.LEAGUE,
        resolver=resolve.league,
        graphql_type=League | None,
        description="Return a league; null if it is unknown.",
    )
    leagues = pattern_field(
        patterns.ALL_LEAGUES,
        patterns.ACTIVE_LEAGUES,
        resolver=resolve.leagues,
        graphql_type=Connection[League],
        extent=Extent(scans=30, ignores={"active": "The Scan reads all leagues."}),
        description="Return the leagues, by `name`. A change becomes visible at most 30 seconds later.",
    )


@strawberry.type
class LeagueMutations:
    put_league = pattern_field(
        patterns.PUT_LEAGUE,
        resolver=resolve.put_league,
        graphql_type=League,
        description="Store a league in place of the stored league with the same id, if there is one, and return it.",
    )
    update_league = pattern_field(
        patterns.UPDATE_LEAGUE,
        resolver=resolve.update_league,
        graphql_type=League,
        description="Change some fields of a league, and return it. The next `putLeague` overwrites the changes. "
        "NOT_FOUND for an unknown league.",
    )
    delete_league = pattern_field(
        patterns.DELETE_LEAGUE,
        resolver=resolve.delete_league,
        graphql_type=League | None,
        description="Delete a league. Return it as it was, or null if there was none.",
    )
