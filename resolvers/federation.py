"""The resolver of `_entities`, by which the router of a supergraph reads objects by their keys.

https://www.apollographql.com/docs/graphos/schema-design/federated-schemas/reference/subgraph-spec
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NewType

from datastore.errors import BadUserInput
from datastore.model.access_patterns import MAX_PAGE_SIZE
from resolvers.nodes import NodeType
from resolvers.shared.arguments import argument
from resolvers.shared.context import Context, Info
from resolvers.shared.global_ids import LONGEST_GLOBAL_ID, local_id, parse_global_id

_GREATEST_INT = 2**63
# An object of JSON: the name of a type, and the fields of one of its keys.
Representation = NewType("Representation", object)
Representations = Annotated[
    list[Representation],
    argument("The `__typename` and a key of each object, at most 100: its `id`, or its other key."),
]


def entities_resolver(types: Sequence[NodeType]) -> Callable[..., Any]:
    """Return the resolver of `_entities`, which reads objects of these types as `nodes` does."""
    by_name = {kind.name: kind for kind in types}

    async def entities(info: Info, representations: Representations) -> list[Any]:
        if len(representations) > MAX_PAGE_SIZE:
            raise BadUserInput(
                f"`representations` may contain at most {MAX_PAGE_SIZE} representations, not {len(representations)}.",
                field="representations",
                limit=MAX_PAGE_SIZE,
            )
        reads = [read(info.context, each, f"representations[{index}]") for index, each in enumerate(representations)]
        # An error affects only the entry of that representation.
        return await asyncio.gather(*reads, return_exceptions=True)

    async def read(context: Context, representation: object, field: str) -> Any:
        kind, given = _type_of(representation, by_name, field)
        parts = _parts(given, kind, field)
        try:
            return await kind.read_for_caller(context, parts)
        except BadUserInput as refusal:
            raise BadUserInput(f"`{field}` has no valid key of {kind.name}: {refusal}", field=field) from None

    return entities


def _type_of(
    representation: object, types: Mapping[str, NodeType], field: str
) -> tuple[NodeType, Mapping[str, object]]:
    """Return the type that a representation names, and its fields. Raises `BadUserInput`."""
    given = representation if isinstance(representation, dict) else {}
    name = given.get("__typename")
    if not isinstance(name, str):
        raise BadUserInput(f"`{field}` must be an object with `__typename`, the name of its type.", field=field)
    kind = types.get(name)
    if kind is None:
        named = f"{field}.__typename"
        raise BadUserInput(f"`{named}` is not the name of a type that has a key in this subgraph.", field=named)
    return kind, given


def _parts(given: Mapping[str, object], kind: NodeType, field: str) -> list[str]:
    """Return the parts of the id in a representation. Raises `BadUserInput`. Fields of no key are ignored."""
    found = []
    if "id" in given:
        found.append(_parts_of_id(given, kind, field))
    if kind.local_key and given.keys() >= {*kind.local_key}:
        found.append(_parts_of_local_key(given, kind, field))
    if not found:
        keys = " or ".join(f"`{' '.join(key)}`" for key in (("id",), kind.local_key) if key)
        raise BadUserInput(f"`{field}` has no key of {kind.name}, which is {keys}.", field=field)
    if found[0] != found[-1]:
        raise BadUserInput(f"`{field}` has the keys of two objects.", field=field)
    return found[0]


def _parts_of_id(given: Mapping[str, object], kind: NodeType, field: str) -> list[str]:
    name, parts = parse_global_id(_text(given, "id", field)) or ("", [])
    if name != kind.name or len(parts) != len(kind.parts):
        raise BadUserInput(f"`{field}.id` is not the global id of a {kind.name}.", field=f"{field}.id")
    return parts


def _parts_of_local_key(given: Mapping[str, object], kind: NodeType, field: str) -> list[str]:
    values = [_text(given, name, field) for name in kind.local_key]
    # The global id is accepted in place of the local id, as in arguments.
    return [local_id(f"{field}.{kind.local_key[0]}", values[0], kind.name)] if len(values) == 1 else values


def _text(given: Mapping[str, object], name: str, field: str) -> str:
    """Return the value of an id as GraphQL's `ID` accepts it: a string, or an integer. Raises `BadUserInput`."""
    value = given[name]
    text = str(value) if type(value) is int and abs(value) <= _GREATEST_INT else value
    if not isinstance(text, str) or len(text) > LONGEST_GLOBAL_ID:
        raise BadUserInput(
            f"`{field}.{name}` must be text of at most {LONGEST_GLOBAL_ID:,} characters.",
            field=f"{field}.{name}",
            limit=LONGEST_GLOBAL_ID,
        )
    return text
