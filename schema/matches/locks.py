"""GraphQL types and fields of locks."""

from datetime import datetime

import strawberry

from datastore.keyspace.matches import locks as patterns
from datastore.model.access_patterns import Extent
from resolvers.matches import locks as resolve
from schema.fields import described, pattern_field
from schema.nodes import object_type


@object_type("name", description="A lock of the match pipeline: one instance at a time works on a match or a job.")
class Lock:
    name: strawberry.ID = described("The key of the lock: match:<matchId> or job:<name>.", name="lockKey")
    owner: strawberry.ID = described("The id of the instance that holds the lock, as in `ActiveMatch.instanceId`.")
    expires_at: datetime = described("The time at which the lock expires unless its holder extends it.")


@strawberry.type
class LockQueries:
    locks = pattern_field(
        patterns.ALL_LOCKS,
        resolver=resolve.locks,
        graphql_type=list[Lock],
        extent=Extent(size=10),
        description="Return one entry for each lock, including expired ones, by `lockKey`.",
    )
