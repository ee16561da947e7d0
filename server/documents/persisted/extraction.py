"""Extraction of a manifest from `.graphql` files."""

from collections.abc import Mapping
from typing import Any

from graphql import DocumentNode, FragmentDefinitionNode, GraphQLError, OperationDefinitionNode, parse, print_ast
from graphql.language import OperationType
from graphql.utilities import separate_operations

from server.documents.persisted.manifest import APOLLO, ManifestProblem, sha256_of


def extract_manifest(files: Mapping[str, str], *, by_name: bool = False, with_tools: bool = False) -> dict[str, Any]:
    """Return a manifest in Apollo's format: each operation of the files with the fragments that it uses.

    `files` maps file names to texts. An operation may use fragments of all files. Ids are the SHA-256 of the texts, or
    with `by_name` the names of the operations. With `with_tools` queries and mutations that have a description are
    marked as tools.

    Raises `ManifestProblem` for invalid texts, and for operations or fragments without a unique name.
    """
    parts = list(_parts(files))
    _check_names(parts)
    document = DocumentNode(definitions=tuple(part for _, part in parts))
    operations = [_operation(name, only, by_name, with_tools) for name, only in separate_operations(document).items()]
    return {"format": APOLLO, "version": 1, "operations": operations}


def _parts(files: Mapping[str, str]) -> list[tuple[str, OperationDefinitionNode | FragmentDefinitionNode]]:
    found: list[tuple[str, OperationDefinitionNode | FragmentDefinitionNode]] = []
    for file, text in files.items():
        try:
            definitions = parse(text, allow_empty_selection_sets=False).definitions
        except GraphQLError as error:
            where = f":{error.locations[0].line}" if error.locations else ""
            raise ManifestProblem([f"{file}{where}: {error.message}"]) from None
        for part in definitions:
            if not isinstance(part, OperationDefinitionNode | FragmentDefinitionNode):
                raise ManifestProblem([f"{file}: only operations and fragments are allowed"])
            found.append((file, part))
    return found


def _check_names(parts: list[tuple[str, OperationDefinitionNode | FragmentDefinitionNode]]) -> None:
    problems: list[str] = []
    taken: dict[tuple[str, str], str] = {}
    for file, part in parts:
        if part.name is None:
            problems.append(f"{file}: an operation has no name")
            continue
        name = part.name.value
        if (part.kind, name) in taken:
            problems.append(f"{file}: {name} is also in {taken[part.kind, name]}")
        taken[part.kind, name] = file
    if problems:
        raise ManifestProblem(problems)


def _operation(name: str, document: DocumentNode, by_name: bool, with_tools: bool) -> dict[str, Any]:
    text = print_ast(document)
    operation = next(part for part in document.definitions if isinstance(part, OperationDefinitionNode))
    kind = operation.operation
    entry: dict[str, Any] = {"id": name if by_name else sha256_of(text), "name": name, "type": kind.value, "body": text}
    if with_tools and operation.description is not None and kind is not OperationType.SUBSCRIPTION:
        entry["tool"] = {}  # the text has the name and the description
    return entry
