"""Runs of GraphiQL's examples: their variables, tokens and documents."""

from typing import Any

from graphql import (
    FieldNode,
    NameNode,
    SelectionSetNode,
    TypeInfo,
    TypeInfoVisitor,
    Visitor,
    parse,
    print_ast,
    visit,
)

import schema
from server.http.graphiql import Example
from tests.support.command_line import GatewayProcess
from tests.support.until import until_blocking

SCHEMA = schema.build()._schema
NAMES = {"user": "Demo user", "admin": "Admin", "system": "System"}
WATCH = 'mutation { createWatch(input: { area: "Downtown", category: "Cats" }) { id watchId } }'


def token_of(example: Example, gateway: GatewayProcess) -> str:
    """Return a demo token of the role that the example needs."""
    return gateway.token(NAMES[example.run_as or "user"])


def find_variables(example: Example, gateway: GatewayProcess) -> dict[str, Any] | None:
    """Return the variables of an example. Wait until an item exists if the page finds values in one."""
    if example.find is None:
        return example.variables
    token = token_of(example, gateway)
    if "watches" in example.find:
        gateway.data(WATCH, token)
    variables = example.variables or {}
    sought = {name for name, value in variables.items() if value is not None}
    found = None

    def find() -> bool:
        nonlocal found
        found = _first_with(sought, gateway.data(example.find or "", token))
        return found is not None

    until_blocking(find, 20)
    assert found is not None
    return {**variables, **found}


def _first_with(names: set[str], value: Any) -> dict[str, Any] | None:
    """Return the first nested object with all of these keys, reduced to them."""
    if isinstance(value, dict) and names <= value.keys():
        return {name: value[name] for name in names}
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((found for each in inner if (found := _first_with(names, each)) is not None), None)


def with_fields(query: str, *names: str) -> str:
    """Add these fields to each selection of an object that has an id."""
    types = TypeInfo(SCHEMA)

    class Added(Visitor):
        def leave_selection_set(self, node: SelectionSetNode, *_: Any) -> SelectionSetNode:
            if "id" not in getattr(types.get_parent_type(), "fields", {}):
                return node
            added = [FieldNode(name=NameNode(value=name)) for name in names]
            return SelectionSetNode(selections=(*node.selections, *added))

    return print_ast(visit(parse(query), TypeInfoVisitor(types, Added())))
