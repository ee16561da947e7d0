"""The parameters of a GraphQL request, the same for HTTP, server-sent events and WebSocket."""

from collections.abc import Collection
from enum import StrEnum
from typing import Any

from msgspec import Struct

from datastore.errors import BadUserInput


class Stage(StrEnum):
    """The stage in which the processing of an operation ended."""

    PARSING = "parsing"
    VALIDATION = "validation"
    SELECTION = "selection"
    ADMISSION = "admission"
    EXECUTION = "execution"


class GraphQLParams(Struct):
    """The parameters of a request: a document or its id, the name of an operation, and the variables."""

    query: str | None
    variables: dict[str, Any] | None = None
    name: str | None = None
    extensions: dict[str, Any] | None = None
    document_id: str | None = None
    #: The Idempotency-Key: a mutation with a key is executed once for its caller and key.
    idempotency_key: str | None = None
    #: Whether the response reports the calls to DynamoDB.
    explain: bool = False
    #: The validated traceparent.
    traceparent: str | None = None
    #: The id of the HTTP request or of the WebSocket, for the log.
    request_id: bytes = b""
    #: The event id after which a subscription resumes, unchecked.
    resume_after: object = None
    #: Whether a subscription also sends its resume position on its own when no event carries it.
    wants_positions: bool = False
    #: The bytes of JSON from which the parameters were read.
    size: int = 0

    def retain_variables(self, variables: Collection[str]) -> None:
        """Drop the variables and extensions that a subscription does not use while it runs."""
        self.variables = {name: value for name, value in (self.variables or {}).items() if name in variables}
        document_hash = self.requested_id if self.document_id is None else None
        self.extensions = None if document_hash is None else {"persistedQuery": {"sha256Hash": document_hash}}

    @property
    def requested_id(self) -> str | None:
        """The id or hash that names the document. It is unchecked."""
        if self.document_id is not None:
            return self.document_id
        persisted = (self.extensions or {}).get("persistedQuery")
        document_hash = persisted.get("sha256Hash") if isinstance(persisted, dict) else None
        return document_hash if isinstance(document_hash, str) else None


_TEXT, _OBJECT = (str, "a string"), (dict, "an object")
# The parameters with their types, in the order in which they are checked.
_NAMES = ("extensions", "documentId", "query", "operationName", "variables")
_KINDS = (_OBJECT, _TEXT, _TEXT, _TEXT, _OBJECT)


def read_params(payload: object, size: int = 0) -> GraphQLParams:
    """Return the parameters in a decoded JSON body or message of `size` bytes.

    Raises `BadUserInput` with the name of the invalid parameter.
    """
    if payload.__class__ is not dict:
        raise BadUserInput("The request must be a JSON object.")
    values = [*map(payload.get, _NAMES)]
    for value, name, (kind, noun) in zip(values, _NAMES, _KINDS, strict=True):
        if value is not None and value.__class__ is not kind:
            raise BadUserInput(f"`{name}` must be {noun}.")
    extensions, document_id, query, operation_name, variables = values
    if document_id == "":
        raise BadUserInput("`documentId` is empty.")
    if query is None and document_id is None and "persistedQuery" not in (extensions or {}):
        raise BadUserInput("Send `query`, or `documentId`.")
    params = GraphQLParams(query, variables, operation_name or None, extensions, document_id, size=size)
    if extensions:
        params.idempotency_key = _idempotency_key(extensions)
        if "resumeAfter" in extensions:
            params.resume_after, params.wants_positions = extensions["resumeAfter"], True
    return params


def _idempotency_key(extensions: dict[str, Any]) -> str | None:
    """Return the key of a client that cannot send the header. Another type becomes "", which is refused later."""
    key = extensions.get("idempotencyKey")
    return key if key is None or isinstance(key, str) else ""
