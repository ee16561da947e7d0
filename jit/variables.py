"""Variables of usual kinds, coerced without looking their types up again; all others as graphql-core does it."""

from collections.abc import Callable, Mapping
from typing import Any

from graphql import (
    GraphQLBoolean,
    GraphQLFloat,
    GraphQLID,
    GraphQLInt,
    GraphQLSchema,
    GraphQLString,
    OperationDefinitionNode,
    is_list_type,
    is_non_null_type,
    type_from_ast,
)

# Whether a value is the same once it is coerced.
Same = Callable[[Any], bool]

_SAME: dict[Any, Same] = {
    GraphQLString: lambda value: value.__class__ is str,
    GraphQLID: lambda value: value.__class__ is str,
    GraphQLInt: lambda value: value.__class__ is int and -(2**31) <= value < 2**31,
    GraphQLBoolean: lambda value: value.__class__ is bool,
    GraphQLFloat: lambda value: value.__class__ is float and value - value == 0.0,
}


class UsualVariables:
    """The variables that an operation declares."""

    def __init__(self, schema: GraphQLSchema, operation: OperationDefinitionNode) -> None:
        self._declared: list[tuple[str, Same, bool]] = []
        self._unusual = False
        for declared in operation.variable_definitions or ():
            kind = type_from_ast(schema, declared.type)
            same = _same(kind)
            if same is None:
                self._unusual = True
                return
            # One that is not given is left out, if it may be and has no default.
            optional = not is_non_null_type(kind) and declared.default_value is None
            self._declared.append((declared.variable.name.value, same, optional))

    def coerced(self, given: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """The values, or None: let graphql-core coerce them, and say what is wrong with them."""
        if self._unusual:
            return None
        coerced: dict[str, Any] = {}
        if not self._declared:
            return coerced
        given = given or {}
        for name, same, optional in self._declared:
            if name in given:
                value = given[name]
                if not same(value):
                    return None
                coerced[name] = value
            elif not optional:
                return None
        return coerced


def _same(kind: Any) -> Same | None:
    required = is_non_null_type(kind)
    inner = kind.of_type if is_non_null_type(kind) else kind
    if is_list_type(inner):
        item = _same(inner.of_type)
        same: Same | None = None if item is None else lambda value: value.__class__ is list and all(map(item, value))
    else:
        same = _SAME.get(inner)
    if same is None or required:
        return same
    known = same
    return lambda value: value is None or known(value)
