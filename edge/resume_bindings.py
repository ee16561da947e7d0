"""What the ids of a subscription's events are bound to, so that they bring no other subscription forward."""

import json
from collections.abc import Mapping
from typing import Any

from graphql import FieldNode, value_from_ast_untyped

from datastore.resume_ids import Resume, ResumeIds
from edge.requests import Request

# They say how events are told, not which.
PACING = frozenset(("whenSlow", "buffer", "minIntervalMs"))


def binding_of(request: Request) -> bytes:
    """The field and its arguments, however they are written."""
    node = request.operation.node
    variables = {
        one.variable.name.value: value_from_ast_untyped(one.default_value)
        for one in node.variable_definitions or ()
        if one.default_value is not None
    } | dict(request.asked.variables or {})
    field = node.selection_set.selections[0]
    if not isinstance(field, FieldNode):
        return _bound(request.operation.root_field, variables)
    given = {one.name.value: value_from_ast_untyped(one.value, variables) for one in field.arguments or ()}
    return _bound(field.name.value, {name: value for name, value in given.items() if name not in PACING})


def resume_of(request: Request, ids: ResumeIds) -> Resume | None:
    """After which event it goes on; None for one that begins. Raises `BadUserInput`."""
    after = request.asked.resume_after
    return None if after is None else ids.open(after, binding_of(request))


def _bound(field: str, arguments: Mapping[str, Any]) -> bytes:
    told = {name: value for name, value in arguments.items() if value is not None}
    return f"{field}?".encode() + json.dumps(told, default=str, sort_keys=True).encode()
