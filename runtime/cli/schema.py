"""The command `schema`."""

import os

import typer

from datastore.database import StoreOptions
from runtime.cli.options import takes_store
from runtime.console import mistake
from server.documents.settings import document_settings


@takes_store
def print_schema(store: StoreOptions) -> None:
    """Print the schema in GraphQL's schema language. It is the same for every store, and none is contacted."""
    import schema as api  # not at the top of the module: other commands start sooner without it

    try:
        settings = document_settings(os.environ)
    except ValueError as problem:
        raise mistake(problem, 2) from None
    typer.echo(api.build(incremental=settings.incremental).as_str())
