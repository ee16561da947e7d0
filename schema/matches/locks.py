"""What the API says about locks: the shape only."""

from datetime import datetime

import strawberry

from datastore.keyspace.matches import locks as patterns
from datastore.model.access_patterns import Extent
from resolvers.matches import locks as resolve
from schema.fields import ask


@strawberry.type(description="Who works on what in the pipeline.")
class Lock:
    name: str = strawberry.field(description="What is locked: match:<matchId>, job:<name>.")
    owner: strawberry.ID = strawberry.field(description="The instance that holds it.")
    expires_at: datetime = strawberry.field(description="Until when, unless it is extended. After that it is free.")


@strawberry.type
class LockQueries:
    locks = ask(
        patterns.HELD,
        resolver=resolve.locks,
        graphql_type=list[Lock],
        extent=Extent(size=10),
        description="All locks there are, for operators.",
    )
