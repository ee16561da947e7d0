"""Marks in a manifest: they offer a trusted document as a tool of the Model Context Protocol (MCP).

A mark is the member `tool` of an operation in Apollo's format. Programs that know no tools ignore it.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from graphql.language import OperationType
from msgspec import Struct

from server.documents.document_cache import Document, PreparedOperation
from server.documents.persisted.manifest import ManifestProblem, decode_manifest, plain_id

# Clients show their models the whole list of tools. Models choose badly among more, and the list takes their context.
MAX_TOOLS = 100
MAX_TITLE_CHARACTERS, MAX_DESCRIPTION_CHARACTERS = 100, 2_000
# The bytes of a result in JSON: some 16,000 tokens of a model.
RESULT_BYTES, MIN_RESULT_BYTES, MAX_RESULT_BYTES = 65_536, 1_024, 1_048_576
# The names that all clients accept.
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_FLAGS = ("destructive", "idempotent")
_MEMBERS = ("name", "title", "description", *_FLAGS, "resultBytes")


class ToolMark(Struct, frozen=True):
    """The mark of a document: what a client shows of the tool, and the largest number of bytes in a result."""

    name: str
    description: str
    title: str | None = None
    #: Whether a mutation may change or delete stored data, rather than only add to it.
    destructive: bool = True
    #: Whether repeating a mutation with the same arguments changes nothing more.
    idempotent: bool = False
    result_bytes: int = RESULT_BYTES


class MarkedDocument(Struct, frozen=True):
    """A trusted document that is a tool."""

    document_id: str
    operation: PreparedOperation
    mark: ToolMark


class _Invalid(Exception):
    """A mark is invalid. The message does not end with a full stop."""


def marked_documents(raw: bytes, documents: Mapping[str, Document]) -> list[MarkedDocument]:
    """Return the documents of a manifest that are tools, in its order.

    `documents` are the prepared ones by id. A mark without a name or a description gets those of the operation.

    Raises:
        ManifestProblem: marks are invalid, or have the same name.
    """
    marked: dict[str, MarkedDocument] = {}
    problems: list[str] = []
    for document_id, mark in _marks(raw):
        if document_id not in documents:
            continue  # the document itself is invalid
        try:
            tool = _marked(document_id, documents[document_id], mark)
            if tool.mark.name in marked:
                raise _Invalid(f"{marked[tool.mark.name].document_id} is also the tool {tool.mark.name}")
            marked[tool.mark.name] = tool
        except _Invalid as problem:
            problems.append(f"{document_id}: {problem}")
    if len(marked) > MAX_TOOLS:
        problems.append(f"it has {len(marked)} tools, and may have at most {MAX_TOOLS}")
    if problems:
        raise ManifestProblem(problems)
    return list(marked.values())


def _marks(raw: bytes) -> Iterator[tuple[str, Any]]:
    content = decode_manifest(raw)
    for operation in content["operations"] if "format" in content else ():
        if "tool" in operation and isinstance(operation.get("id"), str):
            yield plain_id(operation["id"]), operation["tool"]


def _marked(document_id: str, document: Document, mark: Any) -> MarkedDocument:
    if not isinstance(mark, dict):
        raise _Invalid("tool is not an object")
    if unknown := sorted(mark.keys() - set(_MEMBERS)):
        raise _Invalid(f"tool has the member {unknown[0]!r}; the members are {', '.join(_MEMBERS)}")
    if len(document.operations) != 1:
        raise _Invalid("a tool has one operation, and the document has several")
    operation = document.operations[0]
    if operation.kind is OperationType.SUBSCRIPTION:
        raise _Invalid("a tool is a query or a mutation, and not a subscription")
    return MarkedDocument(document_id, operation, _read(mark, operation))


def _read(mark: Mapping[str, Any], operation: PreparedOperation) -> ToolMark:
    name = mark.get("name", operation.name)
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _Invalid("tool.name must have 1 to 64 letters, digits, _ or -")
    described = operation.node.description
    description = mark.get("description", described.value if described else None)
    if not isinstance(description, str) or not 0 < len(description.strip()) <= MAX_DESCRIPTION_CHARACTERS:
        raise _Invalid(f"tool.description must have 1 to {MAX_DESCRIPTION_CHARACTERS:,} characters")
    title = mark.get("title")
    if title is not None and not (isinstance(title, str) and 0 < len(title.strip()) <= MAX_TITLE_CHARACTERS):
        raise _Invalid(f"tool.title must have 1 to {MAX_TITLE_CHARACTERS} characters")
    for flag in _FLAGS:
        if not isinstance(mark.get(flag, True), bool):
            raise _Invalid(f"tool.{flag} must be true or false")
    size = mark.get("resultBytes", RESULT_BYTES)
    if type(size) is not int or not MIN_RESULT_BYTES <= size <= MAX_RESULT_BYTES:
        raise _Invalid(f"tool.resultBytes must be a number from {MIN_RESULT_BYTES:,} to {MAX_RESULT_BYTES:,}")
    return ToolMark(
        name,
        description.strip(),
        title,
        destructive=mark.get("destructive", True),
        idempotent=mark.get("idempotent", False),
        result_bytes=size,
    )
