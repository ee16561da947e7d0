"""The commands of the tables: `tables create`, `tables describe` and `tables export`."""

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

import typer

from datastore.database import StoreOptions, open_database
from datastore.infrastructure.alarms import AlarmLevel
from datastore.infrastructure.cloudformation import cloudformation
from datastore.infrastructure.iam_roles import ROLES
from datastore.infrastructure.policies import arn_format, policy
from datastore.infrastructure.table_differences import Difference
from datastore.infrastructure.terraform import terraform
from datastore.keyspace import TABLES
from runtime.cli.options import takes_store
from runtime.cli.output import mistake, run, waiting

commands = typer.Typer(no_args_is_help=True, help="The tables in the store.")


class ExportFormat(StrEnum):
    CLOUDFORMATION = "cloudformation"
    TERRAFORM = "terraform"


RoleName = StrEnum("RoleName", {role.name: role.name for role in ROLES})  # type: ignore[misc]


@commands.command("create")
@takes_store
def create_tables(
    store: StoreOptions,
    update: Annotated[
        bool,
        typer.Option(
            "--update",
            help="Add indexes, streams, TTL and protection that tables lack. Indexes are waited for, one by one.",
        ),
    ] = False,
) -> None:
    """Create the declared tables that are missing, and compare those that exist with their declaration.

    The status is 1 when one differs. In AWS, tables are made with point-in-time recovery and deletion protection.
    """

    async def create() -> None:
        async with open_database(store) as database:
            with waiting("Creating the tables…"):
                created = await database.create_tables()
            typer.echo(f"Created: {', '.join(created)}" if created else "All tables exist.")
            if update:
                differences = await database.update_tables(lambda change: typer.echo(f"Changing {change}"))
            else:
                differences = await database.compare_tables()
        for difference in differences:
            typer.echo(difference)
        if differences:
            raise mistake(_advice(differences, updated=update))

    run(create)


def _advice(differences: Sequence[Difference], *, updated: bool) -> str:
    """Return the message that ends the command. `updated` is whether `--update` was given."""
    tables = len({difference.table for difference in differences})
    summary = f"{tables} of the tables {'differs' if tables == 1 else 'differ'} from the declaration"
    if not updated and any(difference.change is not None for difference in differences):
        return f"{summary}: `tables create --update` adds what is missing."
    return f"{summary}, and no command changes that: see docs/infrastructure.md."


@commands.command("describe")
@takes_store
def describe_tables(store: StoreOptions) -> None:
    """Print what the store says of the declared tables, as JSON."""

    async def describe() -> None:
        async with open_database(store) as database:
            typer.echo(json.dumps(await database.describe_tables(), indent=2, default=str))

    run(describe)


@commands.command("export")
@takes_store
def export_tables(
    *,
    format: Annotated[ExportFormat, typer.Option(help="For which tool.")] = ExportFormat.CLOUDFORMATION,
    alarms: Annotated[
        AlarmLevel, typer.Option(help="What CloudWatch watches: throttling, DynamoDB's own errors too, or nothing.")
    ] = AlarmLevel.THROTTLING,
    policies: Annotated[
        bool, typer.Option("--policies", help="With a managed policy for each role of a process.")
    ] = False,
    iam: Annotated[bool, typer.Option("--iam", help="Print policies alone, as IAM takes them.")] = False,
    role: Annotated[
        list[RoleName] | None, typer.Option(help="Policies for these only; with --iam and one of them, its own alone.")
    ] = None,
    account: Annotated[str | None, typer.Option(help="The AWS account in what --iam prints.")] = None,
    photo_bucket: Annotated[
        str | None, typer.Option(envvar="GATEWAY_PHOTO_BUCKET", help="The bucket of photos in what --iam prints.")
    ] = None,
    store: StoreOptions,
) -> None:
    """Print the declared tables as a CloudFormation template or a Terraform file, or the policies of processes.

    Policies allow what the access patterns of a process do, and no more. Where account, region or bucket are not told,
    names stand in their place that CloudFormation's Fn::Sub replaces. The store is not asked.
    """
    if role and not (iam or policies):
        raise typer.BadParameter("is for --iam and --policies", param_hint="--role")
    chosen = [declared for declared in ROLES if not role or declared.name in role]
    if iam:
        arn = arn_format(prefix=store.prefix, region=store.region, account=account, bucket=photo_bucket)
        documents = {declared.name: policy(declared, arn) for declared in chosen}
        typer.echo(json.dumps(next(iter(documents.values())) if len(role or ()) == 1 else documents, indent=2))
        return
    export = cloudformation if format is ExportFormat.CLOUDFORMATION else terraform
    typer.echo(export(TABLES, store.prefix, level=alarms, roles=chosen if policies else ()))
