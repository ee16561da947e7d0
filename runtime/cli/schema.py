"""The schema in GraphQL's schema language: `gateway.py schema`."""

import typer

from runtime.cli.options import DATA_DIR, DataDir, Memory, Prefix, Region, StoreOption, store_options


def print_schema(
    store: StoreOption = "embedded",
    data_dir: DataDir = DATA_DIR,
    memory: Memory = False,
    prefix: Prefix = "",
    region: Region = None,
) -> None:
    """Print the schema in GraphQL's schema language. The store is not asked: the schema is the same on each."""
    store_options(store, data_dir, memory, prefix, region)
    import schema as api  # here alone: other commands start sooner without it

    typer.echo(api.build().as_str())
