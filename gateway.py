"""The gateway: the ASGI application factory, and the command line (see `python gateway.py --help`)."""

import asyncio
import json
import logging
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
import uvicorn
from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send

import schema as api
from datastore import tables
from datastore.database import StoreMisconfigured, StoreOptions, open_database
from datastore.earthquakes import IngestSummary
from datastore.engine import EngineFailed, EngineMissing
from datastore.errors import DomainError
from datastore.keyspace import TABLES
from edge import graphiql
from edge.identity import Tokens, TokenSettings
from edge.settings import Misconfigured, Settings, from_environment, local_secret
from edge.websocket import UVICORN_WS_OPTIONS
from resolvers.access import Role
from runtime import DEMO_USERS, Gateway

T = TypeVar("T")

READY_SECONDS = 2.0
GRACEFUL_SECONDS = 10
MISTAKES = (Misconfigured, StoreMisconfigured, EngineMissing, EngineFailed, DomainError, BotoCoreError, ClientError)


def create_app(settings: Settings, store: StoreOptions, gateway: Gateway | None = None) -> Starlette:
    """The ASGI application. The store is opened when the server starts, and closed when it stops."""
    gateway = gateway or Gateway(settings, store)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with gateway.running():
            yield

    async def config(_: Request) -> Response:
        return gateway.graphiql.response()

    async def ready(_: Request) -> Response:
        state = await gateway.readiness(READY_SECONDS)
        return JSONResponse(state, status_code=200 if state["ready"] else 503)

    return Starlette(
        lifespan=lifespan,
        routes=[
            Route("/", lambda _: RedirectResponse("/graphql")),
            WebSocketRoute("/graphql", gateway.socket),
            Route("/graphql", _GraphQL(gateway.http)),
            Route("/graphiql/config.json", config),
            Mount("/graphiql/assets", graphiql.assets()),
            Route("/healthz", lambda _: JSONResponse({"alive": True})),
            Route("/readyz", ready),
        ],
    )


class _GraphQL:
    """GraphQL for programs; the GraphiQL page for a browser that was pointed here."""

    def __init__(self, graphql: ASGIApp) -> None:
        self._graphql = graphql

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (graphiql.page() if _is_visit(scope) else self._graphql)(scope, receive, send)


def _is_visit(scope: Scope) -> bool:
    request = Request(scope)
    accepts_page = "text/html" in request.headers.get("accept", "")
    return request.method in ("GET", "HEAD") and accepts_page and "query" not in request.query_params


# The command line

cli = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="A GraphQL gateway over DynamoDB tables.",
)
table_commands = typer.Typer(no_args_is_help=True, help="The tables in the store.")
ingest_commands = typer.Typer(no_args_is_help=True, help="Bring data in.")
cli.add_typer(table_commands, name="tables")
cli.add_typer(ingest_commands, name="ingest")
notes = Console(stderr=True, highlight=False, soft_wrap=True)

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
Memory = Annotated[bool, typer.Option("--memory", help="Keep the embedded engine's data in memory only.")]
Prefix = Annotated[
    str, typer.Option("--prefix", envvar="GATEWAY_TABLE_PREFIX", help="What the names of the tables begin with.")
]
Region = Annotated[str | None, typer.Option("--region", envvar="AWS_REGION", help="The AWS region.")]
DATA_DIR = Path(".data")


class ExportFormat(StrEnum):
    CLOUDFORMATION = "cloudformation"
    TERRAFORM = "terraform"


@cli.command()
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
    options = _store_options(store, data_dir, memory, prefix, region)
    settings = _settings(
        options, data_dir, host=host, port=port, demo=options.embedded if demo is None else demo, ingest=ingest
    )
    _check_port(host, port)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    gateway = Gateway(settings, options)
    server = uvicorn.Server(
        uvicorn.Config(
            create_app(settings, options, gateway),
            host=host,
            port=port,
            loop="uvloop" if sys.platform != "win32" else "asyncio",
            http="httptools",
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=GRACEFUL_SECONDS,
            **UVICORN_WS_OPTIONS,
        )
    )
    _run(lambda: _serve(server, gateway))


async def _serve(server: uvicorn.Server, gateway: Gateway) -> None:
    serving = asyncio.create_task(server.serve())
    while not server.started and not serving.done():  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.02)
    if server.started:
        _welcome(gateway)
    await serving
    if not server.started:
        raise typer.Exit(1)


def _welcome(gateway: Gateway) -> None:
    notes.print(f"GraphiQL and GraphQL  {gateway.settings.url}/graphql")
    for token in gateway.demo_tokens():
        notes.print(f"{token['name']:<21} Authorization: Bearer {token['token']}")
    if gateway.settings.demo and not gateway.settings.loopback:
        notes.print("Demo tokens are not offered: this gateway listens beyond this machine.")


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

    _with_gateway(load, _store_options(store, data_dir, memory, prefix, region), data_dir)


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

    async def run(gateway: Gateway) -> None:
        assert gateway.ingest is not None
        with _progress() as progress:
            task = progress.add_task(source, total=None, stored=0)
            summary = await gateway.ingest.run(
                source,
                lambda state: progress.update(
                    task, completed=state.received, total=state.expected, stored=state.upserted + state.skipped
                ),
            )
        _report(summary)

    _with_gateway(run, _store_options(store, data_dir, memory, prefix, region), data_dir)


