"""GraphQL types and fields of locks."""

from datetime import datetime

import strawberry

from datastore.keyspace.matches import locks as patterns
from datastore.model.access_patterns import Extent
from resolvers.matches import locks as resolve
from schema.fields import pattern_field


@strawberry.type(description="A lock of the match pipeline: one instance at a time works on a match or a job.")
class Lock:
    name: str = strawberry.field(description="The name of the lock: match:<matchId> or job:<name>.")
    owner: strawberry.ID = strawberry.field(description="The instance that holds the lock.")
    expires_at: datetime = strawberry.field(
        description="The time at which the lock expires unless its holder extends it."
    )


@strawberry.type
class LockQueries:
    locks = pattern_field(
        patterns.ALL_LOCKS,
        resolver=resolve.locks,
        graphql_type=list[Lock],
        extent=Extent(size=10),
        description="Return all locks.",
    )
