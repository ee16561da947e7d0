"""JSON Schemas of GraphQL types, and of the variables of an operation.

Draft 2020-12, which clients of the Model Context Protocol assume: https://json-schema.org/draft/2020-12
"""

from collections.abc import Mapping
from typing import Any

from graphql import (
    GRAPHQL_MAX_INT,
    GRAPHQL_MIN_INT,
    ArgumentNode,
    DocumentNode,
    GraphQLEnumType,
    GraphQLInputObjectType,
    GraphQLInputType,
    GraphQLLeafType,
    GraphQLNonNull,
    GraphQLScalarType,
    GraphQLSchema,
    ObjectFieldNode,
    OperationDefinitionNode,
    TypeInfo,
    TypeInfoVisitor,
    VariableNode,
    Visitor,
    ast_from_value,
    get_named_type,
    is_input_type,
    is_list_type,
    type_from_ast,
    value_from_ast_untyped,
    visit,
)
from graphql.pyutils import Undefined

from datastore.model.access_patterns import MAX_PAGE_SIZE
from server.documents.variables import MAX_LIST

JsonSchema = dict[str, Any]

_SCALARS: Mapping[str, JsonSchema] = {
    "Boolean": {"type": "boolean"},
    "Int": {"type": "integer", "minimum": GRAPHQL_MIN_INT, "maximum": GRAPHQL_MAX_INT},
    "Float": {"type": "number"},
    "String": {"type": "string"},
    "ID": {"type": "string"},
    "DateTime": {"type": "string", "format": "date-time"},
    "Date": {"type": "string", "format": "date"},
}
# The arguments of every list that state the size of its page.
_PAGE_SIZES = ("first", "last")


def leaf_schema(of: GraphQLLeafType) -> JsonSchema:
    """Return the schema of a scalar or enum. A scalar that this module does not know may be any value."""
    if isinstance(of, GraphQLEnumType):
        return {"type": "string", "enum": [*of.values]}
    return dict(_SCALARS.get(of.name, {}))


def or_null(schema: JsonSchema) -> JsonSchema:
    """Return a schema that also allows null."""
    if not schema or schema.keys() == {"description"}:
        return schema  # any value
    allowed = {**schema, "type": [schema["type"], "null"]}
    if "enum" in schema:
        allowed["enum"] = [*schema["enum"], None]
    return allowed


def arguments_schema(schema: GraphQLSchema, document: DocumentNode, operation: OperationDefinitionNode) -> JsonSchema:
    """Return the schema of an operation's variables as an object.

    A variable has its own description, or else that of the argument or input field that it is the value of. The sizes
    of pages have the bounds of the API's lists.
    """
    uses = _uses_of_variables(schema, document)
    properties: dict[str, JsonSchema] = {}
    required: list[str] = []
    for definition in operation.variable_definitions or ():
        name = definition.variable.name.value
        of = type_from_ast(schema, definition.type)
        assert is_input_type(of), "The document is valid."
        use_name, use_description = uses.get(name, ("", None))
        own = definition.description
        property_ = _input(of, own.value if own else use_description, is_page_size=use_name in _PAGE_SIZES)
        if definition.default_value is not None:
            property_["default"] = value_from_ast_untyped(definition.default_value)
        elif isinstance(of, GraphQLNonNull):
            required.append(name)
        properties[name] = property_
    return _object(properties, required)


def _object(properties: dict[str, JsonSchema], required: list[str]) -> JsonSchema:
    schema: JsonSchema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": required} if required else schema


def _input(
    of: GraphQLInputType,
    description: str | None = None,
    *,
    is_page_size: bool = False,
    within: tuple[GraphQLInputObjectType, ...] = (),
) -> JsonSchema:
    """Return the schema of a variable or an input field. `within` are the input objects around it."""
    schema = _non_null(of.of_type, within) if isinstance(of, GraphQLNonNull) else or_null(_non_null(of, within))
    if is_page_size and "maximum" in schema:
        schema |= {"minimum": 1, "maximum": MAX_PAGE_SIZE}
    return {**schema, "description": description} if description else schema


def _non_null(of: GraphQLInputType, within: tuple[GraphQLInputObjectType, ...]) -> JsonSchema:
    if is_list_type(of):
        return {"type": "array", "items": _input(of.of_type, within=within), "maxItems": MAX_LIST}
    if isinstance(of, GraphQLInputObjectType):
        return _input_object(of, within)
    assert isinstance(of, GraphQLScalarType | GraphQLEnumType)
    schema = leaf_schema(of)
    return {**schema, "description": of.description} if not schema and of.description else schema


def _input_object(of: GraphQLInputObjectType, within: tuple[GraphQLInputObjectType, ...]) -> JsonSchema:
    if of in within:  # the objects of a recursive type are not described again
        return {"type": "object"}
    properties: dict[str, JsonSchema] = {}
    required: list[str] = []
    for name, field in of.fields.items():
        properties[name] = _input(field.type, field.description, within=(*within, of))
        if field.default_value is not Undefined:
            node = ast_from_value(field.default_value, field.type)
            properties[name]["default"] = None if node is None else value_from_ast_untyped(node)
        elif isinstance(field.type, GraphQLNonNull):
            required.append(name)
    schema = _object(properties, required)
    return {**schema, "minProperties": 1, "maxProperties": 1} if of.is_one_of else schema


def _uses_of_variables(schema: GraphQLSchema, document: DocumentNode) -> dict[str, tuple[str, str | None]]:
    """Return by variable the name and the description of the first argument or input field whose value it is."""
    types = TypeInfo(schema)
    uses = _Uses(types)
    visit(document, TypeInfoVisitor(types, uses))
    return uses.found


class _Uses(Visitor):
    """A visitor that finds the uses of variables."""

    def __init__(self, types: TypeInfo) -> None:
        super().__init__()
        self._types = types
        self.found: dict[str, tuple[str, str | None]] = {}

    def enter_argument(self, node: ArgumentNode, *_: Any) -> None:
        argument = self._types.get_argument()
        if isinstance(node.value, VariableNode) and argument is not None:
            self.found.setdefault(node.value.name.value, (node.name.value, argument.description))

    def enter_object_field(self, node: ObjectFieldNode, *_: Any) -> None:
        parent = get_named_type(self._types.get_parent_input_type())
        if isinstance(node.value, VariableNode) and isinstance(parent, GraphQLInputObjectType):
            field = parent.fields[node.name.value]
            self.found.setdefault(node.value.name.value, (node.name.value, field.description))
