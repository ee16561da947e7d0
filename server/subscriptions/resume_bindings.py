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
    """Return the field and the arguments that determine its events, in a canonical form."""
    field, arguments = _field_of(request)
    if field is None:
        return _bound(request.operation.root_field, arguments)
    return _bound(field.name.value, {name: value for name, value in arguments.items() if name not in PACING})


def stream_key(request: Request) -> bytes:
    """Return the key of subscriptions that can share a stream: the field and all its arguments.

    For a field in a fragment it is the operation with its variables. Equal keys have equal bindings.
    """
    field, arguments = _field_of(request)
    operation = request.operation
    head = [operation.document.text, operation.name] if field is None else [field.name.value]
    return json.dumps([head, arguments], default=_not_json, sort_keys=True).encode(errors="surrogatepass")


def _field_of(request: Request) -> tuple[FieldNode | None, dict[str, Any]]:
    """Return the field of the subscription and its arguments; None and the variables if it is in a fragment."""
    node = request.operation.node
    variables = {
        definition.variable.name.value: value_from_ast_untyped(definition.default_value)
        for definition in node.variable_definitions or ()
        if definition.default_value is not None
    } | dict(request.params.variables or {})
    field = node.selection_set.selections[0]
    if not isinstance(field, FieldNode):
        return None, variables
    return field, {
        argument.name.value: value_from_ast_untyped(argument.value, variables) for argument in field.arguments or ()
    }


def _not_json(value: Any) -> Any:
    """Return the form of a variable that was not given. No JSON value of an argument is equal to it."""
    return {"": repr(value)}


def resume_of(request: Request, ids: ResumeIds) -> ResumeRequest | None:
    """Return the event after which the subscription resumes; None for a new one. Raises `BadUserInput`."""
    after = request.params.resume_after
    return None if after is None else ids.open(after, binding_of(request))


def _bound(field: str, arguments: Mapping[str, Any]) -> bytes:
    given = {name: value for name, value in arguments.items() if value is not None}
    return f"{field}?".encode() + json.dumps(given, default=str, sort_keys=True).encode()
