"""The commands of trusted documents: `documents check`, `put`, `list`, `delete` and `extract`."""

import json
import os
from collections.abc import Callable, Coroutine, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from datastore.database import StoreOptions
from datastore.gateway.persisted_documents import StoredDocuments
from runtime.cli.options import takes_store, with_gateway
from runtime.console import mistake
from runtime.container import Gateway
from server.documents.document_cache import Documents
from server.documents.persisted.extraction import extract_manifest
from server.documents.persisted.manifest import ManifestProblem, is_hash, plain_id, sha256_of
from server.documents.persisted.trusted import PreparedManifest, prepare_manifest
from server.documents.settings import document_settings

commands = typer.Typer(no_args_is_help=True, help="Trusted documents, which clients may name by an id.")

Manifest = Annotated[Path, typer.Argument(help="A manifest: {id: text}, or Apollo's format.")]
TABLE_SECONDS = 600.0
SUFFIXES = (".graphql", ".gql")


@commands.command("check")
@takes_store
def check_documents(manifest: Manifest, store: StoreOptions) -> None:
    """Check a manifest against the schema and the limits, and print its operations with their estimated costs.

    The command does not contact the store. In a build, exit status 1 means that a document cannot be used.
    """
    prepared = _prepared(manifest)
    tools = {tool.document_id: f"  tool {tool.mark.name}" for tool in prepared.tools}
    for document_id, document in prepared.documents.items():
        for operation in document.operations:
            cost, tool = operation.estimate({}).units, tools.get(document_id, "")
            typer.echo(f"{document_id}  {operation.kind.value} {operation.name or '-'}  {cost:g} read units{tool}")


@commands.command("put")
@takes_store
def put_documents(manifest: Manifest, store: StoreOptions) -> None:
    """Check a manifest, and store its documents in the table. The text of an id never changes.

    Each document is also stored under its SHA-256, so that clients may send its full text. If an id already has another
    text, no document is stored. Marks of tools are not stored.
    """
    documents = _prepared(manifest).documents
    texts = {sha256_of(document.text): document.text for document in documents.values()}
    texts |= {document_id: document.text for document_id, document in documents.items()}

    async def put(known: StoredDocuments) -> None:
        stored = {found.document_id: found.text async for found in known.all()}
        _check_taken(name for name, text in texts.items() if stored.get(name, text) != text)
        now = datetime.now(UTC)
        # Another process may have stored a text since the read: each put is conditional.
        _check_taken([name for name, text in texts.items() if (await known.put(name, text, now)).text != text])
        typer.echo(f"{len(documents)} documents are stored")

    _in_table(put, store)


@commands.command("list")
@takes_store
def list_documents(store: StoreOptions) -> None:
    """Print the documents in the table as a manifest: {id: text}."""

    async def show(known: StoredDocuments) -> None:
        typer.echo(json.dumps({found.document_id: found.text async for found in known.all()}, indent=2))

    _in_table(show, store)


@commands.command("delete")
@takes_store
def delete_documents(
    ids: Annotated[list[str], typer.Argument(help="The ids, as `list` prints them.")],
    store: StoreOptions,
) -> None:
    """Delete documents from the table. Gateways notice within a minute.

    The deletion of a text's last name also deletes its SHA-256. Its full text is then no longer trusted either.
    """
    named = [plain_id(document_id) for document_id in ids]

    async def delete(known: StoredDocuments) -> None:
        stored = {found.document_id: found.text async for found in known.all()}
        deleted = stored.keys() & named
        texts = {stored[document_id] for document_id in deleted}
        other_names = {stored[name]: name for name in sorted(stored.keys() - deleted) if not is_hash(name)}
        deleted |= stored.keys() & {sha256_of(text) for text in texts - other_names.keys()}
        # Hashes are deleted first: after an interruption, the command can be repeated with the same names.
        for document_id in sorted(deleted, key=lambda document_id: (not is_hash(document_id), document_id)):
            await known.delete(document_id)
            typer.echo(f"{document_id} is deleted")
        for text in sorted(texts & other_names.keys()):
            typer.echo(f"the text {sha256_of(text)} still runs: {other_names[text]} is another id of it")
        unknown = [document_id for document_id in named if document_id not in stored]
        if unknown:
            raise mistake(f"no document has the id {', '.join(unknown)}.")

    _in_table(delete, store)


@commands.command("extract")
@takes_store
def extract_documents(
    *,
    sources: Annotated[
        list[Path], typer.Argument(help="Files with operations, or folders of such files.", exists=True)
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The file to write the manifest to, else stdout.")
    ] = None,
    names: Annotated[
        bool, typer.Option("--names", help="Use the operations' names as ids, not their SHA-256.")
    ] = False,
    tools: Annotated[
        bool, typer.Option("--tools", help="Mark the operations with a description as tools: see docs/mcp.md.")
    ] = False,
    store: StoreOptions,
) -> None:
    """Make a manifest of the operations in .graphql files, without checking them: see `check`."""
    try:
        files = {str(path): path.read_text() for source in sources for path in _graphql_files(source)}
        text = json.dumps(extract_manifest(files, by_name=names, with_tools=tools), indent=2)
        if output is not None:
            output.write_text(text + "\n")
    except ManifestProblem as problem:
        raise mistake(f"{problem}.") from None
    except OSError as problem:
        raise mistake(f"{problem.filename}: {problem.strerror}.") from None
    if output is None:
        typer.echo(text)


def _check_taken(names: Iterable[str]) -> None:
    """End the command if `names`, the ids that other texts have, are not empty."""
    if taken := sorted(names):
        raise mistake(f"these ids are taken by other texts: {', '.join(taken)}.")


def _graphql_files(source: Path) -> Iterator[Path]:
    if source.is_file():
        yield source
    else:
        yield from sorted(path for path in source.rglob("*") if path.suffix in SUFFIXES)


def _prepared(manifest: Path) -> PreparedManifest:
    """Return the prepared documents of a manifest. Print its problems, a line each; if any, end the command."""
    import schema  # not at the top of the module: other commands start sooner without it

    try:
        settings = document_settings(os.environ)
        schema_of_settings = schema.build(incremental=settings.incremental, federation=settings.federation)
        documents = Documents(schema_of_settings, settings.limits, max_cost=settings.max_cost)
        return prepare_manifest(documents, manifest.read_bytes())
    except ValueError as problem:
        raise mistake(problem, 2) from None
    except OSError as problem:
        raise mistake(f"{manifest} cannot be read: {problem.strerror}.") from None
    except ManifestProblem as invalid:
        for text in invalid.problems[:-1]:
            mistake(f"{text}.")
        raise mistake(f"{invalid.problems[-1]}.") from None


def _in_table(work: Callable[[StoredDocuments], Coroutine[Any, Any, None]], options: StoreOptions) -> None:
    """Run `work` on the documents in the table."""

    async def work_on_table(gateway: Gateway) -> None:
        await work(StoredDocuments(gateway.open_store(TABLE_SECONDS)))

    with_gateway(work_on_table, options)
