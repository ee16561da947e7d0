"""The fields that an operation selects. With them resolvers read no more than the response contains."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from graphql import FieldNode, FragmentDefinitionNode, FragmentSpreadNode, InlineFragmentNode, SelectionSetNode

from resolvers.shared.context import Info


def has_child_reads(info: Info, *fields: str) -> bool:
    """Return whether one of these fields of a list's nodes is selected. Each of them needs point reads."""
    return not selected_node_fields(info).isdisjoint(fields)


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

    __slots__ = ("_fragments", "_own", "of_nodes", "own")

    def __init__(self, nodes: Sequence[FieldNode], fragments: Mapping[str, FragmentDefinitionNode]) -> None:
        own = list(_under(fragments, nodes))
        self._own, self._fragments = own, fragments
        nodes_fields = [field for field in own if field.name.value == "nodes"]
        edges = [field for field in own if field.name.value == "edges"]
        nodes_fields += [field for field in _under(fragments, edges) if field.name.value == "node"]
        self.own = frozenset(field.name.value for field in own)
        self.of_nodes = frozenset(field.name.value for field in _under(fragments, nodes_fields))

    def children_of(self, name: str) -> frozenset[str]:
        fields = [field for field in self._own if field.name.value == name]
        return frozenset(field.name.value for field in _under(self._fragments, fields))


def _selection(info: Info) -> _Selection:
    """Return the selection of a field. A compiled operation computes it once for all its executions."""
    notes: dict[Any, Any] | None = getattr(info, "notes", None)
    selected: _Selection | None = notes.get(_Selection) if notes is not None else None
    if selected is None:
        raw = info._raw_info
        selected = _Selection(raw.field_nodes, raw.fragments)
        if notes is not None:
            notes[_Selection] = selected
    return selected


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
