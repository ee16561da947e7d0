"""CollectFields at compile time: the fields of a selection set, merged, in order, with their conditions.

https://spec.graphql.org/September2025/#CollectFields()
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from graphql import (
    BooleanValueNode,
    DirectiveNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLNamedType,
    GraphQLObjectType,
    GraphQLSchema,
    InlineFragmentNode,
    OperationDefinitionNode,
    SelectionNode,
    SelectionSetNode,
    VariableNode,
    get_named_type,
    is_abstract_type,
)

# Variables with their required values. An empty condition always holds.
Condition = frozenset[tuple[str, bool]]
ALWAYS: Condition = frozenset()
INCREMENTAL = ("defer", "stream")
INTROSPECTION = ("__schema", "__type")


class Reason(StrEnum):
    """A reason why graphql-core executes an operation."""

    NOT_YET = "not_executed_often_enough"
    DISABLED = "compilation_disabled"
    # Properties of the operation
    INTROSPECTION = "introspection"
    INCREMENTAL = "incremental_delivery"
    FRAGMENT_VARIABLES = "fragment_variables"
    ERROR_PROPAGATION = "error_propagation_disabled"
    CONDITION = "invalid_condition"
    NO_ROOT = "no_root_type"
    MUTATION_ORDER = "conditional_order_of_mutations"
    FIELD_ORDER = "order_of_fields"
    TOO_MANY_FIELDS = "too_many_fields"
    FAILED = "compilation_failed"
    # Properties of the execution
    VARIABLES = "invalid_variables"
    MIDDLEWARE = "middleware"
    ABORT_SIGNAL = "abort_signal"
    HOOKS = "hooks"
    OVERRIDDEN = "overridden_methods"
    PREDICATE = "custom_predicate"
    NO_LOOP = "no_event_loop"


class Unsupported(Exception):
    """The operation cannot be compiled. graphql-core executes it."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


class Occurrence(NamedTuple):
    """A node that selects a field, its condition, and its position in the selection set."""

    node: FieldNode
    condition: Condition
    position: int


Fields = dict[str, list[Occurrence]]
Source = tuple[SelectionSetNode, Condition]


def holds(condition: Condition, variables: Mapping[str, Any]) -> bool:
    """Return whether all variables have the required values."""
    return all(variables[name] is required for name, required in condition)


def any_holds(conditions: Iterable[Condition], variables: Mapping[str, Any]) -> bool:
    """Return whether one of the conditions holds."""
    return any(holds(condition, variables) for condition in conditions)


def collect(
    schema: GraphQLSchema,
    fragments: Mapping[str, FragmentDefinitionNode],
    runtime_type: GraphQLObjectType,
    sources: Iterable[Source],
) -> Fields:
    """Return the fields of an object of `runtime_type` by response key, in the order of their first occurrences.

    Fragments are inlined.
    """
    collector = _Collector(schema, fragments, runtime_type)
    for selection_set, condition in sources:
        collector.visit(selection_set, condition)
    return collector.fields


def is_ordered(fields: Fields) -> bool:
    """Return whether the order of the keys does not depend on which conditions hold."""
    return all(
        occurrences[0].condition <= occurrence.condition
        for occurrences in fields.values()
        for occurrence in occurrences
    )


class Survey:
    """A survey of an operation with all of its conditional selections. Raises `Unsupported` if it cannot be compiled.

    `conditional` are the variables of `@skip` and `@include`. `fields` is the number of fields with fragments inlined.
    A field beneath an abstract type counts once for each possible type.
    """

    def __init__(
        self,
        schema: GraphQLSchema,
        operation: OperationDefinitionNode,
        fragments: Mapping[str, FragmentDefinitionNode],
    ) -> None:
        self._schema = schema
        self._fragments = fragments
        self._visited: set[str] = set()
        self._counted: dict[tuple[int, str], int] = {}
        self.conditional: set[str] = set()
        self._visit(operation.selection_set)
        root = schema.get_root_type(operation.operation)
        self.fields = 0 if root is None else self._count(operation.selection_set, root)

    def _visit(self, selection_set: SelectionSetNode) -> None:
        for selection in selection_set.selections:
            _condition(selection.directives or (), ALWAYS)
            self.conditional.update(_condition_variables(selection.directives or ()))
            if isinstance(selection, FragmentSpreadNode):
                self._visit_fragment(selection.name.value)
            elif isinstance(selection, FieldNode | InlineFragmentNode):
                if isinstance(selection, FieldNode) and selection.name.value in INTROSPECTION:
                    raise Unsupported(Reason.INTROSPECTION)
                if selection.selection_set is not None:
                    self._visit(selection.selection_set)

    def _visit_fragment(self, name: str) -> None:
        fragment = self._fragments.get(name)
        if fragment is None or name in self._visited:
            return
        if fragment.variable_definitions:
            raise Unsupported(Reason.FRAGMENT_VARIABLES)
        self._visited.add(name)
        self._visit(fragment.selection_set)

    def _count(self, selection_set: SelectionSetNode, kind: GraphQLObjectType) -> int:
        """Return the number of fields of an object of this type, including the fields beneath them."""
        key = id(selection_set), kind.name
        count = self._counted.get(key)
        if count is None:
            count = self._counted[key] = sum(
                self._count_selection(selection, kind) for selection in selection_set.selections
            )
        return count

    def _count_selection(self, selection: SelectionNode, kind: GraphQLObjectType) -> int:
        if isinstance(selection, FieldNode):
            below = selection.selection_set
            return 1 + (sum(self._count(below, inner) for inner in self._types(kind, selection)) if below else 0)
        if isinstance(selection, FragmentSpreadNode):
            fragment = self._fragments.get(selection.name.value)
            return self._count(fragment.selection_set, kind) if fragment and self._applies(fragment, kind) else 0
        assert isinstance(selection, InlineFragmentNode), "A selection is a field or a fragment."
        return self._count(selection.selection_set, kind) if self._applies(selection, kind) else 0

    def _types(self, kind: GraphQLObjectType, node: FieldNode) -> Sequence[GraphQLObjectType]:
        """Return the possible object types of a field's value."""
        field = self._schema.get_field(kind, node.name.value)
        return [] if field is None else object_types(self._schema, get_named_type(field.type))

    def _applies(self, fragment: FragmentDefinitionNode | InlineFragmentNode, kind: GraphQLObjectType) -> bool:
        return _applies(self._schema, fragment, kind)


