"""Fields with declared access patterns."""

from collections.abc import Callable
from inspect import signature
from typing import Any

import strawberry

from datastore.model.access_patterns import NO_EXTENT, AccessPattern, Extent, Who
from datastore.queues import OverflowPolicy
from datastore.session.pagination import SortOrder
from schema.version_conflicts import ConflictVersions

VERSION = (
    "The version of the object, for `expectedVersion`. It grows with each update and is 0 before the first one. "
    "Changes of counts leave it unchanged."
)
CALLERS = {
    Who.USER: "Callers: anyone with a token.",
    Who.ADMIN: "Callers: admins.",
    Who.SYSTEM: "Callers: the system.",
}
strawberry.enum(
    SortOrder, description="The direction of a list. ASCENDING: smallest key first. DESCENDING: greatest key first."
)
strawberry.enum(
    OverflowPolicy,
    name="WhenSlow",
    description=(
        "The overflow policy: how the gateway treats a subscriber that reads too slowly when its queue is full. CLOSE: "
        "the subscription ends with SLOW_SUBSCRIBER and its WebSocket is closed with code 4410. No event is lost: the "
        "client resumes with `resumeAfter`. LATEST: only the newest event of each key waits. An event that replaces "
        "others contains their number as `extensions.conflated`. BUFFER: the newest events wait, as many as `buffer` "
        "allows. An event that follows dropped ones contains their number as `extensions.dropped`."
    ),
)


def pattern_field(
    *patterns: AccessPattern,
    resolver: Callable[..., Any],
    graphql_type: Any,
    description: str,
    extent: Extent = NO_EXTENT,
    depends_on: str | None = None,
    preloaded: str | None = None,
) -> Any:
    """Return a field that uses these access patterns. Its description and its metadata name them.

    `depends_on` is an attribute of the parent that alone determines the result: an operation resolves the field once
    for all parents with an equal value, also for other fields with these patterns. `preloaded` is an attribute of the
    parent that may hold the result: the resolver is called only if the attribute is None.
    """
    metadata: dict[str, Any] = {"patterns": patterns, "extent": extent}
    if depends_on is not None:
        metadata["shared_by"] = (" ".join(pattern.id for pattern in patterns), depends_on)
    if preloaded is not None:
        metadata["preloaded"] = preloaded
    return strawberry.field(
        resolver=resolver,
        graphql_type=graphql_type,
        description=_with_patterns(description, patterns, resolver),
        metadata=metadata,
        extensions=[ConflictVersions()] if any(pattern.guard for pattern in patterns) else [],
    )


def pattern_subscription(
    pattern: AccessPattern,
    *,
    resolver: Callable[..., Any],
    graphql_type: Any,
    description: str,
    extent: Extent = NO_EXTENT,
) -> Any:
    """Return a subscription field that uses this access pattern. Its description and its metadata name it."""
    return strawberry.subscription(
        resolver=resolver,
        graphql_type=graphql_type,
        description=_with_patterns(description, (pattern,), resolver),
        metadata={"patterns": (pattern,), "extent": extent},
    )


def _with_patterns(description: str, patterns: tuple[AccessPattern, ...], resolver: Callable[..., Any]) -> str:
    # Two patterns of a field may differ in their keys only, and then have the same summary.
    summaries = dict.fromkeys(f"`{pattern.summary}`" for pattern in patterns)
    return "\n\n".join([description, *_callers(patterns, resolver), *summaries])


def _callers(patterns: tuple[AccessPattern, ...], resolver: Callable[..., Any]) -> list[str]:
    """Return a line that names the callers of a root field, if it requires a token and its patterns agree."""
    is_root = "parent" not in signature(resolver).parameters
    roles = {pattern.who for pattern in patterns}
    return [CALLERS[roles.pop()]] if is_root and len(roles) == 1 and not roles & {Who.ANY} else []
