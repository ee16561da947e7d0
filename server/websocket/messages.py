"""The messages of graphql-transport-ws, and the close codes of a socket."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from datastore.errors import BadUserInput
from server.documents.request import GraphQLParams, read_params
from server.operations.outcome import encode
from server.security.strict_json import decode_json


class CloseCode(NamedTuple):
    """The code and the reason of a close frame."""

    code: int
    reason: str = ""


GOING_AWAY = CloseCode(1001, "The server is shutting down")
# https://www.iana.org/assignments/websocket/websocket.xhtml: Service Restart
RESTART = 1012
RECONNECT_AFTER = "reconnectAfterMs"


class ProtocolError(Exception):
    """A violation of the protocol, or a peer without access: the socket is closed."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.close_code = CloseCode(code, reason)


class Message(NamedTuple):
    """A well-formed message of a client."""

    type: str
    id: str = ""
    payload: dict[str, Any] | None = None
    size: int = 0  # characters


# The id is sent back with every message of its operation.
LONGEST_ID = 256

_WITHOUT_ID = frozenset({"connection_init", "ping", "pong"})
_WITH_ID = frozenset({"subscribe", "complete"})
_TYPES = _WITHOUT_ID | _WITH_ID


def read_message(text: str | None) -> Message:
    """Parse a message. Raises `ProtocolError` with the code 4400 for any deviation from the protocol."""
    if text is None:
        raise ProtocolError(4400, "Invalid message: binary, and not text")
    try:
        message = decode_json(text, "it")
    except ValueError as problem:
        raise ProtocolError(4400, f"Invalid message: {problem}") from None
    if not isinstance(message, dict):
        raise ProtocolError(4400, "Invalid message: not an object")
    kind, id, payload = message.get("type"), message.get("id"), message.get("payload")
    if not isinstance(kind, str) or kind not in _TYPES:
        raise ProtocolError(4400, "Invalid message: unknown type")
    if kind in _WITHOUT_ID:
        return Message(kind, "", _payload(payload))
    if not isinstance(id, str) or not id:
        raise ProtocolError(4400, "Invalid message: id must be a non-empty string")
    if len(id) > LONGEST_ID:
        raise ProtocolError(4400, f"Invalid message: id must have at most {LONGEST_ID} characters")
    return Message(kind, id, _payload(payload) if kind == "subscribe" else None, len(text))


def _payload(payload: object) -> dict[str, Any] | None:
    if payload is not None and not isinstance(payload, dict):
        raise ProtocolError(4400, "Invalid message: payload must be an object")
    return payload


def requested_operation(message: Message) -> GraphQLParams:
    """Return the operation of a `subscribe` message. Raises `ProtocolError`."""
    try:
        return read_params(message.payload, message.size)
    except BadUserInput as error:
        raise ProtocolError(4400, f"Invalid message: {error}") from None


def positions_message(resume_ids: Mapping[str, str | None], reconnect_ms: int | None = None) -> bytes:
    """Return a ping with resume ids by operation id, and the delay in ms after which the client reconnects."""
    delay = {} if reconnect_ms is None else {RECONNECT_AFTER: reconnect_ms}
    return encode({"type": "ping", "payload": {"resume": resume_ids, **delay}})


def restart(reconnect_ms: int) -> CloseCode:
    """Return the close code after which the client reconnects with a delay. A reason has at most 123 bytes."""
    return CloseCode(RESTART, encode({RECONNECT_AFTER: reconnect_ms}).decode())
