"""Messages of the Model Context Protocol: a request read within limits, and the errors that refuse one."""

from typing import Any

from datastore.errors import BadUserInput
from server.documents.variables import MAX_DEPTH as MAX_VARIABLE_DEPTH
from server.documents.variables import MAX_VALUES as MAX_VARIABLE_VALUES
from server.http.body import decode_content
from server.http.responses import Refused
from server.operations.outcome import encode, format_error

# The variables are within `params.arguments`. Clients add some metadata.
MAX_DEPTH = MAX_VARIABLE_DEPTH + 4
MAX_VALUES = MAX_VARIABLE_VALUES + 200
# The methods by which requests are counted.
METHODS = frozenset(
    {
        *("initialize", "ping", "server/discover", "tools/list", "tools/call", "resources/list", "resources/read"),
        *("resources/templates/list", "prompts/list", "notifications/initialized", "notifications/cancelled"),
    }
)
OTHER = "other"
_INVALID_REQUEST, _SERVER_ERROR = -32600, -32010


def read_message(body: bytes) -> dict[str, Any]:
    """Return the decoded JSON-RPC message, of whose members only the id is checked.

    Raises `BadUserInput` if it is no object, nested too deeply, or has too many values.
    """
    message = decode_content(body, "The body")
    if not isinstance(message, dict):
        raise BadUserInput("The body must be one JSON-RPC message: an object. Batches are not supported.")
    if "id" in message and not isinstance(message["id"], str | int):
        raise BadUserInput("`id` must be a string or an integer.", field="id")
    level: list[Any] = [message]
    count, depth = 1, 0
    while level:
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below += value.values()
            elif isinstance(value, list):
                below += value
        count, depth = count + len(below), depth + 1
        if depth > MAX_DEPTH:
            raise BadUserInput(f"A message may have at most {MAX_DEPTH} levels.", measure="depth", limit=MAX_DEPTH)
        if count > MAX_VALUES:
            raise BadUserInput(f"A message may have at most {MAX_VALUES:,} values.", measure="values", limit=MAX_VALUES)
        level = below
    return message


def method_of(message: dict[str, Any]) -> str:
    """Return the method of a message for metrics; OTHER for any that this module does not know."""
    method = message.get("method")
    return method if isinstance(method, str) and method in METHODS else OTHER


def refusal_body(refused: Refused, message: dict[str, Any] | None) -> bytes:
    """Return the JSON-RPC error of a refused request, with the id of its message if that was read."""
    return error_body(format_error(refused.error), message, _INVALID_REQUEST if refused.status == 400 else None)


def error_body(error: dict[str, Any], message: dict[str, Any] | None, code: int | None = None) -> bytes:
    """Return the JSON-RPC error for an error in the form of the API's errors, which becomes its data."""
    request_id = None if message is None else message.get("id")
    return encode(
        {
            "jsonrpc": "2.0",
            "id": request_id if isinstance(request_id, str | int) else None,
            "error": {"code": code or _SERVER_ERROR, "message": error["message"], "data": error["extensions"]},
        }
    )
