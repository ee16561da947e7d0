"""Fields with declared access patterns."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from inspect import Signature, signature
from typing import Any

import strawberry

from datastore.model.access_patterns import NO_EXTENT, AccessPattern, Extent, Who
from datastore.queues import OverflowPolicy
from datastore.session.pagination import SortOrder
from resolvers.shared.context import Info
from schema.access_pattern_directive import access_pattern_directives
from schema.cost_arguments import check_cost_arguments
from schema.version_conflicts import ConflictVersions

# Resolves a field for the keys of many parents, given the keys, `info` and the field's arguments by name: returns the
# value or the error of each key.
BatchResolver = Callable[..., Awaitable[Sequence[Any]]]

VERSION = "The version of the object, for `expectedVersion`. It grows with each update and is 0 before the first one."
VERSION_BESIDE_COUNTS = f"{VERSION} Changes of counts leave it unchanged."
CALLERS = {
    Who.USER: "Callers: anyone with a token.",
    Who.OWNER: "Callers: the owner of the data.",
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
        "The overflow policy: how the gateway treats a subscriber that reads too slowly when its queue is full. "
        "CLOSE: the subscription ends with SLOW_SUBSCRIBER and its WebSocket is closed with code 4410. No event is "
        "lost: the client resumes with the extension `resumeAfter`. LATEST: only the newest event of each key waits. "
        "An event that replaces others contains their number as `extensions.conflated`. BUFFER: the newest events "
        "wait, as many as `buffer` allows. An event that follows dropped ones contains their number as "
        "`extensions.dropped`."
    ),
)


def described(description: str, *, name: str | None = None) -> Any:
    """Return a field whose value is the attribute of the record with its name.

    `name` is the name in the schema, by default that of the attribute in camel case.
    """
    return strawberry.field(description=description, name=name)


def pattern_field(
    *patterns: AccessPattern,
    resolver: Callable[..., Any],
    graphql_type: Any,
    description: str,
    extent: Extent = NO_EXTENT,
    preloaded: str | None = None,
    name: str | None = None,
    reads_of_type: Mapping[str, tuple[AccessPattern, Extent]] | None = None,
) -> Any:
    """Return a field that uses these access patterns. Its directives and its metadata name them.

    `name` is the name in the schema, by default that of the attribute in camel case. `preloaded` is an attribute of the
    parent that may hold the result: the resolver is called only if the attribute is None. `reads_of_type` are the reads
    of an object by its type, for a field whose argument `representations` names the types.

    Raises `ValueError` if the cost ignores an argument of a filter or condition.
    """
    metadata: dict[str, Any] = {} if preloaded is None else {"preloaded": preloaded}
    if reads_of_type is not None:
        metadata["reads_of_type"] = reads_of_type
    return _field(patterns, resolver, graphql_type, description, extent, metadata, name)


def batch_field(
    *patterns: AccessPattern,
    resolver: BatchResolver,
    depends_on: str | None,
    graphql_type: Any,
    description: str,
    extent: Extent = NO_EXTENT,
) -> Any:
    """Return a field like `pattern_field`, whose resolver is called once for many parents, such as those of a list.

    `depends_on` is an attribute of the parent that alone determines the result: the key. Without it, the parents are
    the keys. A key is resolved once in an operation, also for other fields with this resolver. The result for None is
    None. The parameters of the resolver after `keys` and `info` are the arguments of the field. A field with arguments
    shares no results with others.
    """

    async def resolve_one(parent: strawberry.Parent[Any], info: Info, **arguments: Any) -> Any:
        key = parent if depends_on is None else getattr(parent, depends_on)
        if key is None:
            return None
        (result,) = await resolver([key], info, **arguments)
        if isinstance(result, BaseException):
            raise result
        return result

    own, declared = signature(resolve_one).parameters, signature(resolver).parameters
    parameters = [own["parent"], own["info"], *[*declared.values()][2:]]
    resolve_one.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return _field(patterns, resolve_one, graphql_type, description, extent, {"batch": (resolver, depends_on)})


def _field(
    patterns: tuple[AccessPattern, ...],
    resolver: Callable[..., Any],
    graphql_type: Any,
    description: str,
    extent: Extent,
    metadata: Mapping[str, Any],
    name: str | None = None,
) -> Any:
    check_cost_arguments(patterns, resolver, extent, name=resolver.__name__)
    return strawberry.field(
        resolver=resolver,
        name=name,
        graphql_type=graphql_type,
        description=_with_callers(description, patterns, resolver),
        directives=access_pattern_directives(patterns),
        metadata={"patterns": patterns, "extent": extent, **metadata},
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
    """Return a subscription field that uses this access pattern. Its directive and its metadata name it."""
    return strawberry.subscription(
        resolver=resolver,
        graphql_type=graphql_type,
        description=_with_callers(description, (pattern,), resolver),
        directives=access_pattern_directives((pattern,)),
        metadata={"patterns": (pattern,), "extent": extent},
    )


def _with_callers(description: str, patterns: tuple[AccessPattern, ...], resolver: Callable[..., Any]) -> str:
    return "\n\n".join([description, *_callers(patterns, resolver)])


def _callers(patterns: tuple[AccessPattern, ...], resolver: Callable[..., Any]) -> list[str]:
    """Return a line that names the callers of a root field, if it requires a token and its patterns agree."""
    is_root = "parent" not in signature(resolver).parameters
    roles = {pattern.who for pattern in patterns}
    if not is_root or len(roles) > 1 or Who.ANY in roles:
        return []
    if roles == {Who.SYSTEM} and all(Who.ADMIN in pattern.also for pattern in patterns):
        return ["Callers: the system and admins."]
    return [CALLERS[roles.pop()]]
