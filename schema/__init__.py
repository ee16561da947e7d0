"""The API: every system's queries, mutations and subscriptions in one schema."""

import strawberry
from graphql import GraphQLError
from strawberry.extensions import ParserCache, ValidationCache
from strawberry.types import ExecutionContext

from schema.earthquakes import Earthquake, EarthquakeMutations, EarthquakeQueries, EarthquakeSubscriptions
from schema.me import MeQueries
from schema.nodes import NodeQueries
from schema.sightings import Sighting, SightingMutations, SightingQueries, SightingSubscriptions, UserProfile, Watch

DOCUMENTS_CACHED = 512


@strawberry.type(description="What can be asked.")
class Query(SightingQueries, EarthquakeQueries, NodeQueries, MeQueries):
    pass


@strawberry.type(description="What can be done.")
class Mutation(SightingMutations, EarthquakeMutations):
    pass


@strawberry.type(description="What can be followed live.")
class Subscription(SightingSubscriptions, EarthquakeSubscriptions):
    pass


class Schema(strawberry.Schema):
    """Leaves errors to the edge, which masks and logs them."""

    def process_errors(self, errors: list[GraphQLError], execution_context: ExecutionContext | None = None) -> None:
        pass


def build() -> Schema:
    """The schema; parsed and validated documents are kept for the next request with the same text."""
    return Schema(
        query=Query,
        mutation=Mutation,
        subscription=Subscription,
        types=[Earthquake, Sighting, UserProfile, Watch],
        extensions=[
            lambda: ParserCache(maxsize=DOCUMENTS_CACHED),
            lambda: ValidationCache(maxsize=DOCUMENTS_CACHED),
        ],
    )
