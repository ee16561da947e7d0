"""The JSON Schema of an operation's result, derived from its selection."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from graphql import (
    DocumentNode,
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLCompositeType,
    GraphQLEnumType,
    GraphQLInterfaceType,
    GraphQLNonNull,
    GraphQLObjectType,
    GraphQLOutputType,
    GraphQLScalarType,
    GraphQLSchema,
    GraphQLString,
    InlineFragmentNode,
    OperationDefinitionNode,
    SelectionSetNode,
    is_abstract_type,
    is_composite_type,
    is_list_type,
    type_from_ast,
)
from msgspec import Struct

from server.mcp.json_schema import JsonSchema, leaf_schema, or_null

_CONDITIONAL = ("skip", "include")


class _ResultField(Struct):
    """A field of a result, merged from all selections with its key."""

    type: GraphQLOutputType
    selections: list[SelectionSetNode]
    #: Whether every result has the field.
    is_always: bool


def result_schema(schema: GraphQLSchema, document: DocumentNode, operation: OperationDefinitionNode) -> JsonSchema:
    """Return the schema of the operation's `data` without errors."""
    root = schema.get_root_type(operation.operation)
    assert root is not None, "The document is valid."
    fragments = {part.name.value: part for part in document.definitions if isinstance(part, FragmentDefinitionNode)}
    return _Selections(schema, fragments).object_schema(root, [operation.selection_set])


class _Selections:
    """The selections of a document."""

    def __init__(self, schema: GraphQLSchema, fragments: Mapping[str, FragmentDefinitionNode]) -> None:
        self._schema = schema
        self._fragments = fragments

    def object_schema(self, of: GraphQLCompositeType, selections: Iterable[SelectionSetNode]) -> JsonSchema:
        """Return the schema of the objects that these selections of a type result in."""
        fields: dict[str, _ResultField] = {}
        for selection in selections:
            for key, found in self._fields(of, selection, is_always=True):
                known = fields.setdefault(key, found)
                if known is not found:
                    known.selections += found.selections
                    known.is_always |= found.is_always
        schema: JsonSchema = {
            "type": "object",
            "properties": {key: self._output(field.type, field.selections) for key, field in fields.items()},
        }
        required = [key for key, field in fields.items() if field.is_always]
        return {**schema, "required": required} if required else schema

    def _fields(
        self, of: GraphQLCompositeType, selection: SelectionSetNode, *, is_always: bool
    ) -> Iterator[tuple[str, _ResultField]]:
        for node in selection.selections:
            unconditional = is_always and not any(part.name.value in _CONDITIONAL for part in node.directives or ())
            if isinstance(node, FieldNode):
                key = node.alias.value if node.alias else node.name.value
                below = [node.selection_set] if node.selection_set else []
                yield key, _ResultField(self._type_of(of, node.name.value), below, unconditional)
                continue
            fragment: Any = node
            if isinstance(node, FragmentSpreadNode):
                fragment = self._fragments[node.name.value]
            condition = self._condition(of, fragment)
            applies = condition is of or (is_abstract_type(condition) and self._schema.is_sub_type(condition, of))
            yield from self._fields(condition, fragment.selection_set, is_always=unconditional and applies)

    def _condition(
        self, of: GraphQLCompositeType, fragment: InlineFragmentNode | FragmentDefinitionNode
    ) -> GraphQLCompositeType:
        if fragment.type_condition is None:
            return of
        condition = type_from_ast(self._schema, fragment.type_condition)
        assert is_composite_type(condition), "The document is valid."
        return condition

    def _type_of(self, of: GraphQLCompositeType, name: str) -> GraphQLOutputType:
        if name == "__typename":
            return GraphQLNonNull(GraphQLString)
        if name in ("__schema", "__type"):
            return GraphQLNonNull(GraphQLScalarType(name))  # any value
        assert isinstance(of, GraphQLObjectType | GraphQLInterfaceType), "The document is valid."
        found: GraphQLOutputType = of.fields[name].type
        return found

    def _output(self, of: GraphQLOutputType, selections: list[SelectionSetNode]) -> JsonSchema:
        if isinstance(of, GraphQLNonNull):
            return self._non_null(of.of_type, selections)
        return or_null(self._non_null(of, selections))

    def _non_null(self, of: GraphQLOutputType, selections: list[SelectionSetNode]) -> JsonSchema:
        if is_list_type(of):
            return {"type": "array", "items": self._output(of.of_type, selections)}
        if is_composite_type(of):
            return self.object_schema(of, selections)
        assert isinstance(of, GraphQLScalarType | GraphQLEnumType)
        return leaf_schema(of)
