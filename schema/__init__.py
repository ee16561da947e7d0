"""The API: every system's queries, mutations and subscriptions in one schema."""

from collections.abc import Iterator
from functools import cache

import strawberry
from graphql import GraphQLError
from strawberry.extensions import ParserCache, ValidationCache
from strawberry.types import ExecutionContext

from schema.earthquakes import Earthquake, EarthquakeMutations, EarthquakeQueries, EarthquakeSubscriptions
from schema.feeds import NODES as FEED_NODES
from schema.feeds import FeedMutations, FeedQueries, FeedSubscriptions
from schema.matches import NODES as MATCH_NODES
from schema.matches import MatchMutations, MatchQueries, MatchSubscriptions
from schema.me import MeQueries
from schema.nodes import NodeQueries
from schema.photos import NODES as PHOTO_NODES
from schema.photos import PhotoMutations, PhotoQueries, PhotoSubscriptions
from schema.sightings import Sighting, SightingMutations, SightingQueries, SightingSubscriptions, UserProfile, Watch

# A parsed document takes some seventy times the memory of its text, and the cache is filled by whoever asks.
DOCUMENTS_CACHED = 256
LONGEST_CACHED = 8192


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


class Schema(strawberry.Schema):
    """Leaves errors to the edge, which masks and logs them."""

    def process_errors(self, errors: list[GraphQLError], execution_context: ExecutionContext | None = None) -> None:
        pass


class SmallDocuments(ParserCache):
    """Keeps parsed documents, but for large ones, which are parsed each time."""

    def __init__(self) -> None:
        super().__init__(maxsize=DOCUMENTS_CACHED)

    def on_parse(self) -> Iterator[None]:
        if _is_small(self.execution_context):
            yield from super().on_parse()
        else:
            yield


class SmallValidations(ValidationCache):
    """Keeps what the validation of small documents found."""

    def __init__(self) -> None:
        super().__init__(maxsize=DOCUMENTS_CACHED)

    def on_validate(self) -> Iterator[None]:
        if _is_small(self.execution_context):
            yield from super().on_validate()
        else:
            yield


def _is_small(context: ExecutionContext) -> bool:
    return len(context.query or "") <= LONGEST_CACHED


@cache
def build() -> Schema:
    """The schema, one for the process; parsed and validated documents are kept for the next request with the same text,
    unless large.
    """
    return Schema(
        query=Query,
        mutation=Mutation,
        subscription=Subscription,
        types=[Earthquake, Sighting, UserProfile, Watch, *FEED_NODES, *PHOTO_NODES, *MATCH_NODES],
        # By their classes: one of each is made for every operation.
        extensions=[SmallDocuments, SmallValidations],
    )
