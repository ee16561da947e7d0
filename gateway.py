"""The gateway: the ASGI application factory, and the command line (see `python gateway.py --help`)."""

import json
import logging
import os
import secrets
from collections.abc import Callable, Coroutine
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from starlette.applications import Starlette
from typer.core import TyperGroup
from typer.exceptions import TyperException
from typer.main import get_command

import schema as api
from console import OneLine, log_in_lines, mistake, notes, progress, run, shortened, usage_mistake, waiting
from datastore import tables
from datastore.database import StoreOptions, open_database
from datastore.earthquakes import IngestSummary
from datastore.keyspace import TABLES
from edge.application import application
from edge.identity import Tokens, TokenSettings
from edge.server import listen, serve_until_signal
from edge.settings import Misconfigured, Settings, from_environment, local_secret
from pipelines.usgs_feed import FeedError
from pipelines.usgs_fetch import feed_url
from resolvers.access import Role
from runtime import DEMO_USERS, Gateway

T = TypeVar("T")

READY_SECONDS = 2.0


def create_app(settings: Settings | None = None, store: StoreOptions | None = None) -> Starlette:
    """The ASGI application, for a server of your own: `uvicorn --factory gateway:create_app`.

    What is not given comes from the environment: the variables and defaults are those of `serve`, and its mistakes end
    the process with the same line. The store is opened when the server starts, and closed when it stops.

    How sockets are carried is up to the server, and `serve` sets `UVICORN_WS_OPTIONS` (edge/socket_protocol.py). A
    server of your own should too, or it keeps the connections of peers that do not read, and takes messages of 16 MB:
    `uvicorn.run(create_app(), **UVICORN_WS_OPTIONS)`, or `--ws edge.socket_protocol:SocketProtocol --ws-max-size 65536
    --ws-per-message-deflate false`.
    """
    if settings is None or store is None:
        found = _from_environment(store)
        settings, store = settings or found[0], found[1]
    return application(Gateway(settings, store))


def _from_environment(store: StoreOptions | None) -> tuple[Settings, StoreOptions]:
    """As `serve` is set up when it is called without an option."""
    group = get_command(cli)
    assert isinstance(group, TyperGroup)
    try:
        with group.commands["serve"].make_context("gateway.py serve", []) as context:
            given = context.params if store is None else context.params | {"store": store}
            found: tuple[Settings, StoreOptions] = context.invoke(_set_up, **given)
    except TyperException as problem:
        raise SystemExit(usage_mistake(problem)) from None
    except typer.Exit as told:
        raise SystemExit(told.exit_code) from None
    return found


# The command line


cli = typer.Typer(
    cls=OneLine,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="A GraphQL gateway over DynamoDB tables.",
)
table_commands = typer.Typer(no_args_is_help=True, help="The tables in the store.")
ingest_commands = typer.Typer(no_args_is_help=True, help="Bring data in.")
cli.add_typer(table_commands, name="tables")
cli.add_typer(ingest_commands, name="ingest")
StoreOption = Annotated[
    str,
    typer.Option(
        "--store",
        envvar="GATEWAY_STORE",
        help="embedded (an engine of our own), aws, or the URL of an endpoint that speaks DynamoDB's API.",
    ),
]
DataDir = Annotated[
    Path, typer.Option("--data-dir", envvar="GATEWAY_DATA_DIR", help="Where local data and secrets are kept.")
]
Memory = Annotated[
    bool,
    typer.Option("--memory", help="The embedded engine keeps its data in memory, shared with a `serve --memory`."),
]
Prefix = Annotated[
    str, typer.Option("--prefix", envvar="GATEWAY_TABLE_PREFIX", help="What the names of the tables begin with.")
]
Region = Annotated[str | None, typer.Option("--region", envvar="AWS_REGION", help="The AWS region.")]
DATA_DIR = Path(".data")
ENVIRONMENT = (
    "More is set in the environment: GATEWAY_SECRET, GATEWAY_JWKS_URL, GATEWAY_JWT_ISSUER, GATEWAY_JWT_AUDIENCE, "
    "GATEWAY_ROLE_CLAIM, GATEWAY_AREAS, GATEWAY_CATEGORIES, GATEWAY_INGEST_HOSTS, GATEWAY_ALLOWED_ORIGINS, "
    "GATEWAY_DEADLINE_SECONDS, GATEWAY_POLL_INTERVAL_SECONDS."
)


