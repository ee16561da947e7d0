"""The command `schema`."""

import os
from typing import Annotated

import typer

from datastore.database import StoreOptions
from runtime.cli.options import takes_store
from runtime.console import mistake
from server.documents.settings import document_settings


@takes_store
def print_schema(
    *,
    federation: Annotated[
        bool, typer.Option("--federation", help="Print the schema of the federation subgraph, to compose a supergraph.")
    ] = False,
    store: StoreOptions,
) -> None:
    """Print the schema in GraphQL's schema language. It is the same for every store, and none is contacted."""
    import schema as api  # not at the top of the module: other commands start sooner without it

    if federation:
        typer.echo(api.federation_sdl())
        return
    try:
        settings = document_settings(os.environ)
    except ValueError as problem:
        raise mistake(problem, 2) from None
    typer.echo(api.build(incremental=settings.incremental, federation=settings.federation).as_str())
