"""The API: every system's queries, mutations and subscriptions in one schema."""

from functools import cache
from typing import Any

import strawberry
from graphql import GraphQLNamedType, GraphQLSchema, is_input_object_type
from strawberry.schema.config import StrawberryConfig

from schema.earthquakes import Earthquake, EarthquakeMutations, EarthquakeQueries, EarthquakeSubscriptions
from schema.feeds import NODES as FEED_NODES
from schema.feeds import FeedMutations, FeedQueries, FeedSubscriptions
from schema.matches import NODES as MATCH_NODES
from schema.matches import MatchMutations, MatchQueries, MatchSubscriptions
from schema.me import MeQueries
from schema.nodes import NodeQueries
from schema.photos import NODES as PHOTO_NODES
from schema.photos import PhotoMutations, PhotoQueries, PhotoSubscriptions
from schema.scalars import SCALARS
from schema.sightings import Sighting, SightingMutations, SightingQueries, SightingSubscriptions, UserProfile, Watch


@strawberry.type(description="What can be asked.")
class Query(SightingQueries, FeedQueries, PhotoQueries, EarthquakeQueries, MatchQueries, NodeQueries, MeQueries):
    pass


@strawberry.type(description="What can be done.")
class Mutation(SightingMutations, FeedMutations, PhotoMutations, EarthquakeMutations, MatchMutations):
    pass


@strawberry.type(description="What can be followed live.")
class Subscription(
    SightingSubscriptions, FeedSubscriptions, PhotoSubscriptions, EarthquakeSubscriptions, MatchSubscriptions
):
    pass


@cache
def build() -> strawberry.Schema:
    """The schema, one for the process."""
    built = strawberry.Schema(
        query=Query,
        mutation=Mutation,
        subscription=Subscription,
        types=[Earthquake, Sighting, UserProfile, Watch, *FEED_NODES, *PHOTO_NODES, *MATCH_NODES],
        config=StrawberryConfig(scalar_map=SCALARS),
    )
    _mend_is_one_of(built._schema)
    return built


def _mend_is_one_of(schema: GraphQLSchema) -> None:
    """Answer `isOneOf` of lists and of what is not null, too: Strawberry's resolver fails for them."""
    introspected: Any = schema.type_map["__Type"]
    introspected.fields["isOneOf"].resolve = _is_one_of


def _is_one_of(kind: GraphQLNamedType, _info: Any) -> bool | None:
    """Null for all but input objects, as the specification has it."""
    return kind.is_one_of if is_input_object_type(kind) else None
