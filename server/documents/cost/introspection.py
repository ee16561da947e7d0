"""The number of values that introspection returns, estimated from the sizes of the schema."""

from collections.abc import Iterable
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

from graphql import (
    GraphQLEnumType,
    GraphQLInputObjectType,
    GraphQLInterfaceType,
    GraphQLObjectType,
    GraphQLSchema,
    get_named_type,
    is_abstract_type,
    is_wrapping_type,
)

OBJECTS = (GraphQLObjectType, GraphQLInterfaceType)


class Times(NamedTuple):
    """The number of objects beneath a field of introspection."""

    #: The average over all types.
    mean: float = 1.0
    #: The maximum over all types.
    most: float = 1.0
    #: Whether the field leads to types that are larger than the average.
    selects: bool = False


class Sizes:
    """The lengths of the lists of introspection, and the frequency of wrapping types."""

    def __init__(self, schema: GraphQLSchema) -> None:
        types = list(schema.type_map.values())
        fields = [field for kind in types if isinstance(kind, OBJECTS) for field in kind.fields.values()]
        inputs = [field for kind in types if isinstance(kind, GraphQLInputObjectType) for field in kind.fields.values()]
        arguments = [argument for field in fields for argument in field.args.values()]
        references = [element.type for element in chain(fields, inputs, arguments)]
        named = [get_named_type(reference) for reference in references]

        def listed(name: str) -> Times:
            def length(kind: Any) -> int:
                return len(_listed(schema, kind, name))

            # Introspection reaches types through the list of all types, or through references.
            means = (_mean(map(length, types)), _mean(map(length, named)))
            return Times(
                max(means), max(map(length, types), default=0), selects=name in ("interfaces", "possibleTypes")
            )

        self._times = {
            name: listed(name) for name in ("fields", "inputFields", "enumValues", "interfaces", "possibleTypes")
        } | {
            "types": Times(len(types), len(types)),
            "directives": Times(len(schema.directives), len(schema.directives)),
            "args": Times(
                _mean(len(field.args) for field in fields),
                max((len(element.args) for element in (*fields, *schema.directives)), default=0),
            ),
            "ofType": Times(_wrapped(references)),
            **dict.fromkeys(("queryType", "mutationType", "subscriptionType"), Times(selects=True)),
        }

    def times(self, field: str) -> Times:
        """Return the number of objects beneath a field of introspection."""
        return self._times.get(field, _ONCE)


_ONCE = Times()


@lru_cache(maxsize=8)
def sizes_of(schema: GraphQLSchema) -> Sizes:
    """Return the sizes of a schema, computed once."""
    return Sizes(schema)


def _listed(schema: GraphQLSchema, kind: Any, name: str) -> Any:
    if name == "possibleTypes":
        return schema.get_possible_types(kind) if is_abstract_type(kind) else ()
    if name == "enumValues":
        return kind.values if isinstance(kind, GraphQLEnumType) else ()
    if isinstance(kind, GraphQLInputObjectType):
        return kind.fields if name == "inputFields" else ()
    return getattr(kind, name, ())


def _wrapped(references: list[Any]) -> float:
    """Return the smallest ratio whose nth power is at least the share of references with n wrappers, for all n."""
    share, level, waiting = 0.0, 0, references
    while waiting := [kind.of_type for kind in waiting if is_wrapping_type(kind)]:
        level += 1
        share = max(share, (len(waiting) / len(references)) ** (1 / level))
    return share


def _mean(numbers: Iterable[int]) -> float:
    values = list(numbers)
    return sum(values) / len(values) if values else 0.0
