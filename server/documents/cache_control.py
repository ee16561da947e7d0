"""Cache control: a response may be cached for the smallest `max_age` of its fields."""

from collections.abc import Iterator
from weakref import WeakKeyDictionary

from graphql import (
    BooleanValueNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLAbstractType,
    GraphQLField,
    GraphQLNamedType,
    GraphQLObjectType,
    GraphQLSchema,
    InlineFragmentNode,
    SelectionSetNode,
    get_named_type,
    is_abstract_type,
)
from graphql.language import OperationType

from server.documents.document_cache import PreparedOperation

TYPENAME = "__typename"


class CacheControl:
    """The `max_age` of operations in seconds, computed once for each operation.

    The access patterns of a field declare its age. A field without access patterns has the age of its parent; at the
    root it is not cacheable. Fields with `@skip` or `@include` always count. A field with the argument `consistent` is
    not cacheable, unless the argument is the literal false.
    """

    def __init__(self, schema: GraphQLSchema) -> None:
        self._schema = schema
        self._ages: WeakKeyDictionary[PreparedOperation, int] = WeakKeyDictionary()

    def max_age(self, operation: PreparedOperation) -> int:
        """Return the age in seconds, or 0 if the response must not be cached."""
        age = self._ages.get(operation)
        if age is None:
            age = self._ages[operation] = self._age(operation) if operation.kind is OperationType.QUERY else 0
        return age

    def _age(self, operation: PreparedOperation) -> int:
        least: int | None = None
        for at_root, fields in self._selected(operation):
            ages = [age for field in fields if (age := _declared(field)) is not None]
            if not fields or 0 in ages or (at_root and not ages):
                return 0
            least = min(ages + ([] if least is None else [least]), default=None)
        return least or 0

    def _selected(self, operation: PreparedOperation) -> Iterator[tuple[bool, list[GraphQLField]]]:
        """Yield, for each selected field, whether it is at the root, and its definitions.

        Each selection set is visited once, that of a fragment too.
        """
        parts = operation.document.node.definitions
        fragments = {part.name.value: part for part in parts if isinstance(part, FragmentDefinitionNode)}
        root = self._schema.query_type
        waiting: list[tuple[SelectionSetNode, GraphQLNamedType | None]] = [(operation.node.selection_set, root)]
        while waiting:
            selections, parent = waiting.pop()
            for selection in selections.selections:
                if isinstance(selection, FieldNode):
                    if selection.name.value == TYPENAME:
                        continue
                    fields = list(self._fields(parent, selection.name.value))
                    yield parent is root, [] if _may_be_consistent(selection) else fields
                    if selection.selection_set is not None:
                        waiting.append((selection.selection_set, get_named_type(fields[0].type)))
                elif isinstance(selection, InlineFragmentNode):
                    waiting.append((selection.selection_set, self._inside(selection, parent)))
                elif isinstance(selection, FragmentSpreadNode) and selection.name.value in fragments:
                    fragment = fragments.pop(selection.name.value)
                    waiting.append((fragment.selection_set, self._inside(fragment, parent)))

    def _inside(
        self, fragment: InlineFragmentNode | FragmentDefinitionNode, parent: GraphQLNamedType | None
    ) -> GraphQLNamedType | None:
        """Return the type of a fragment's fields."""
        condition = fragment.type_condition
        return parent if condition is None else self._schema.type_map.get(condition.name.value)

    def _fields(self, parent: GraphQLNamedType | None, name: str) -> Iterator[GraphQLField]:
        """Yield the definitions of a field: for an abstract parent, the definition in each of its object types."""
        owners: list[GraphQLNamedType | None] = [parent]
        if is_abstract_type(parent):
            assert isinstance(parent, GraphQLAbstractType)
            owners = [*self._schema.get_possible_types(parent)]
        for owner in owners:
            if isinstance(owner, GraphQLObjectType) and name in owner.fields:
                yield owner.fields[name]


def _may_be_consistent(field: FieldNode) -> bool:
    """Return whether a field may request a consistent read. Its response must show the newest state."""
    given = [argument.value for argument in field.arguments or () if argument.name.value == "consistent"]
    return any(not isinstance(value, BooleanValueNode) or value.value for value in given)


def _declared(field: GraphQLField) -> int | None:
    """Return the smallest age of the field's access patterns, or None if it has none."""
    definition = field.extensions.get("strawberry-definition")
    patterns = definition.metadata.get("patterns", ()) if definition is not None else ()
    return min((pattern.max_age for pattern in patterns), default=None)
