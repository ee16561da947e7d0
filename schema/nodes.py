"""Relay's `Node`, the declaration of types with ids, and the fields `node` and `nodes`."""

from collections.abc import Callable, Iterable
from typing import Any, ClassVar, TypeVar

import strawberry
from strawberry.types.base import get_object_definition
from strawberry.utils.str_converters import to_camel_case

from datastore.model.access_patterns import NO_EXTENT, AccessPattern, Extent, Who
from resolvers.nodes import NodeType, Reader, node_resolvers
from resolvers.shared.global_ids import content_id_resolver, key_id_resolver
from schema.fields import described, pattern_field

GLOBAL_ID = "The global id, for `node` and `nodes`. It is unique over all types."
OBJECT_ID = "The id, unique over all types, for caches. It never changes."
CONTENT_ID = "The id, unique over all types, for caches. Equal values have equal ids."


@strawberry.interface(description="An object with a global id, by which `node` and `nodes` read it again.")
class Node:
    id: strawberry.ID = described(GLOBAL_ID)
    declaration: ClassVar[NodeType]
    is_type_of: ClassVar[Any]


T = TypeVar("T", bound=type[Node])
AnyType = TypeVar("AnyType")


def node_type(
    record: type,
    pattern: AccessPattern,
    *,
    parts: tuple[str, ...],
    read: Reader,
    description: str,
    owner: str | None = None,
    id: Callable[..., str] | None = None,
    extent: Extent = NO_EXTENT,
) -> Callable[[T], T]:
    """Declare a type with a global id. Its values are records of the class `record`.

    `pattern` is the access pattern of the point read, and states the callers. `read` reads an object by the context and
    the `parts` of its id, which are the parts of its key. `owner` is the part that names the object's owner.
    `id` is the resolver of the field `id`, if the parts are no attributes of the record. `extent` has the number of
    point reads of an object, if it is not one.

    Raises `ValueError` if the pattern is for the owner of the data, and no part names the owner.
    """
    if pattern.who in (Who.USER, Who.OWNER) and owner is None:
        raise ValueError(f"State the owner of the objects that {pattern.id} reads for their owner.")

    place = None if owner is None else parts.index(owner)

    def declare(cls: T) -> T:
        resolver: Any = id or key_id_resolver(cls.__name__, parts)
        cls.id = strawberry.field(resolver=resolver, graphql_type=strawberry.ID, description=GLOBAL_ID)
        cls.is_type_of = staticmethod(lambda value, _info: isinstance(value, record))
        declared = strawberry.type(cls, description=description)
        declared.declaration = NodeType(cls.__name__, pattern, parts, read, extent, place, _local_key(declared, parts))
        return declared

    return declare


def _local_key(declared: type[Node], parts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the fields that show the parts of an id; none if a part has no field of its name."""
    fields = {field.python_name for field in get_object_definition(declared, strict=True).fields}
    return tuple(map(to_camel_case, parts)) if fields.issuperset(parts) else ()


def object_type(
    *parts: str, description: str, id: Callable[..., str] | None = None
) -> Callable[[type[AnyType]], type[AnyType]]:
    """Declare a type without a point read, whose objects have a key. The field `id` is derived from the key.

    `parts` are the attributes of the record that make the key. `id` is the resolver of the field `id` in their place.
    """

    def declare(cls: type[AnyType]) -> type[AnyType]:
        return _identified(cls, id or key_id_resolver(cls.__name__, parts), OBJECT_ID, description)

    return declare


def value_type(*, description: str) -> Callable[[type[AnyType]], type[AnyType]]:
    """Declare a type of values without a key. The field `id` is derived from the content of a value."""

    def declare(cls: type[AnyType]) -> type[AnyType]:
        return _identified(cls, content_id_resolver(cls.__name__), CONTENT_ID, description)

    return declare


def _identified(cls: type[AnyType], resolver: Any, id_description: str, description: str) -> type[AnyType]:
    field: Any = strawberry.field(resolver=resolver, graphql_type=strawberry.ID, description=id_description)
    # The field comes first in the schema.
    setattr(cls, "id", field)  # noqa: B010
    cls.__annotations__ = {"id": strawberry.ID, **cls.__annotations__}
    return strawberry.type(cls, description=description)


def node_queries(types: Iterable[type[Node]]) -> type:
    """Return a class with the fields `node` and `nodes`, which read objects of these types."""
    declarations = [kind.declaration for kind in types]
    patterns = [declaration.pattern for declaration in declarations]
    read_one, read_many = node_resolvers(declarations)

    @strawberry.type
    class NodeQueries:
        node = pattern_field(
            *patterns,
            resolver=read_one,
            graphql_type=Node | None,
            description="Return an object by its global `id`; null if it does not exist or no longer exists. Callers "
            "may read the objects that they may read in other fields.",
        )
        nodes = pattern_field(
            *patterns,
            resolver=read_many,
            graphql_type=list[Node | None],
            description="Return objects by their global ids, in the order of the ids, with null for each object that "
            "does not exist. All are read in batches.",
        )

    return NodeQueries
