"""Which fields of a connection's nodes a client selected, so that no more is read than is shown."""

from collections.abc import Iterator

from graphql import FieldNode, FragmentSpreadNode, InlineFragmentNode, SelectionSetNode

from resolvers.context import Info


def leads_on(info: Info, *fields: str) -> bool:
    """Whether one of these fields of a list's nodes, each a point read, was selected: what `read_page` is to know."""
    return not selected_node_fields(info).isdisjoint(fields)


def selected_node_fields(info: Info) -> frozenset[str]:
    """The names of the fields selected under `nodes` and `edges.node`, fragments included, as the schema has them."""
    connection = [node for node in info._raw_info.field_nodes]
    nodes = [field for field in _under(info, connection) if field.name.value == "nodes"]
    edges = [field for field in _under(info, connection) if field.name.value == "edges"]
    nodes += [field for field in _under(info, edges) if field.name.value == "node"]
    return frozenset(field.name.value for field in _under(info, nodes))


def selects(info: Info, name: str) -> bool:
    """Whether the field `name` is selected directly under the field that is being resolved."""
    return any(field.name.value == name for field in _under(info, info._raw_info.field_nodes))


def _under(info: Info, fields: list[FieldNode]) -> Iterator[FieldNode]:
    for field in fields:
        if field.selection_set is not None:
            yield from _fields(info, field.selection_set)


def _fields(info: Info, selections: SelectionSetNode) -> Iterator[FieldNode]:
    for selection in selections.selections:
        if isinstance(selection, FieldNode):
            yield selection
        elif isinstance(selection, InlineFragmentNode):
            yield from _fields(info, selection.selection_set)
        elif isinstance(selection, FragmentSpreadNode):
            fragment = info._raw_info.fragments[selection.name.value]
            yield from _fields(info, fragment.selection_set)
