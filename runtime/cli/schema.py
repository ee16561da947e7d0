"""The command `schema`."""

import typer

from datastore.database import StoreOptions
from runtime.cli.options import takes_store


@takes_store
def print_schema(store: StoreOptions) -> None:
    """Print the schema in GraphQL's schema language. It is the same for every store, and none is contacted."""
    import schema as api  # not at the top of the module: other commands start sooner without it

    typer.echo(api.build().as_str())
