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
from runtime.cli.output import waiting
from runtime.console import mistake, run

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
            help="Add missing indexes, streams, TTL and protection to tables. Indexes are created one after another.",
        ),
    ] = False,
) -> None:
    """Create the declared tables that are missing, and compare existing tables with their declarations.

    The exit status is 1 if a table differs. In AWS, new tables have point-in-time recovery and deletion protection.
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
    """Print the store's descriptions of the declared tables, as JSON."""

    async def describe() -> None:
        async with open_database(store) as database:
            typer.echo(json.dumps(await database.describe_tables(), indent=2, default=str))

    run(describe)


@commands.command("export")
@takes_store
def export_tables(
    *,
    format: Annotated[ExportFormat, typer.Option(help="The tool that reads the output.")] = ExportFormat.CLOUDFORMATION,
    alarms: Annotated[
        AlarmLevel, typer.Option(help="The CloudWatch alarms: on throttling, also on DynamoDB's own errors, or none.")
    ] = AlarmLevel.THROTTLING,
    policies: Annotated[
        bool, typer.Option("--policies", help="Include a managed policy for each process role.")
    ] = False,
    iam: Annotated[bool, typer.Option("--iam", help="Print only the policies, as IAM policy documents.")] = False,
    role: Annotated[
        list[RoleName] | None,
        typer.Option(help="Only the policies of these roles. --iam with one role prints that policy document itself."),
    ] = None,
    account: Annotated[str | None, typer.Option(help="The AWS account in the policies of --iam.")] = None,
    photo_bucket: Annotated[
        str | None,
        typer.Option(envvar="GATEWAY_PHOTO_BUCKET", help="The bucket of the photos in the policies of --iam."),
    ] = None,
    store: StoreOptions,
) -> None:
    """Print the declared tables as a CloudFormation template or a Terraform file, or the IAM policies of the processes.

    Policies allow the operations of a process's access patterns, and no more. Account, region and bucket that are not
    given are placeholders for CloudFormation's Fn::Sub. The command does not contact the store.
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
