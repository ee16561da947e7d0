"""The fields that an operation selects. With them resolvers read no more than the response contains."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, TypeVar

from graphql import (
    FieldNode,
    FragmentDefinitionNode,
    FragmentSpreadNode,
    GraphQLObjectType,
    GraphQLResolveInfo,
    InlineFragmentNode,
    SelectionSetNode,
    get_named_type,
)

from datastore.dynamodb.record_decoder import RecordDecoder
from resolvers.shared.context import Info

Record = TypeVar("Record")


def has_child_reads(info: Info) -> bool:
    """Return whether a field of the list's nodes is selected that needs point reads."""
    return _selection(info).has_child_reads


def decoder_of_nodes(info: Info, decoder: RecordDecoder[Record]) -> RecordDecoder[Record]:
    """Return a decoder of the values that the selected fields of a list's nodes read; `decoder` if one may read any."""
    values = _selection(info).values_of_nodes
    return decoder if values is None else decoder.reading(values)


def selected_node_fields(info: Info) -> frozenset[str]:
    """Return the names of the fields selected under `nodes` and `edges.node`, including those of fragments."""
    return _selection(info).of_nodes


def selected_fields(info: Info) -> frozenset[str]:
    """Return the names of the fields selected directly under the field that is being resolved."""
    return _selection(info).own


def selects(info: Info, name: str) -> bool:
    """Return whether the field `name` is selected directly under the field that is being resolved."""
    return name in _selection(info).own


def selected_child_fields(info: Info, name: str) -> frozenset[str]:
    """Return the names of the fields that are selected under the child `name` of the field being resolved."""
    return _selection(info).children_of(name)


class _Selection:
    """The fields selected under a field, from all nodes of the document that select the field."""

    def __init__(self, info: GraphQLResolveInfo[Any]) -> None:
        fragments = info.fragments
        own = list(_under(fragments, info.field_nodes))
        self._own, self._fragments, self._type = own, fragments, info.return_type
        nodes_fields = [field for field in own if field.name.value == "nodes"]
        edges = [field for field in own if field.name.value == "edges"]
        nodes_fields += [field for field in _under(fragments, edges) if field.name.value == "node"]
        self.own = frozenset(field.name.value for field in own)
        self.of_nodes = frozenset(field.name.value for field in _under(fragments, nodes_fields))

    @cached_property
    def has_child_reads(self) -> bool:
        return not self.of_nodes.isdisjoint(_fields_with_point_reads(get_named_type(self._type)))

    @cached_property
    def values_of_nodes(self) -> frozenset[str] | None:
        values = _values_by_field(get_named_type(self._type))
        read = {values.get(name) for name in self.of_nodes}
        return frozenset(name for name in read if name) if None not in read else None

    def children_of(self, name: str) -> frozenset[str]:
        fields = [field for field in self._own if field.name.value == name]
        return frozenset(field.name.value for field in _under(self._fragments, fields))


def _selection(info: Info) -> _Selection:
    """Return the selection of a field. A compiled operation computes it once for all its executions."""
    notes: dict[Any, Any] | None = getattr(info, "notes", None)
    selected: _Selection | None = notes.get(_Selection) if notes is not None else None
    if selected is None:
        selected = _Selection(info._raw_info)
        if notes is not None:
            notes[_Selection] = selected
    return selected


@lru_cache
def _fields_with_point_reads(connection: GraphQLObjectType) -> frozenset[str]:
    """Return the fields of a connection's nodes whose declared access patterns have point reads.

    Fields that the items of most lists contain are left out.
    """
    fields = get_named_type(connection.fields["nodes"].type).fields
    return frozenset(
        name
        for name, field in fields.items()
        if (metadata := getattr(field.extensions.get("strawberry-definition"), "metadata", {}))
        and "preloaded" not in metadata
        and any("GetItem" in pattern.operations for pattern in metadata.get("patterns", ()))
    )


@lru_cache
def _values_by_field(connection: GraphQLObjectType) -> Mapping[str, str]:
    """Return for fields of a connection's nodes the attribute of the record that alone they read.

    Fields that may read others, such as those whose resolver gets the record, are left out. `__typename` reads none.
    """
    values = {"__typename": ""}
    for name, field in get_named_type(connection.fields["nodes"].type).fields.items():
        definition = field.extensions.get("strawberry-definition")
        _, depends_on = getattr(definition, "metadata", {}).get("batch", (None, None))
        if depends_on is not None:
            values[name] = depends_on
        elif definition is not None and definition.base_resolver is None:
            values[name] = definition.python_name
    return values


def _under(fragments: Mapping[str, FragmentDefinitionNode], fields: Sequence[FieldNode]) -> Iterator[FieldNode]:
    for field in fields:
        if field.selection_set is not None:
            yield from _fields(fragments, field.selection_set)


def _fields(fragments: Mapping[str, FragmentDefinitionNode], selections: SelectionSetNode) -> Iterator[FieldNode]:
    for selection in selections.selections:
        if isinstance(selection, FieldNode):
            yield selection
        elif isinstance(selection, InlineFragmentNode):
            yield from _fields(fragments, selection.selection_set)
        elif isinstance(selection, FragmentSpreadNode):
            yield from _fields(fragments, fragments[selection.name.value].selection_set)
