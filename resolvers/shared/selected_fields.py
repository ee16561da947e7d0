"""Which fields of a connection's nodes a client selected, so that no more is read than is shown."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from graphql import FieldNode, FragmentDefinitionNode, FragmentSpreadNode, InlineFragmentNode, SelectionSetNode

from resolvers.shared.context import Info


def leads_on(info: Info, *fields: str) -> bool:
    """Whether one of these fields of a list's nodes, each a point read, was selected: what `read_page` is to know."""
    return not selected_node_fields(info).isdisjoint(fields)


def selected_node_fields(info: Info) -> frozenset[str]:
    """The names of the fields selected under `nodes` and `edges.node`, fragments included, as the schema has them."""
    return _selected(info).of_nodes


def selected_fields(info: Info) -> frozenset[str]:
    """The names of the fields selected directly under the field that is being resolved."""
    return _selected(info).own


def selects(info: Info, name: str) -> bool:
    """Whether the field `name` is selected directly under the field that is being resolved."""
    return name in _selected(info).own


def selected_beneath(info: Info, name: str) -> frozenset[str]:
    """Return the names of the fields that are selected under the child `name` of the field being resolved."""
    return _selected(info).beneath(name)


class _Selected:
    """What is selected under a field, wherever in the document it is asked for."""

    __slots__ = ("_fragments", "_own", "of_nodes", "own")

    def __init__(self, nodes: Sequence[FieldNode], fragments: Mapping[str, FragmentDefinitionNode]) -> None:
        own = list(_under(fragments, nodes))
        self._own, self._fragments = own, fragments
        shown = [field for field in own if field.name.value == "nodes"]
        edges = [field for field in own if field.name.value == "edges"]
        shown += [field for field in _under(fragments, edges) if field.name.value == "node"]
        self.own = frozenset(field.name.value for field in own)
        self.of_nodes = frozenset(field.name.value for field in _under(fragments, shown))

    def beneath(self, name: str) -> frozenset[str]:
        fields = [field for field in self._own if field.name.value == name]
        return frozenset(field.name.value for field in _under(self._fragments, fields))


def _selected(info: Info) -> _Selected:
    """Found out once for an operation that is compiled, however often and for however many objects it is executed."""
    notes: dict[Any, Any] | None = getattr(info, "notes", None)
    selected: _Selected | None = notes.get(_Selected) if notes is not None else None
    if selected is None:
        raw = info._raw_info
        selected = _Selected(raw.field_nodes, raw.fragments)
        if notes is not None:
            notes[_Selected] = selected
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
