"""Manifests: the build of an application writes its documents, each with an id, into a file."""

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from server.security.strict_json import decode_json

APOLLO = "apollo-persisted-query-manifest"
MAX_ID_CHARACTERS = 256
MAX_PROBLEMS_SHOWN = 20
_SHA256 = re.compile(r"[0-9a-f]{64}")
_PREFIX = "sha256:"


class ManifestProblem(Exception):
    """A manifest is invalid.

    A problem of a document begins with the document's id. No problem ends with a full stop. `texts` are the documents
    without a problem, by id.
    """

    def __init__(self, problems: list[str], texts: Mapping[str, str] | None = None) -> None:
        problems = [problem.removesuffix(".") for problem in problems]
        more = len(problems) - MAX_PROBLEMS_SHOWN
        shown = problems[:MAX_PROBLEMS_SHOWN] + ([f"and {more} more"] if more > 0 else [])
        super().__init__("; ".join(shown))
        self.problems = problems
        self.texts = texts or {}


def sha256_of(text: str) -> str:
    """Return the SHA-256 of a text: 64 lower-case hexadecimal digits. It names a document like its id."""
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


def is_hash(document_id: str) -> bool:
    """Return whether an id is a SHA-256."""
    return _SHA256.fullmatch(document_id) is not None


def plain_id(document_id: str) -> str:
    """Return the id without `sha256:`, the prefix of hashes in GraphQL over HTTP."""
    bare = document_id.removeprefix(_PREFIX)
    return bare if is_hash(bare) else document_id


def read_manifest(raw: bytes) -> dict[str, str]:
    """Return the texts of a manifest by id. Raises `ManifestProblem`.

    A manifest is an object of ids and texts, as Relay's compiler writes it, or Apollo's
    `apollo-persisted-query-manifest`, version 1, whose operations may be marked as tools (`tool_marks.py`). An id that
    is a SHA-256, with or without `sha256:`, must be the SHA-256 of its text.
    """
    content = decode_manifest(raw)
    texts: dict[str, str] = {}
    problems: list[str] = []
    for document_id, text in _operations(content) if "format" in content else content.items():
        problem = _problem(document_id, text, texts)
        if problem is None:
            texts[plain_id(document_id)] = text
        else:
            problems.append(problem)
    if problems:
        raise ManifestProblem(problems, texts)
    return texts


def decode_manifest(raw: bytes) -> dict[str, Any]:
    """Return the object in a manifest, whose members are not checked. Raises `ManifestProblem`."""
    try:
        content = decode_json(raw, "it")
    except ValueError as error:
        raise ManifestProblem([str(error)]) from None
    if not isinstance(content, dict):
        raise ManifestProblem(["it is not an object of ids and texts"])
    return content


def _operations(content: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    if (content["format"], content.get("version")) != (APOLLO, 1):
        raise ManifestProblem([f"its format is neither {APOLLO}, version 1, nor an object of ids and texts"])
    operations = content.get("operations")
    if not isinstance(operations, list):
        raise ManifestProblem(["its operations are not a list"])
    for operation in operations:
        if not isinstance(operation, dict):
            raise ManifestProblem(["one of its operations is not an object"])
        yield operation.get("id"), operation.get("body")


def _problem(document_id: Any, text: Any, texts: Mapping[str, str]) -> str | None:
    """Return the problem of a document, or None. `texts` are the documents before it, by id."""
    if not isinstance(document_id, str) or not 0 < len(document_id) <= MAX_ID_CHARACTERS:
        return f"{str(document_id)[:MAX_ID_CHARACTERS]!r} is not an id: a string of 1 to {MAX_ID_CHARACTERS} characters"
    if not isinstance(text, str):
        return f"{document_id}: its text is not a string"
    bare = plain_id(document_id)
    if is_hash(bare) and sha256_of(text) != bare:
        return f"{document_id}: the SHA-256 of its text is {sha256_of(text)}"
    return f"{document_id}: two texts have this id" if texts.get(bare, text) != text else None