class ExportFormat(StrEnum):
    CLOUDFORMATION = "cloudformation"
    TERRAFORM = "terraform"


@cli.command(epilog=ENVIRONMENT)
def serve(
    host: Annotated[str, typer.Option(envvar="GATEWAY_HOST", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(envvar="GATEWAY_PORT", min=1, max=65535, help="The port.")] = 8000,
    store: StoreOption = "embedded",
    data_dir: DataDir = DATA_DIR,
    memory: Memory = False,
    prefix: Prefix = "",
    region: Region = None,
    demo: Annotated[
        bool | None,
        typer.Option(
            "--demo/--no-demo",
            envvar="GATEWAY_DEMO",
            help="Demo data and tokens, and a little life; on by default when embedded.",
        ),
    ] = None,
    ingest: Annotated[
        str | None,
        typer.Option(envvar="GATEWAY_INGEST", help="A USGS feed to ingest every minute, such as all_hour."),
    ] = None,
) -> None:
    """Serve GraphQL, and GraphiQL for browsers, until interrupted."""
    settings, options = _set_up(store, data_dir, memory, prefix, region, host=host, port=port, demo=demo, ingest=ingest)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        sockets = listen(host, port)
    except OSError as problem:
        reason = problem.strerror or problem
        raise mistake(f"cannot listen on {host}:{port}: {reason}. Choose another with --host or --port.") from None
    gateway = Gateway(settings, options)

    async def started() -> None:
        _welcome(gateway, options)
        await _warn_unless_ready(gateway)

    run(lambda: serve_until_signal(gateway, sockets, started))


def _set_up(
    store: str | StoreOptions,
    data_dir: Path,
    memory: bool,
    prefix: str,
    region: str | None,
    *,
    demo: bool | None,
    ingest: str | None,
    **given: Any,
) -> tuple[Settings, StoreOptions]:
    """What the options of `serve` come to."""
    _check_feed(ingest)
    options = _store_options(store, data_dir, memory, prefix, region) if isinstance(store, str) else store
    demo = options.embedded if demo is None else demo
    return _settings(options, data_dir, demo=demo, ingest=ingest, **given), options


def _check_feed(feed: str | None) -> None:
    """A feed that will never be there is told now, and not once a minute."""
    if feed is None or "://" in feed or Path(feed).is_file():
        return
    try:
        feed_url(feed)
    except FeedError as problem:
        raise typer.BadParameter(str(problem), param_hint="--ingest") from None


def _welcome(gateway: Gateway, options: StoreOptions) -> None:
    settings = gateway.settings
    notes.print(f"GraphQL and GraphiQL  {settings.url}/graphql")
    notes.print(f"{'Store':<21} {_told(options)}")
    offered = gateway.demo_tokens()
    for token in offered:
        notes.print(f"{token['name'] + ' token':<21} {token['token']}")
    if settings.demo and options.store == "aws":
        notes.print("Demo tokens are not offered: what is in AWS is not for everybody on this machine.")
    elif settings.demo and not settings.loopback:
        notes.print("Demo tokens are not offered: this gateway listens beyond this machine.")
    elif offered:
        notes.print("Send a token as the header Authorization: Bearer <token>. GraphiQL has them already.")
    notes.print("Stop with Ctrl-C.")


def _told(options: StoreOptions) -> str:
    if options.embedded:
        return "embedded, in memory only" if options.memory else f"embedded, data in {options.data_dir}"
    return f"DynamoDB in {options.region or 'your AWS region'}" if options.store == "aws" else options.store


async def _warn_unless_ready(gateway: Gateway) -> None:
    state = await gateway.readiness(READY_SECONDS)
    if state["store"] == "unreachable":
        notes.print("Warning: the store cannot be reached. Requests are answered UNAVAILABLE until it can be.")
    elif state["store"] == "tables missing":
        missing = ", ".join(state["missing"])
        notes.print(f"Warning: the store lacks the tables {missing}. `gateway.py tables create` makes them there.")


@cli.command()
def seed(
    store: StoreOption = "embedded",
    data_dir: DataDir = DATA_DIR,
    memory: Memory = False,
    prefix: Prefix = "",
    region: Region = None,
) -> None:
    """Load the demo data that is not there yet."""

    async def load(gateway: Gateway) -> None:
        events, sightings = await gateway.demo().load()
        typer.echo(f"{events} earthquakes and {sightings} sightings stored")

    _with_gateway(load, _store_options(store, data_dir, memory, prefix, region))


@ingest_commands.command("earthquakes")
def ingest_earthquakes(
    source: Annotated[str, typer.Argument(help="A USGS GeoJSON feed: a file, a URL, or a name such as all_day.")],
    store: StoreOption = "embedded",
    data_dir: DataDir = DATA_DIR,
    memory: Memory = False,
    prefix: Prefix = "",
    region: Region = None,
) -> None:
    """Store each event of a USGS GeoJSON feed once, and say how it went."""

    async def ingest(gateway: Gateway) -> None:
        assert gateway.ingest is not None
        with progress() as bar:
            task = bar.add_task(shortened(source), total=None, stored=0)
            summary = await gateway.ingest.run(
                source,
                lambda state: bar.update(
                    task, completed=state.received, total=state.expected, stored=state.upserted + state.skipped
                ),
            )
        _report(summary)

    _with_gateway(ingest, _store_options(store, data_dir, memory, prefix, region))


def _report(summary: IngestSummary) -> None:
    if summary.error is None or summary.fetched:
        typer.echo(_told_summary(summary))
    if summary.error is not None:
        raise mistake(f"the feed was not ingested to its end: {summary.error}")


def _told_summary(summary: IngestSummary) -> str:
    lines = [
        f"fetched   {summary.fetched}",
        f"upserted  {summary.upserted}",
        f"skipped   {summary.skipped}" + (" (the feed has not changed)" if summary.unchanged else ""),
        f"rejected  {sum(summary.rejected.values())}",
        *[f"  {reason}  {count}" for reason, count in sorted(summary.rejected.items())],
        f"{summary.upstream_size} bytes in {summary.latency_ms / 1000:.2f} s",
    ]
    return "\n".join(lines)


@table_commands.command("create")
def create_tables(
    store: StoreOption = "embedded",
    data_dir: DataDir = DATA_DIR,
    memory: Memory = False,
    prefix: Prefix = "",
    region: Region = None,
) -> None:
    """Create the declared tables that are missing."""
    options = _store_options(store, data_dir, memory, prefix, region)

    async def create() -> None:
        async with open_database(options) as database:
            with waiting("Creating the tables…"):
                made = await database.create_tables()
        typer.echo(f"Created: {', '.join(made)}" if made else "All tables exist.")

    run(create)


@table_commands.command("describe")
def describe_tables(
    store: StoreOption = "embedded",
    data_dir: DataDir = DATA_DIR,
    memory: Memory = False,
    prefix: Prefix = "",
    region: Region = None,
) -> None:
    """Print what the store says of the declared tables, as JSON."""
    options = _store_options(store, data_dir, memory, prefix, region)

    async def describe() -> None:
        async with open_database(options) as database:
            typer.echo(json.dumps(await database.describe_tables(), indent=2, default=str))

    run(describe)


@table_commands.command("export")
def export_tables(
    format: Annotated[ExportFormat, typer.Option(help="For which tool.")] = ExportFormat.CLOUDFORMATION,
    store: StoreOption = "embedded",
    data_dir: DataDir = DATA_DIR,
    memory: Memory = False,
    prefix: Prefix = "",
    region: Region = None,
) -> None:
    """Print the declared tables as a CloudFormation template or as Terraform resources. The store is not asked."""
    _store_options(store, data_dir, memory, prefix, region)
    export = tables.cloudformation if format is ExportFormat.CLOUDFORMATION else tables.terraform
    typer.echo(export(TABLES, prefix))


@cli.command()
def token(
    role: Annotated[Role, typer.Option(help="What the bearer may do.")] = Role.USER,
    user: Annotated[str, typer.Option(help="The user id: the token's `sub`.")] = DEMO_USERS[0][1],
    email: Annotated[str | None, typer.Option(help="A verified email.")] = None,
    hours: Annotated[float, typer.Option(min=0.01, max=24 * 365, help="How long the token is good.")] = 12,
    store: StoreOption = "embedded",
    data_dir: DataDir = DATA_DIR,
    memory: Memory = False,
    prefix: Prefix = "",
    region: Region = None,
) -> None:
    """Print a token that a gateway with the same store options accepts."""
    if os.environ.get("GATEWAY_JWKS_URL"):
        raise mistake("GATEWAY_JWKS_URL is set: tokens come from there, and others are not accepted.", 2)
    settings = _settings(_store_options(store, data_dir, memory, prefix, region), data_dir)
    signer = Tokens(
        TokenSettings(
            secret=settings.secret,
            issuer=settings.issuer,
            audience=settings.audience,
            role_claim=settings.role_claim,
        )
    )
    typer.echo(signer.issue(user, role, email=email, lifetime=timedelta(hours=hours).total_seconds()))


@cli.command("schema")
def print_schema(
    store: StoreOption = "embedded",
    data_dir: DataDir = DATA_DIR,
    memory: Memory = False,
    prefix: Prefix = "",
    region: Region = None,
) -> None:
    """Print the schema in GraphQL's schema language. The store is not asked: the schema is the same on each."""
    _store_options(store, data_dir, memory, prefix, region)
    typer.echo(api.build().as_str())


def _store_options(store: str, data_dir: Path, memory: bool, prefix: str, region: str | None) -> StoreOptions:
    if store not in ("embedded", "aws") and not store.startswith(("http://", "https://")):
        raise typer.BadParameter("must be embedded, aws, or an http(s) URL", param_hint="--store")
    if memory and store != "embedded":
        raise typer.BadParameter("is for the embedded store only", param_hint="--memory")
    return StoreOptions(store, data_dir=data_dir, memory=memory, prefix=prefix, region=region)


def _settings(options: StoreOptions, data_dir: Path, **given: Any) -> Settings:
    """Settings from the environment. Only local stores get a secret made for them: others share theirs."""
    try:
        found = from_environment(**given)
        if options.store == "aws" and "secret" not in found:
            raise Misconfigured(
                "Set GATEWAY_SECRET (cursors are signed with it, and tokens without GATEWAY_JWKS_URL): "
                "a store that others share gets no secret made up for it."
            )
        return Settings(**{"secret": found.get("secret") or local_secret(data_dir), **found})
    except Misconfigured as problem:
        raise mistake(problem, 2) from None


def _with_gateway(work: Callable[[Gateway], Coroutine[Any, Any, None]], options: StoreOptions) -> None:
    """Do a piece of work with the store open, beside a serving gateway or without one."""
    log_in_lines()

    async def inside() -> None:
        # Nobody signs in, and no cursor leaves: any secret will do.
        async with Gateway(Settings(secret=secrets.token_urlsafe(48)), options).running(jobs=False) as gateway:
            await work(gateway)

    run(inside)


if __name__ == "__main__":
    cli()
