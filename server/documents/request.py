"""The parameters of a GraphQL request, the same for HTTP, server-sent events and WebSocket."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from datastore.errors import BadUserInput


class Stage(StrEnum):
    """The stage in which the processing of an operation ended."""

    PARSING = "parsing"
    VALIDATION = "validation"
    SELECTION = "selection"
    ADMISSION = "admission"
    EXECUTION = "execution"


@dataclass(slots=True)  # not frozen: a frozen dataclass pays a call for each field, at every request
class GraphQLParams:
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
    traceparent: str | None = None
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


def read_params(payload: object, size: int = 0) -> GraphQLParams:
    """Return the parameters in a decoded JSON body or message of `size` bytes.

    Raises `BadUserInput` with the name of the invalid parameter.
    """
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
    params = GraphQLParams(query, _object(get("variables"), "variables"), name or None, extensions, document_id, key)
    params.size = size
    if extensions and "resumeAfter" in extensions:
        params.resume_after, params.wants_positions = extensions["resumeAfter"], True
    return params


def _idempotency_key(extensions: dict[str, Any]) -> str | None:
    """Return the key of a client that cannot send the header. Another type becomes "", which is refused later."""
    key = extensions.get("idempotencyKey")
    return key if key is None or isinstance(key, str) else ""


def _object(value: Any, name: str) -> dict[str, Any] | None:
    if value is not None and not isinstance(value, dict):
        raise BadUserInput(f"`{name}` must be an object.")
    return value
