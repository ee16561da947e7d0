"""The GraphQL schema: the queries, mutations and subscriptions of all systems."""

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


@strawberry.type(description="The queries. Fields that name no callers are open to everyone, with or without a token.")
class Query(SightingQueries, FeedQueries, PhotoQueries, EarthquakeQueries, MatchQueries, NodeQueries, MeQueries):
    pass


@strawberry.type(
    description="The mutations. Each of them requires a token. Send an `Idempotency-Key` header to repeat a request "
    "safely."
)
class Mutation(SightingMutations, FeedMutations, PhotoMutations, EarthquakeMutations, MatchMutations):
    pass


@strawberry.type(
    description="The subscriptions, over WebSocket or server-sent events. A client that was disconnected resumes with "
    "`resumeAfter`."
)
class Subscription(
    SightingSubscriptions, FeedSubscriptions, PhotoSubscriptions, EarthquakeSubscriptions, MatchSubscriptions
):
    pass


@cache
def build() -> strawberry.Schema:
    """Return the schema, which is built once per process."""
    schema = strawberry.Schema(
        query=Query,
        mutation=Mutation,
        subscription=Subscription,
        types=[Earthquake, Sighting, UserProfile, Watch, *FEED_NODES, *PHOTO_NODES, *MATCH_NODES],
        config=StrawberryConfig(scalar_map=SCALARS),
    )
    _fix_is_one_of(schema._schema)
    return schema


def _fix_is_one_of(schema: GraphQLSchema) -> None:
    """Replace Strawberry's resolver of `isOneOf`, which fails for lists and non-null types."""
    introspected: Any = schema.type_map["__Type"]
    introspected.fields["isOneOf"].resolve = _is_one_of


def _is_one_of(kind: GraphQLNamedType, _info: Any) -> bool | None:
    """Return whether an input object is a OneOf, or None for any other type, as the specification requires."""
    return kind.is_one_of if is_input_object_type(kind) else None
