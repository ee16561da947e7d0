"""Field plans: the facts about executing a field that are computed at compile time. And the paths of its values."""

from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any
from uuid import UUID
from weakref import ref

from graphql import (
    FieldNode,
    GraphQLField,
    GraphQLObjectType,
    GraphQLOutputType,
    GraphQLSchema,
    ValueNode,
    VariableNode,
    is_leaf_type,
    is_list_type,
    is_non_null_type,
)
from graphql.execution.values import VariableValues, get_argument_values
from graphql.language import ListValueNode, ObjectValueNode
from graphql.pyutils import Path as CorePath

from jit.collect_fields import Condition, Occurrence, holds

if TYPE_CHECKING:
    from jit.execution import Execution

# The classes of nearly all immutable values. A test by membership is cheaper than `isinstance`.
SCALARS = frozenset({str, int, float, bool})
IMMUTABLE = (str, int, float, bool, type(None), Enum, datetime, date, time, Decimal, UUID)
NO_VARIABLES = VariableValues({}, {})
# Completes a resolved value: `finish(run, plan, value, path, otherwise)`.
Finish = Callable[..., Any]
# A path in a response: the surrounding path, which is None at the root, and a key or an index.
Path = tuple[Any, str | int]
Select = Callable[["Execution", Any, Path | None], dict[str, Any]]


def finish_generic(run: "Execution", plan: "FieldPlan", value: Any, path: Path, otherwise: Callable[..., Any]) -> Any:
    """Complete a value of a field for which no code was generated."""
    return otherwise(run, plan, value, path)


