"""The schema in GraphQL's schema language: `gateway.py schema`."""

import typer

from datastore.database import StoreOptions
from runtime.cli.options import takes_store


@takes_store
def print_schema(
    store: StoreOptions,
) -> None:
    """Print the schema in GraphQL's schema language. The store is not asked: the schema is the same on each."""
    import schema as api  # here alone: other commands start sooner without it

    typer.echo(api.build().as_str())
