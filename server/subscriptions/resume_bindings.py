"""The binding of resume ids: a subscription's field and arguments, so that no other subscription accepts them."""

import json
from collections.abc import Mapping
from typing import Any

from graphql import FieldNode, value_from_ast_untyped

from datastore.change_streams.replay.signed_resume_ids import ResumeIds, ResumeRequest
from server.operations.request import Request

# These arguments determine how events are sent, and not which events.
PACING = frozenset(("whenSlow", "buffer", "minIntervalMs"))


def binding_of(request: Request) -> bytes:
    """Return the field and its arguments in a canonical form."""
    node = request.operation.node
    variables = {
        definition.variable.name.value: value_from_ast_untyped(definition.default_value)
        for definition in node.variable_definitions or ()
        if definition.default_value is not None
    } | dict(request.params.variables or {})
    field = node.selection_set.selections[0]
    if not isinstance(field, FieldNode):
        return _bound(request.operation.root_field, variables)
    arguments = {
        argument.name.value: value_from_ast_untyped(argument.value, variables) for argument in field.arguments or ()
    }
    return _bound(field.name.value, {name: value for name, value in arguments.items() if name not in PACING})


def resume_of(request: Request, ids: ResumeIds) -> ResumeRequest | None:
    """Return the event after which the subscription resumes; None for a new one. Raises `BadUserInput`."""
    after = request.params.resume_after
    return None if after is None else ids.open(after, binding_of(request))


def _bound(field: str, arguments: Mapping[str, Any]) -> bytes:
    given = {name: value for name, value in arguments.items() if value is not None}
    return f"{field}?".encode() + json.dumps(given, default=str, sort_keys=True).encode()
