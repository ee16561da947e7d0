"""What is known of a field of an operation before it is executed."""

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
    Undefined,
    ValueNode,
    VariableNode,
    is_leaf_type,
    is_list_type,
    is_non_null_type,
)
from graphql.execution.values import VariableValues, get_argument_values
from graphql.language import ListValueNode, ObjectValueNode

from jit.collect_fields import Condition, Occurrence, holds

if TYPE_CHECKING:
    from jit.execution import Execution
    from jit.operation import CompiledOperation
    from jit.paths import Path

UNCHANGING = (str, int, float, bool, type(None), Enum, datetime, date, time, Decimal, UUID)
NO_VARIABLES = VariableValues({}, {})
# Makes of a value that was resolved the one that is answered: `finish(run, plan, value, path, otherwise)`.
Finish = Callable[..., Any]
Select = Callable[["Execution", Any, "Path | None"], dict[str, Any]]


def unusual(run: "Execution", plan: "FieldPlan", value: Any, path: "Path", otherwise: Callable[..., Any]) -> Any:
    """Finishes a value of a field of which nothing is known yet."""
    return otherwise(run, plan, value, path)


class FieldPlan:
    """A field of objects of one type at one place of an operation.

    `types` are the type of its value and, of lists, of their items, from the outside to the inside, each without its
    non-null; `required` tells for each of them whether it is non-null. `plain` are the classes of values that were
    found to be neither errors nor awaitables, and right for the innermost type; `names` are those of an enum's members.
    `number` is its place among the fields of its selection. `alike` is the same for all fields that answer an object
    alike, wherever it stands; None where the place, or what is awaited, may make a difference.
    """

    __slots__ = (
        "__weakref__",
        "_changing",
        "_fixed",
        "_is_nested",
        "_nodes",
        "_parent",
        "_program",
        "_unknown",
        "_variables",
        "alike",
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
        "selected",
        "selects",
        "takes_arguments",
        "types",
        "uses_variables",
    )

    def __init__(
        self,
        program: "CompiledOperation",
        parent: "FieldPlan | None",
        parent_type: GraphQLObjectType,
        key: str,
        field: GraphQLField,
        occurrences: list[Occurrence],
    ) -> None:
        # Weakly: what holds a program holds its plans, and lets go of them without waiting for the collector.
        self._program = ref(program)
        self.number = 0
        self.alike: object | None = None
        self._parent = None if parent is None else ref(parent)
        self.parent_type = parent_type
        self.key = key
        self.field = field
        self.occurrences = occurrences
        self.name = occurrences[0].node.name.value
        self.types, self.required = _unwrapped(field.type)
        self.leaf = is_leaf_type(self.types[-1])
        self.plain: set[type] = set()
        self.names: dict[Any, Any] = {}
        self.selects: dict[GraphQLObjectType, Select] = {}
        # The one of the innermost type, which is written when the first object comes.
        self.selected: Select
        self.finish: Finish = unusual
        self.resolver: Any = None
        first = occurrences[0].node
        self.takes_arguments = bool(field.args or first.arguments)
        self.uses_variables = any(_uses_variables(argument.value) for argument in first.arguments or ())
        self._variables = _variables(field, first)
        given = [argument.value for argument in first.arguments or ()]
        self._is_nested = any(_uses_variables(value) for value in given if not isinstance(value, VariableNode))
        # What does not depend on variables, once it is known.
        self._fixed: dict[str, Any] | None = None
        self._changing: list[str] = []
        self._unknown = False
        conditional = any(occurrence.condition for occurrence in occurrences)
        self._nodes = None if conditional else [occurrence.node for occurrence in occurrences]
        self.notes: dict[Any, Any] | None = None if conditional else {}

    @property
    def parent(self) -> "FieldPlan | None":
        """The field whose objects it is of; None at the root."""
        return None if self._parent is None else self._parent()

    @property
    def conditions(self) -> list[Condition]:
        """Any of which has to hold; none if it is always included."""
        conditions = [occurrence.condition for occurrence in self.occurrences]
        return [] if frozenset() in conditions else conditions

    @property
    def innermost(self) -> Any:
        return self.types[-1]

    @property
    def depth(self) -> int:
        """How many lists lie around the innermost type."""
        return len(self.types) - 1

    def nodes(self, variables: Mapping[str, Any]) -> list[FieldNode]:
        """Those places of the document that ask for it with these variables."""
        if self._nodes is not None:
            return self._nodes
        found: dict[int, FieldNode] = {}
        for node, condition, _ in self.occurrences:
            if holds(condition, variables):
                found.setdefault(id(node), node)
        return list(found.values())

    def place(self, variables: Mapping[str, Any]) -> int:
        """Where among the fields of its selection it is first asked for with these variables."""
        return next(place for _, condition, place in self.occurrences if holds(condition, variables))

    def arguments(self, run: "Execution") -> dict[str, Any]:
        """Coerced once: for good when they are constant, else for each execution. Raises `GraphQLError`.

        What a resolver could change is its own, as it is with graphql-core.
        """
        if self._fixed is not None and not self.uses_variables:
            found = self._fixed
        else:
            known = run.arguments.get(self)
            found = known if known is not None else self._with_variables(run.variables) or self._coerced(run)
            if not self._unknown:
                run.arguments[self] = found
        if not self._changing:
            return found
        return found | {name: _copied(found[name]) for name in self._changing if name in found}

    def _coerced(self, run: "Execution") -> dict[str, Any]:
        variables = run.variable_values if self.uses_variables else NO_VARIABLES
        node = self.nodes(run.variables)[0]  # an error tells its place
        found = get_argument_values(self.field, node, variables, None, run.hide_suggestions)
        given = {name for name, _, _ in self._variables}
        literal = [name for name in found if name not in given]
        self._changing = [name for name in literal if not isinstance(found[name], UNCHANGING)]
        self._unknown = not all(_can_be_copied(found[name]) for name in self._changing)
        if not self._is_nested and not self._unknown:
            self._fixed = {name: value for name, value in found.items() if name not in given}
        return found

    def _with_variables(self, variables: Mapping[str, Any]) -> dict[str, Any] | None:
        """Variables are coerced already, and all else was once; None where there is more to it."""
        if self._fixed is None:
            return None
        found = self._fixed.copy()
        for name, variable, required in self._variables:
            value = variables.get(variable, Undefined)
            if value is Undefined or (value is None and required):
                return None
            found[name] = value
        return found

    def note_plain(self, value: Any) -> None:
        """The next value of this class need not be looked at again."""
        if not hasattr(value, "__await__"):
            self.plain.add(value.__class__)

    def note_leaf(self, value: Any, coerced: Any) -> None:
        """A value of a leaf that could be coerced; the members of an enum are always answered alike."""
        if isinstance(value, Enum):
            self.names[value] = coerced
        self.note_plain(value)

    def select(self, object_type: GraphQLObjectType) -> Select:
        """The function that answers an object of that type."""
        known = self.selects.get(object_type)
        if known is not None:
            return known
        program = self._program()
        assert program is not None, "It is being executed."
        return program.compile_selection(self, object_type)


def _can_be_copied(value: Any) -> bool:
    if value.__class__ is list:
        return all(map(_can_be_copied, value))
    if value.__class__ is dict:
        return all(map(_can_be_copied, value.values()))
    return isinstance(value, UNCHANGING)


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
    """The arguments that are variables: their names for the resolver, the variables, and whether they are non-null."""
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
