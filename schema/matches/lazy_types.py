"""Types of cricket that refer to each other: Strawberry resolves them once all modules are imported."""

from typing import TYPE_CHECKING, Annotated, Any

import strawberry

from datastore.keyspace.matches import fixtures
from resolvers.matches import related
from schema.fields import batch_field

if TYPE_CHECKING:
    from schema.matches.active_matches import ActiveMatch, LiveScore
    from schema.matches.fixtures import Match

LazyActiveMatch = Annotated["ActiveMatch", strawberry.lazy("schema.matches.active_matches")]
LazyLiveScore = Annotated["LiveScore", strawberry.lazy("schema.matches.active_matches")]
LazyMatch = Annotated["Match", strawberry.lazy("schema.matches.fixtures")]


def match_field(description: str) -> Any:
    """Return the field of the match of a record."""
    return batch_field(
        fixtures.FIXTURE,
        resolver=related.matches_by_id,
        depends_on="match_id",
        graphql_type=LazyMatch | None,
        description=description,
    )
