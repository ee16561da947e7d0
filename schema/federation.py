"""The subgraph of Apollo Federation 2: its schema for composition, and its fields `_service` and `_entities`.

https://www.apollographql.com/docs/graphos/schema-design/federated-schemas/reference/subgraph-spec
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Union

import strawberry
from graphql import parse, print_ast, visit
from graphql.language import (
    REMOVE,
    DirectiveDefinitionNode,
    DirectiveNode,
    ObjectTypeDefinitionNode,
    Visitor,
)
from strawberry.types.scalar import ScalarDefinition

from resolvers.federation import Representation, entities_resolver
from schema.access_pattern_directive import ACCESS_PATTERN
from schema.fields import described, pattern_field
from schema.nodes import Node

# The oldest version has all directives that the subgraph uses, and every composer of Federation 2 reads it.
LINK = 'extend schema @link(url: "https://specs.apollo.dev/federation/v2.0", import: ["@key", "@shareable"])'
# The names of types that Relay's specification defines for all lists.
PAGE_INFO, OF_LISTS = "PageInfo", ("Connection", "Edge")
FEDERATION_SCALARS: dict[object, ScalarDefinition] = {
    Representation: strawberry.scalar(
        name="_Any",
        description="A representation of an object: a JSON object with its `__typename` and the fields of a key.",
        serialize=lambda value: value,
        parse_value=lambda value: value,
    )
}


def subgraph_sdl(sdl: str, nodes: Iterable[type[Node]]) -> str:
    """Return the schema of the subgraph, given the text of the schema and its types with a global id.

    These types have the key `id`, and a second one if fields show all parts of the id. The types of lists are
    shareable: other subgraphs have them for lists of their own. `@accessPattern` is left out, because composers drop
    directives of a subgraph that are not of federation.
    """
    keys = {kind.declaration.name: kind.declaration.local_key for kind in nodes}
    return f"{LINK}\n\n{print_ast(visit(parse(sdl, no_location=True), _Federating(keys)))}\n"


class _Federating(Visitor):
    """A visitor that turns the document of a schema into that of a subgraph. `local_keys` are by type."""

    def __init__(self, local_keys: Mapping[str, tuple[str, ...]]) -> None:
        super().__init__()
        self._keys = {name: [("id",), key] if key else [("id",)] for name, key in local_keys.items()}

    def enter_directive_definition(self, node: DirectiveDefinitionNode, *_: Any) -> Any:
        return REMOVE if node.name.value == ACCESS_PATTERN else None

    def enter_directive(self, node: DirectiveNode, *_: Any) -> Any:
        return REMOVE if node.name.value == ACCESS_PATTERN else None

    def leave_object_type_definition(self, node: ObjectTypeDefinitionNode, *_: Any) -> Any:
        name = node.name.value
        directives = [f'@key(fields: "{" ".join(key)}")' for key in self._keys.get(name, ())]
        if name == PAGE_INFO or name.endswith(OF_LISTS):
            directives.append("@shareable")
        return replace(node, directives=_parsed(directives)) if directives else None


def _parsed(directives: Sequence[str]) -> tuple[Any, ...]:
    (carrier,) = parse(f"scalar Carrier {' '.join(directives)}", no_location=True).definitions
    return tuple(getattr(carrier, "directives", ()))


@strawberry.type(name="_Service", description="The subgraph.")
class Service:
    sdl: str = described("The schema of the subgraph with the directives of federation.")


def federation_queries(types: Sequence[type[Node]], sdl: str) -> type:
    """Return a class with the fields `_service` and `_entities`, for the types with a global id."""
    declarations = [kind.declaration for kind in types]
    entity: Any = Annotated[
        Union[tuple(types)],  # noqa: UP007 - of a tuple
        strawberry.union("_Entity", description="An object of a type that has a key."),
    ]

    def subgraph() -> Service:
        return Service(sdl=sdl)

    @strawberry.type
    class FederationQueries:
        service = strawberry.field(
            resolver=subgraph,
            name="_service",
            description="Return the subgraph, for the composition of a supergraph.",
        )
        entities = pattern_field(
            *[declaration.pattern for declaration in declarations],
            resolver=entities_resolver(declarations),
            graphql_type=list[entity | None],
            name="_entities",
            reads_of_type={each.name: (each.pattern, each.extent) for each in declarations},
            description="Return objects by their keys, in the order of the representations, with null for each object "
            "that does not exist. All are read in batches. Callers may read the objects that they may read in other "
            "fields.",
        )

    return FederationQueries
