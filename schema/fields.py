"""Fields that say which access pattern they are."""

from collections.abc import Callable
from typing import Any

import strawberry

from datastore.model.access_patterns import NOT_SAID, AccessPattern, Extent
from datastore.queues import OverflowPolicy
from datastore.session.pagination import SortOrder
from schema.version_conflicts import ConflictVersions

VERSION = (
    "Grows with every change that an update can make, for `expectedVersion`; 0 where nothing was changed here yet. "
    "Counts leave it as it is."
)
strawberry.enum(SortOrder, description="Which end of a list comes first.")
strawberry.enum(
    OverflowPolicy,
    name="WhenSlow",
    description=(
        "What happens when more events wait for a subscriber that reads too slowly than may. CLOSE: it ends with "
        "SLOW_SUBSCRIBER (its WebSocket is closed with 4410), nothing is left out before that, and by `resumeAfter` it "
        "can go on. LATEST: of each key only the newest event waits; the next that is sent in place of others tells "
        "their number as `extensions.conflated`. BUFFER: the newest wait, as many as `buffer` says; the next that is "
        "sent after others were left out tells their number as `extensions.dropped`."
    ),
)


def ask(
    *patterns: AccessPattern,
    resolver: Callable[..., Any],
    graphql_type: Any,
    description: str,
    extent: Extent = NOT_SAID,
    by: str | None = None,
    at_hand: str | None = None,
) -> Any:
    """A field answered by access patterns: its description names them, and tests find them in its metadata.

    `by` is the attribute of the object whose value is all that the answer depends on: an operation then has one answer
    for all places where it is equal, also of other fields with these patterns. `at_hand` is the attribute of the object
    that is the answer already, unless it is None: then alone the resolver has to be asked.
    """
    metadata: dict[str, Any] = {"patterns": patterns, "extent": extent}
    if by is not None:
        metadata["same_for"] = (" ".join(pattern.id for pattern in patterns), by)
    if at_hand is not None:
        metadata["at_hand"] = at_hand
    return strawberry.field(
        resolver=resolver,
        graphql_type=graphql_type,
        description=_described(description, patterns),
        metadata=metadata,
        extensions=[ConflictVersions()] if any(pattern.guard for pattern in patterns) else [],
    )


def listen(
    pattern: AccessPattern,
    *,
    resolver: Callable[..., Any],
    graphql_type: Any,
    description: str,
    extent: Extent = NOT_SAID,
) -> Any:
    """A subscription's field, described and marked likewise."""
    return strawberry.subscription(
        resolver=resolver,
        graphql_type=graphql_type,
        description=_described(description, (pattern,)),
        metadata={"patterns": (pattern,), "extent": extent},
    )


def _described(description: str, patterns: tuple[AccessPattern, ...]) -> str:
    # Two patterns of a field may have the same description with different keys.
    lines = "\n\n".join(dict.fromkeys(f"`{pattern.summary}`" for pattern in patterns))
    return f"{description}\n\n{lines}"
