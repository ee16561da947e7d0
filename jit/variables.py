"""Coercion of variables of common types, without looking up the types at every execution."""

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

# A function that returns whether coercion leaves a value unchanged.
Same = Callable[[Any], bool]

_TEXTS = frozenset([str])


def _is_text(value: Any) -> bool:
    return value.__class__ is str


_SAME: dict[Any, Same] = {
    GraphQLString: _is_text,
    GraphQLID: _is_text,
    GraphQLInt: lambda value: value.__class__ is int and -(2**31) <= value < 2**31,
    GraphQLBoolean: lambda value: value.__class__ is bool,
    GraphQLFloat: lambda value: value.__class__ is float and value - value == 0.0,
}


class CommonVariables:
    """The declared variables of an operation. Only if all have common types they are coerced here."""

    def __init__(self, schema: GraphQLSchema, operation: OperationDefinitionNode) -> None:
        # The name of each variable, a class whose values need no coercion, the test of others, whether it is optional.
        self._declared: list[tuple[str, type | None, Same, bool]] = []
        self._has_uncommon = False
        for declared in operation.variable_definitions or ():
            kind = type_from_ast(schema, declared.type)
            same = _same(kind)
            if same is None:
                self._has_uncommon = True
                return
            # An absent variable without a default stays absent.
            optional = not is_non_null_type(kind) and declared.default_value is None
            exact = str if same is _is_text else None
            self._declared.append((declared.variable.name.value, exact, same, optional))

    def coerced(self, given: Mapping[str, Any] | None) -> dict[str, Any] | None:
        """Return the coerced values, or None if graphql-core has to coerce or reject them."""
        if self._has_uncommon:
            return None
        coerced: dict[str, Any] = {}
        if not self._declared:
            return coerced
        given = given or {}
        for name, exact, same, optional in self._declared:
            if name in given:
                value = given[name]
                if value.__class__ is not exact and not same(value):
                    return None
                coerced[name] = value
            elif not optional:
                return None
        return coerced


def _same(kind: Any) -> Same | None:
    required = is_non_null_type(kind)
    inner = kind.of_type if is_non_null_type(kind) else kind
    same = _same_list(inner) if is_list_type(inner) else _SAME.get(inner)
    if same is None or required:
        return same
    non_null = same
    return lambda value: value is None or non_null(value)


def _same_list(kind: Any) -> Same | None:
    item = _same(kind.of_type)
    if item is None:
        return None
    if item is _is_text:
        return lambda value: value.__class__ is list and _TEXTS.issuperset(map(type, value))
    return lambda value: value.__class__ is list and all(map(item, value))
