"""The directives `@defer` and `@stream` of an operation: their conditions, and the operation without them."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from graphql import DocumentNode, FragmentDefinitionNode, OperationDefinitionNode
from graphql.language import (
    REMOVE,
    BooleanValueNode,
    DirectiveNode,
    FieldNode,
    FragmentSpreadNode,
    InlineFragmentNode,
    IntValueNode,
    NullValueNode,
    SelectionNode,
    SelectionSetNode,
    StringValueNode,
    ValueNode,
    VariableNode,
    Visitor,
    visit,
)

from datastore.errors import BadUserInput
from server.documents.cost.amounts import value_of

DEFER, STREAM = "defer", "stream"
# Every part of a response repeats its label.
MAX_LABEL_CHARACTERS = 256


class IncrementalDirectives:
    """The directives of one operation and of the fragments that it spreads. It is empty for most operations."""

    def __init__(self, document: DocumentNode, operation: OperationDefinitionNode) -> None:
        self._document = document
        self._operation = operation
        self._directives = list(_directives(document, operation))
        self._defaults = {
            variable.variable.name.value: value_of(variable.default_value, {})
            for variable in operation.variable_definitions or ()
            if variable.default_value is not None
        }

    def __bool__(self) -> bool:
        return bool(self._directives)

    def are_active(self, variables: Mapping[str, Any]) -> bool:
        """Return whether at least one directive is active for these unchecked variables.

        Raises:
            BadUserInput: an `initialCount` is negative or null, or a label is too long.
        """
        active = False
        for directive in self._directives:
            values = self._arguments(directive, variables)
            if values.get("if", True) is False:
                continue
            active = True
            _check_label(directive, values.get("label"))
            count = values.get("initialCount", 0)
            if count is None or (isinstance(count, int) and count < 0):
                raise BadUserInput(f"The argument `initialCount` of @stream must be 0 or more, not {count}.")
        return active

    def without(self) -> tuple[DocumentNode, OperationDefinitionNode]:
        """Return the document and the operation without the directives, for executions in which none is active."""
        index = next(index for index, part in enumerate(self._document.definitions) if part is self._operation)
        document: DocumentNode = visit(self._document, _Remover())
        operation = document.definitions[index]
        assert isinstance(operation, OperationDefinitionNode)
        return document, operation

    def _arguments(self, directive: DirectiveNode, variables: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments that are given, directly or by a variable."""
        values: dict[str, Any] = {}
        for argument in directive.arguments or ():
            value = argument.value
            if not isinstance(value, VariableNode):
                values[argument.name.value] = _literal(value)
                continue
            for known in (variables, self._defaults):
                if value.name.value in known:
                    values[argument.name.value] = known[value.name.value]
                    break
        return values


class _Remover(Visitor):
    """A visitor that removes the directives."""

    def enter_directive(self, node: DirectiveNode, *_: Any) -> Any:
        return REMOVE if node.name.value in (DEFER, STREAM) else None


def may_have_directives(text: str) -> bool:
    """Return whether a document with this text may have one of the directives."""
    return DEFER in text or STREAM in text


def is_directive(node: DirectiveNode) -> bool:
    """Return whether this is `@defer` or `@stream`."""
    return node.name.value in (DEFER, STREAM)


def _directives(document: DocumentNode, operation: OperationDefinitionNode) -> Iterator[DirectiveNode]:
    """Yield the directives of an operation. Each fragment is visited once."""
    fragments = {part.name.value: part for part in document.definitions if isinstance(part, FragmentDefinitionNode)}
    visited: set[str] = set()
    waiting: list[SelectionSetNode] = [operation.selection_set]
    while waiting:
        for selection in waiting.pop().selections:
            yield from filter(is_directive, selection.directives or ())
            waiting += _beneath(selection, fragments, visited)


def _beneath(
    selection: SelectionNode, fragments: Mapping[str, FragmentDefinitionNode], visited: set[str]
) -> Sequence[SelectionSetNode]:
    if isinstance(selection, FieldNode | InlineFragmentNode):
        return [selection.selection_set] if selection.selection_set else []
    assert isinstance(selection, FragmentSpreadNode)
    name = selection.name.value
    if name in visited or name not in fragments:
        return []
    visited.add(name)
    return [fragments[name].selection_set]


def _literal(value: ValueNode) -> Any:
    if isinstance(value, BooleanValueNode | StringValueNode):
        return value.value
    if isinstance(value, IntValueNode):
        return int(value.value)
    return None if isinstance(value, NullValueNode) else ...


def _check_label(directive: DirectiveNode, label: object) -> None:
    if isinstance(label, str) and len(label) > MAX_LABEL_CHARACTERS:
        raise BadUserInput(
            f"The argument `label` of @{directive.name.value} may have at most {MAX_LABEL_CHARACTERS} characters; "
            f"it has {len(label):,}."
        )