class _Collector:
    """The fields that were collected so far."""

    def __init__(
        self,
        schema: GraphQLSchema,
        fragments: Mapping[str, FragmentDefinitionNode],
        runtime_type: GraphQLObjectType,
    ) -> None:
        self._schema = schema
        self._fragments = fragments
        self._type = runtime_type
        self._visited: dict[str, list[Condition]] = {}
        self._count = 0
        self.fields: Fields = {}

    def visit(self, selection_set: SelectionSetNode, above: Condition) -> None:
        for selection in selection_set.selections:
            condition = _condition(selection.directives or (), above)
            if condition is None:
                continue
            if isinstance(selection, FieldNode):
                key = selection.alias.value if selection.alias else selection.name.value
                self.fields.setdefault(key, []).append(Occurrence(selection, condition, self._count))
                self._count += 1
            elif isinstance(selection, InlineFragmentNode):
                if _applies(self._schema, selection, self._type):
                    self.visit(selection.selection_set, condition)
            elif isinstance(selection, FragmentSpreadNode):
                self._spread(selection.name.value, condition)

    def _spread(self, name: str, condition: Condition) -> None:
        fragment = self._fragments.get(name)
        if fragment is None or not _applies(self._schema, fragment, self._type):
            return
        visited = self._visited.setdefault(name, [])
        # If an earlier spread is included whenever this one is, this one adds no fields.
        if not any(earlier <= condition for earlier in visited):
            visited.append(condition)
            self.visit(fragment.selection_set, condition)


def object_types(schema: GraphQLSchema, named: GraphQLNamedType) -> Sequence[GraphQLObjectType]:
    """Return the possible object types of a value of this type; none for a leaf."""
    if is_abstract_type(named):
        return schema.get_possible_types(named)
    return [named] if isinstance(named, GraphQLObjectType) else []


def _applies(
    schema: GraphQLSchema, fragment: FragmentDefinitionNode | InlineFragmentNode, kind: GraphQLObjectType
) -> bool:
    if fragment.type_condition is None:
        return True
    condition = schema.get_type(fragment.type_condition.name.value)
    return condition is kind or (is_abstract_type(condition) and schema.is_sub_type(condition, kind))


def _condition_variables(directives: Iterable[DirectiveNode]) -> Iterator[str]:
    """Yield the variables in `@skip` and `@include`, also of excluded selections, because the values may be null."""
    for directive in directives:
        for argument in directive.arguments or ():
            if directive.name.value in ("skip", "include") and isinstance(argument.value, VariableNode):
                yield argument.value.name.value


def _condition(directives: Collection[DirectiveNode], above: Condition) -> Condition | None:
    """Return the condition of a selection with these directives; None if it is never included."""
    if not directives:
        return above
    condition = set(above)
    for directive in directives:
        name = directive.name.value
        if name in INCREMENTAL:
            raise Unsupported(Reason.INCREMENTAL)
        if name not in ("skip", "include"):
            continue
        required = name == "include"
        value = directive.arguments[0].value if directive.arguments else None
        if isinstance(value, BooleanValueNode):
            if value.value is not required:
                return None
        elif isinstance(value, VariableNode):
            condition.add((value.name.value, required))
        else:
            raise Unsupported(Reason.CONDITION)
    never = any((name, not required) in condition for name, required in condition)
    return None if never else frozenset(condition)
