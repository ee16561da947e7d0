"""How many values introspection answers, estimated from the sizes of the schema that it is about."""

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
    """How often something stands beneath another: among all types of the schema, and at the most in one. What `selects`
    leads to types that hold more than most do."""

    mean: float = 1.0
    most: float = 1.0
    selects: bool = False


class Sizes:
    """How long the lists of introspection are, and how often types wrap others."""

    def __init__(self, schema: GraphQLSchema) -> None:
        types = list(schema.type_map.values())
        fields = [field for kind in types if isinstance(kind, OBJECTS) for field in kind.fields.values()]
        inputs = [field for kind in types if isinstance(kind, GraphQLInputObjectType) for field in kind.fields.values()]
        arguments = [argument for field in fields for argument in field.args.values()]
        references = [one.type for one in chain(fields, inputs, arguments)]
        named = [get_named_type(reference) for reference in references]

        def listed(name: str) -> Times:
            def length(kind: Any) -> int:
                return len(_listed(schema, kind, name))

            # Types are reached from the list of them all, or from what refers to them.
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
                max((len(one.args) for one in (*fields, *schema.directives)), default=0),
            ),
            "ofType": Times(_wrapped(references)),
            **dict.fromkeys(("queryType", "mutationType", "subscriptionType"), Times(selects=True)),
        }

    def times(self, field: str) -> Times:
        """How many objects stand beneath a field of introspection of that name."""
        return self._times.get(field, _ONCE)


_ONCE = Times()


@lru_cache(maxsize=8)
def sizes_of(schema: GraphQLSchema) -> Sizes:
    """The sizes of a schema, worked out once: it does not change."""
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
    """The least share that, multiplied again for each level, is no less than the share of types wrapped so often."""
    share, level, waiting = 0.0, 0, references
    while waiting := [one.of_type for one in waiting if is_wrapping_type(one)]:
        level += 1
        share = max(share, (len(waiting) / len(references)) ** (1 / level))
    return share


def _mean(numbers: Iterable[int]) -> float:
    known = list(numbers)
    return sum(known) / len(known) if known else 0.0