def _progress() -> Progress:
    stored = TextColumn("{task.fields[stored]} events")
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), DownloadColumn(), stored)
    return Progress(*columns, console=notes, transient=True)


def _report(summary: IngestSummary) -> None:
    typer.echo(f"fetched   {summary.fetched}")
    typer.echo(f"upserted  {summary.upserted}")
    typer.echo(f"skipped   {summary.skipped}" + (" (the feed has not changed)" if summary.unchanged else ""))
    typer.echo(f"rejected  {sum(summary.rejected.values())}")
    for reason, count in sorted(summary.rejected.items()):
        typer.echo(f"  {reason}  {count}")
    typer.echo(f"{summary.upstream_size} bytes in {summary.latency_ms / 1000:.2f} s")
    if summary.error is not None:
        notes.print(f"The feed could not be ingested to its end: {summary.error}")
        raise typer.Exit(1)


@table_commands.command("create")
def create_tables(
    store: StoreOption = "embedded", data_dir: DataDir = DATA_DIR, prefix: Prefix = "", region: Region = None
) -> None:
    """Create the declared tables that are missing."""
    options = _store_options(store, data_dir, False, prefix, region)

    async def create() -> None:
        async with open_database(options) as database:
            made = await database.create_tables()
        typer.echo(f"Created: {', '.join(made)}" if made else "All tables exist.")

    _run(create)


@table_commands.command("describe")
def describe_tables(
    store: StoreOption = "embedded", data_dir: DataDir = DATA_DIR, prefix: Prefix = "", region: Region = None
) -> None:
    """Print what the store says of the declared tables, as JSON."""
    options = _store_options(store, data_dir, False, prefix, region)

    async def describe() -> None:
        async with open_database(options) as database:
            typer.echo(json.dumps(await database.describe_tables(), indent=2, default=str))

    _run(describe)


@table_commands.command("export")
def export_tables(
    format: Annotated[ExportFormat, typer.Option(help="For which tool.")] = ExportFormat.CLOUDFORMATION,
    prefix: Prefix = "",
) -> None:
    """Print the declared tables as a CloudFormation template or as Terraform resources."""
    export = tables.cloudformation if format is ExportFormat.CLOUDFORMATION else tables.terraform
    typer.echo(export(TABLES, prefix))


@cli.command()
def token(
    role: Annotated[Role, typer.Option(help="What the bearer may do.")] = Role.USER,
    user: Annotated[str, typer.Option(help="The user id: the token's `sub`.")] = DEMO_USERS[0][1],
    email: Annotated[str | None, typer.Option(help="A verified email.")] = None,
    hours: Annotated[float, typer.Option(min=0.01, max=24 * 365, help="How long the token is good.")] = 12,
    data_dir: DataDir = DATA_DIR,
) -> None:
    """Print a token that the local gateway accepts."""

    async def issue() -> None:
        given = from_environment()
        secret = str(given.get("secret") or local_secret(data_dir))
        settings = Settings(**(given | {"secret": secret}))
        signer = Tokens(
            TokenSettings(
                secret=secret, issuer=settings.issuer, audience=settings.audience, role_claim=settings.role_claim
            )
        )
        lifetime = timedelta(hours=hours).total_seconds()
        typer.echo(signer.issue(user, role, email=email, lifetime=lifetime))

    _run(issue)


@cli.command("schema")
def print_schema() -> None:
    """Print the schema in GraphQL's schema language."""
    typer.echo(api.build().as_str())


def _store_options(store: str, data_dir: Path, memory: bool, prefix: str, region: str | None) -> StoreOptions:
    if store not in ("embedded", "aws") and not store.startswith(("http://", "https://")):
        raise typer.BadParameter("must be embedded, aws, or an http(s) URL", param_hint="--store")
    return StoreOptions(store, None if memory else data_dir, prefix, region)


def _settings(options: StoreOptions, data_dir: Path, **given: Any) -> Settings:
    """Settings from the environment. Only local stores get a secret made for them: others share theirs."""
    try:
        found = from_environment(**given)
        if options.store == "aws" and not {"secret", "jwks_url"} & found.keys():
            raise Misconfigured("Set GATEWAY_SECRET, and GATEWAY_JWKS_URL if tokens come from elsewhere.")
        if "secret" not in found:
            found["secret"] = local_secret(data_dir)
        return Settings(**found)
    except Misconfigured as problem:
        notes.print(f"Error: {problem}")
        raise typer.Exit(2) from None


def _with_gateway(work: Callable[[Gateway], Coroutine[Any, Any, None]], options: StoreOptions, data_dir: Path) -> None:
    """Do a piece of work with the store open, beside a serving gateway or without one."""
    gateway = Gateway(_settings(options, data_dir), options)

    async def inside() -> None:
        async with gateway.running():
            await work(gateway)

    _run(inside)


def _run(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run it; what a user can mend is one line, not a traceback."""
    try:
        return asyncio.run(work())
    except MISTAKES as problem:
        notes.print(f"Error: {problem}")
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def _check_port(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as problem:
            notes.print(f"Error: cannot listen on {host}:{port}: {problem.strerror}. Choose another with --port.")
            raise typer.Exit(1) from None


if __name__ == "__main__":
    cli()
