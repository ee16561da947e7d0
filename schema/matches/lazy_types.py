"""Types of cricket that refer to each other: Strawberry resolves them once all modules are imported."""

from typing import TYPE_CHECKING, Annotated

import strawberry

if TYPE_CHECKING:
    from schema.matches.active_matches import ActiveMatch, LiveScore
    from schema.matches.fixtures import Match

LazyActiveMatch = Annotated["ActiveMatch", strawberry.lazy("schema.matches.active_matches")]
LazyLiveScore = Annotated["LiveScore", strawberry.lazy("schema.matches.active_matches")]
LazyMatch = Annotated["Match", strawberry.lazy("schema.matches.fixtures")]