class FieldPlan:
    """The plan of a field of one object type in one selection of an operation."""

    __slots__ = (
        "__weakref__",
        "_constant",
        "_is_nested",
        "_mutable",
        "_nodes",
        "_parent",
        "_uncopyable",
        "_variables",
        "equality_key",
        "field",
        "finish",
        "key",
        "leaf",
        "name",
        "names",
        "notes",
        "number",
        "occurrences",
        "parent_type",
        "plain",
        "required",
        "resolver",
        "schema",
        "selected",
        "selects",
        "takes_arguments",
        "types",
        "uses_variables",
    )

    def __init__(
        self,
        schema: GraphQLSchema,
        parent: "FieldPlan | None",
        parent_type: GraphQLObjectType,
        key: str,
        field: GraphQLField,
        occurrences: list[Occurrence],
    ) -> None:
        self.schema = schema
        #: The index among the fields of the selection.
        self.number = 0
        #: Equal for fields that complete an object equally at any path; None if the result may depend on the path.
        self.equality_key: object | None = None
        # A weak reference: only the garbage collector would free a cycle of plans.
        self._parent = None if parent is None else ref(parent)
        self.parent_type = parent_type
        self.key = key
        self.field = field
        self.occurrences = occurrences
        self.name = occurrences[0].node.name.value
        #: The types of the value and of the items of its lists, from outside to inside, without non-null.
        self.types: list[Any]
        #: For each of the types, whether it is non-null.
        self.required: list[bool]
        self.types, self.required = _unwrapped(field.type)
        self.leaf = is_leaf_type(self.types[-1])
        #: The known classes of values that are valid for the innermost type, and neither errors nor awaitables.
        self.plain: set[type] = set()
        #: The results of completing the members of an enum.
        self.names: dict[Any, Any] = {}
        #: The functions that complete objects, by their types.
        self.selects: dict[GraphQLObjectType, Select] = {}
        # The function for objects of the innermost type, unless it is abstract.
        self.selected: Select
        self.finish: Finish = finish_generic
        self.resolver: Any = None
        first = occurrences[0].node
        self.takes_arguments = bool(field.args or first.arguments)
        self.uses_variables = any(_uses_variables(argument.value) for argument in first.arguments or ())
        self._variables = _variables(field, first)
        values = [argument.value for argument in first.arguments or ()]
        self._is_nested = any(_uses_variables(value) for value in values if not isinstance(value, VariableNode))
        # The coerced arguments that do not depend on variables, after the first coercion.
        self._constant: dict[str, Any] | None = None
        self._mutable: list[str] = []
        self._uncopyable = False
        conditional = any(occurrence.condition for occurrence in occurrences)
        self._nodes = None if conditional else [occurrence.node for occurrence in occurrences]
        self.notes: dict[Any, Any] | None = None if conditional else {}

    @property
    def parent(self) -> "FieldPlan | None":
        """The field whose value contains this field; None at the root."""
        return None if self._parent is None else self._parent()

    @property
    def conditions(self) -> list[Condition]:
        """The conditions. The field is included if one of them holds, or if the list is empty."""
        conditions = [occurrence.condition for occurrence in self.occurrences]
        return [] if frozenset() in conditions else conditions

    @property
    def innermost(self) -> Any:
        return self.types[-1]

    @property
    def depth(self) -> int:
        """The number of lists around the innermost type."""
        return len(self.types) - 1

    def nodes(self, variables: Mapping[str, Any]) -> list[FieldNode]:
        """Return the nodes that select the field with these variables."""
        if self._nodes is not None:
            return self._nodes
        nodes: dict[int, FieldNode] = {}
        for node, condition, _ in self.occurrences:
            if holds(condition, variables):
                nodes.setdefault(id(node), node)
        return list(nodes.values())

    def position(self, variables: Mapping[str, Any]) -> int:
        """Return the position of the field in its selection set with these variables."""
        return next(position for _, condition, position in self.occurrences if holds(condition, variables))

    def arguments(self, run: "Execution") -> dict[str, Any]:
        """Return the arguments, coerced once if they are constant, otherwise once for each execution.

        A resolver receives copies of mutable values, as with graphql-core. Raises `GraphQLError`.
        """
        if self._constant is not None and not self.uses_variables:
            arguments = self._constant
        else:
            if self in run.arguments:
                arguments = run.arguments[self]
            else:
                arguments = self._with_variables(run.variables) or self._coerced(run)
            if not self._uncopyable:
                run.arguments[self] = arguments
        if not self._mutable:
            return arguments
        return arguments | {name: _copied(arguments[name]) for name in self._mutable if name in arguments}

    def _coerced(self, run: "Execution") -> dict[str, Any]:
        variables = run.variable_values if self.uses_variables else NO_VARIABLES
        node = self.nodes(run.variables)[0]  # an error has the location of this node
        arguments = get_argument_values(self.field, node, variables, None, run.hide_suggestions)
        variable = {name for name, _, _ in self._variables}
        literal = [name for name in arguments if name not in variable]
        self._mutable = [name for name in literal if not isinstance(arguments[name], IMMUTABLE)]
        self._uncopyable = not all(_can_be_copied(arguments[name]) for name in self._mutable)
        if not self._is_nested and not self._uncopyable:
            self._constant = {name: value for name, value in arguments.items() if name not in variable}
        return arguments

    def _with_variables(self, variables: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the constant arguments together with the variables; None if graphql-core has to coerce them."""
        if self._constant is None:
            return None
        arguments = {**self._constant}
        for name, variable, required in self._variables:
            if variable not in variables or (required and variables[variable] is None):
                return None
            arguments[name] = variables[variable]
        return arguments

    def note_plain(self, value: Any) -> None:
        """Record that further values of this class need no check."""
        if not hasattr(value, "__await__"):
            self.plain.add(value.__class__)

    def note_leaf(self, value: Any, coerced: Any) -> None:
        """Record a valid leaf value. A member of an enum always has the same result."""
        if isinstance(value, Enum):
            self.names[value] = coerced
        self.note_plain(value)


def _can_be_copied(value: Any) -> bool:
    if value.__class__ is list:
        return all(map(_can_be_copied, value))
    if value.__class__ is dict:
        return all(map(_can_be_copied, value.values()))
    return isinstance(value, IMMUTABLE)


def _copied(value: Any) -> Any:
    if value.__class__ is list:
        return [_copied(item) for item in value]
    if value.__class__ is dict:
        return {key: _copied(item) for key, item in value.items()}
    return value


def _unwrapped(kind: GraphQLOutputType) -> tuple[list[Any], list[bool]]:
    types: list[GraphQLOutputType] = []
    required: list[bool] = []
    while True:
        required.append(is_non_null_type(kind))
        kind = kind.of_type if is_non_null_type(kind) else kind
        types.append(kind)
        if not is_list_type(kind):
            return types, required
        kind = kind.of_type


def _variables(field: GraphQLField, node: FieldNode) -> list[tuple[str, str, bool]]:
    """Return the arguments that are variables: the resolver's parameter, the variable, and whether it is non-null."""
    values = {argument.name.value: argument.value for argument in node.arguments or ()}
    return [
        (argument.out_name or name, value.name.value, is_non_null_type(argument.type))
        for name, argument in field.args.items()
        if isinstance(value := values.get(name), VariableNode)
    ]


def _uses_variables(value: ValueNode) -> bool:
    if isinstance(value, ListValueNode):
        return any(map(_uses_variables, value.values))
    if isinstance(value, ObjectValueNode):
        return any(_uses_variables(field.value) for field in value.fields)
    return isinstance(value, VariableNode)


# Paths


def keys_of(path: Path | None) -> list[str | int]:
    """Return a path as the list that an error contains."""
    keys: list[str | int] = []
    while path is not None:
        path, key = path
        keys.append(key)
    keys.reverse()
    return keys


def core_path(plan: FieldPlan, path: Path, known: dict[int, tuple[Path, CorePath]]) -> CorePath:
    """Return the path of a field as graphql-core's `Path`.

    `known` has the paths of the execution by the identity of ours, so that each prefix is built once.
    """
    missing: list[tuple[Path, str | None]] = []
    above = None
    place: Path | None = path
    owner: FieldPlan | None = plan
    while place is not None:
        made = known.get(id(place))
        if made is not None:
            above = made[1]
            break
        assert owner is not None, "Only the root has no field around it."
        if place[1].__class__ is int:
            missing.append((place, None))
        else:
            missing.append((place, owner.parent_type.name))
            owner = owner.parent
        place = place[0]
    while missing:
        place, typename = missing.pop()
        above = CorePath(above, place[1], typename)
        if missing or not plan.leaf:  # no other path begins with that of a leaf
            known[id(place)] = place, above
    assert above is not None, "The path has at least one key."
    return above
