"""The tables in the store: `gateway.py tables create|describe|export`."""

import json
from enum import StrEnum
from typing import Annotated

import typer

from commands.options import DATA_DIR, DataDir, Memory, Prefix, Region, StoreOption, store_options
from console import run, waiting
from datastore import tables
from datastore.database import open_database
from datastore.keyspace import TABLES

commands = typer.Typer(no_args_is_help=True, help="The tables in the store.")


class ExportFormat(StrEnum):
    CLOUDFORMATION = "cloudformation"
    TERRAFORM = "terraform"


@commands.command("create")
def create_tables(
    store: StoreOption = "embedded",
    data_dir: DataDir = DATA_DIR,
    memory: Memory = False,
    prefix: Prefix = "",
    region: Region = None,
) -> None:
    """Create the declared tables that are missing."""
    options = store_options(store, data_dir, memory, prefix, region)

    async def create() -> None:
        async with open_database(options) as database:
            with waiting("Creating the tables…"):
                made = await database.create_tables()
        typer.echo(f"Created: {', '.join(made)}" if made else "All tables exist.")

    run(create)


@commands.command("describe")
def describe_tables(
    store: StoreOption = "embedded",
    data_dir: DataDir = DATA_DIR,
    memory: Memory = False,
    prefix: Prefix = "",
    region: Region = None,
) -> None:
    """Print what the store says of the declared tables, as JSON."""
    options = store_options(store, data_dir, memory, prefix, region)

    async def describe() -> None:
        async with open_database(options) as database:
            typer.echo(json.dumps(await database.describe_tables(), indent=2, default=str))

    run(describe)


@commands.command("export")
def export_tables(
    format: Annotated[ExportFormat, typer.Option(help="For which tool.")] = ExportFormat.CLOUDFORMATION,
    store: StoreOption = "embedded",
    data_dir: DataDir = DATA_DIR,
    memory: Memory = False,
    prefix: Prefix = "",
    region: Region = None,
) -> None:
    """Print the declared tables as a CloudFormation template or as Terraform resources. The store is not asked."""
    store_options(store, data_dir, memory, prefix, region)
    export = tables.cloudformation if format is ExportFormat.CLOUDFORMATION else tables.terraform
    typer.echo(export(TABLES, prefix))
