"""Types with a global id, and the fields `node` and `nodes`, which read objects by their global ids."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Concatenate

import strawberry

from datastore.errors import BadUserInput
from datastore.model.access_patterns import MAX_PAGE_SIZE, AccessPattern, Extent, Who
from resolvers.shared.arguments import argument
from resolvers.shared.authorization import require
from resolvers.shared.context import Context, Info
from resolvers.shared.global_ids import parse_global_id

# A function that reads an object by the parts of its id, or returns None if it does not exist.
Reader = Callable[Concatenate[Context, ...], Awaitable[Any]]
NodeId = Annotated[strawberry.ID, argument("The global `id` of an object.")]
NodeIds = Annotated[list[strawberry.ID], argument("The global `id` of each object, at most 100.")]


@dataclass(frozen=True, slots=True)
class NodeType:
    """A type with a global id."""

    name: str
    #: The access pattern of the point read, which states the callers, too.
    pattern: AccessPattern
    #: The names of the parts of an id after the name of the type.
    parts: tuple[str, ...]
    read: Reader
    #: The point reads of an object.
    extent: Extent
    #: The place of the part that is the id of the object's owner.
    owner: int | None = None
    #: The fields of the type whose values are the parts of an id; empty if not every part is a field.
    local_key: tuple[str, ...] = ()

    async def read_for_caller(self, context: Context, parts: Sequence[str]) -> Any:
        """Return the object with these parts in its id, or None if it does not exist.

        Raises:
            Unauthenticated, Forbidden: the caller may not read the object.
            BadUserInput: a part is invalid in a key.
        """
        if self.pattern.who is not Who.ANY:
            require(context.identity, self.pattern, owner=None if self.owner is None else parts[self.owner])
        return await self.read(context, *parts)


def node_resolvers(types: Sequence[NodeType]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the resolvers of `node` and `nodes`, which read objects of these types."""
    by_name = {kind.name: kind for kind in types}

    async def node(info: Info, id: NodeId) -> Any:
        return await read(info.context, id, "id")

    async def nodes(info: Info, ids: NodeIds) -> list[Any]:
        if len(ids) > MAX_PAGE_SIZE:
            raise BadUserInput(f"`ids` may contain at most {MAX_PAGE_SIZE} ids, not {len(ids)}.", field="ids")
        reads = [read(info.context, id, f"ids[{index}]") for index, id in enumerate(ids)]
        # An error affects only the entry of that id.
        return await asyncio.gather(*reads, return_exceptions=True)

    async def read(context: Context, id: str, field: str) -> Any:
        kind, parts = _parse(id, by_name, field)
        try:
            return await kind.read_for_caller(context, parts)
        except BadUserInput:
            raise _invalid_id(field) from None

    return node, nodes


def _parse(id: str, types: Mapping[str, NodeType], field: str) -> tuple[NodeType, list[str]]:
    """Return the type and the parts of a global id. Raises `BadUserInput` if it is not the id of one of these types."""
    parsed = parse_global_id(id)
    kind = types.get(parsed[0]) if parsed else None
    if parsed is None or kind is None or len(parsed[1]) != len(kind.parts):
        raise _invalid_id(field)
    return kind, parsed[1]


def _invalid_id(field: str) -> BadUserInput:
    return BadUserInput(f"`{field}` is not the global id of an object.", field=field)
