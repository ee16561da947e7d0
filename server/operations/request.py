"""What a client asks for, and who asks: what HTTP, WebSocket and server-sent events read alike."""

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from datastore.errors import BadUserInput
from datastore.model.identity import Identity


class Transport(StrEnum):
    """How an operation came."""

    HTTP = "http"
    EVENTS = "sse"
    WEBSOCKET = "websocket"


# Made for every operation, hence not frozen: that costs a call for each field.


@dataclass(slots=True)
class Caller:
    """Who asks, and from which address: those without a token are told apart by it. `payer` is for its keeper."""

    identity: Identity | None
    address: str = ""
    payer: str | None = field(default=None, compare=False, repr=False)


@dataclass(slots=True)
class Operation:
    """What a client asks to be executed: a document, or the id of a known one.

    `idempotency_key` makes a mutation happen once; `explain` asks what it does to DynamoDB. `resume_after` is the id
    of the event after which a subscription goes on, unchecked; `wants_places`: told also where no event tells it.
    `size` is how many bytes of JSON it was read from.
    """

    query: str | None
    variables: dict[str, Any] | None = None
    name: str | None = None
    extensions: dict[str, Any] | None = None
    document_id: str | None = None
    idempotency_key: str | None = None
    explain: bool = False
    traceparent: str | None = None
    resume_after: object = None
    wants_places: bool = False
    size: int = 0

    def keep_only(self, variables: Collection[str]) -> None:
        """Forget what the operation does not use: a subscription keeps the rest for as long as it runs."""
        self.variables = {name: value for name, value in (self.variables or {}).items() if name in variables}
        found = self.asked_id if self.document_id is None else None
        self.extensions = None if found is None else {"persistedQuery": {"sha256Hash": found}}

    @property
    def asked_id(self) -> str | None:
        """The id or hash that it names a document by, unchecked."""
        if self.document_id is not None:
            return self.document_id
        persisted = (self.extensions or {}).get("persistedQuery")
        found = persisted.get("sha256Hash") if isinstance(persisted, dict) else None
        return found if isinstance(found, str) else None


def read_operation(payload: object, size: int = 0) -> Operation:
    """The operation in a JSON body or message of that size, decoded; `BadUserInput` names the field that is wrong."""
    if not isinstance(payload, dict):
        raise BadUserInput("The request must be a JSON object.")
    get = payload.get
    extensions = _object(get("extensions"), "extensions")
    query, document_id = get("query"), get("documentId")
    if document_id is not None and not isinstance(document_id, str):
        raise BadUserInput("`documentId` must be a string.")
    if document_id == "":
        raise BadUserInput("`documentId` is empty.")
    if query is not None and not isinstance(query, str):
        raise BadUserInput("`query` must be a string.")
    if query is None and document_id is None and "persistedQuery" not in (extensions or {}):
        raise BadUserInput("Send `query`, or `documentId`.")
    name = get("operationName")
    if name is not None and not isinstance(name, str):
        raise BadUserInput("`operationName` must be a string.")
    key = _idempotency_key(extensions) if extensions else None
    asked = Operation(query, _object(get("variables"), "variables"), name or None, extensions, document_id, key)
    asked.size = size
    if extensions and "resumeAfter" in extensions:
        asked.resume_after, asked.wants_places = extensions["resumeAfter"], True
    return asked


def _idempotency_key(extensions: dict[str, Any]) -> str | None:
    """For clients that cannot send the header. What is no text is no key, and is refused where one is needed."""
    key = extensions.get("idempotencyKey")
    return key if key is None or isinstance(key, str) else ""


def _object(value: Any, name: str) -> dict[str, Any] | None:
    if value is not None and not isinstance(value, dict):
        raise BadUserInput(f"`{name}` must be an object.")
    return value
