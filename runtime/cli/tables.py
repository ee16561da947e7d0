"""The tables in the store: `gateway.py tables create|describe|export`."""

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
                made = await database.create_tables()
            typer.echo(f"Created: {', '.join(made)}" if made else "All tables exist.")
            if update:
                left = await database.update_tables(lambda found: typer.echo(f"Changing {found}"))
            else:
                left = await database.compare_tables()
        for found in left:
            typer.echo(found)
        if left:
            raise mistake(_advice(left, updated=update))

    run(create)


def _advice(left: Sequence[Difference], *, updated: bool) -> str:
    tables = len({found.table for found in left})
    differ = f"{tables} of the tables {'differs' if tables == 1 else 'differ'} from what is declared"
    if not updated and any(found.change is not None for found in left):
        return f"{differ}: `tables create --update` adds what is missing."
    return f"{differ}, and only a new table or a new index can be otherwise: see docs/infrastructure.md."


@commands.command("describe")
@takes_store
def describe_tables(
    store: StoreOptions,
) -> None:
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
    chosen = [one for one in ROLES if not role or one.name in role]
    if iam:
        arn = arn_format(prefix=store.prefix, region=store.region, account=account, bucket=photo_bucket)
        documents = {one.name: policy(one, arn) for one in chosen}
        typer.echo(json.dumps(next(iter(documents.values())) if len(role or ()) == 1 else documents, indent=2))
        return
    export = cloudformation if format is ExportFormat.CLOUDFORMATION else terraform
    typer.echo(export(TABLES, store.prefix, level=alarms, roles=chosen if policies else ()))
