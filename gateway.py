"""The gateway: the ASGI application factory, and the command line (see `python gateway.py --help`)."""

import logging
import os
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from starlette.applications import Starlette
from typer.core import TyperGroup
from typer.exceptions import TyperException
from typer.main import get_command

from commands import documents, engine, feeds, ingest, matches, tables
from commands.feeds import FanOutBound, MetricsHost, MetricsPort
from commands.options import (
    DATA_DIR,
    DataDir,
    Memory,
    Prefix,
    Region,
    StoreOption,
    bucket,
    settings_of,
    store_options,
    with_gateway,
)
from console import OneLine, mistake, notes, run, usage_mistake
from datastore.database import StoreOptions
from datastore.engine import BINARY
from datastore.objects.local import LocalObjects
from edge.application import application
from edge.assembly import DEMO_USERS
from edge.capacity.descriptors import fitting, most_descriptors
from edge.identity import Tokens, TokenSettings
from edge.observing.operation_log import JsonLines
from edge.server import listen, serve_until_signal, serve_until_told, work_until_told
from edge.settings import VARIABLES, Misconfigured, Settings
from pipelines.feeds.fan_out import MOST_FOLLOWERS
from pipelines.matches.setup import VARIABLES as MATCH_VARIABLES
from pipelines.matches.setup import Source
from pipelines.streams.metrics import LOCAL
from pipelines.usgs_feed import FeedError
from pipelines.usgs_fetch import feed_url
from resolvers.access import Role
from runtime import Gateway, Part
from workers.assignment import READY, Assignment
from workers.supervisor import Supervisor

T = TypeVar("T")

READY_SECONDS = 2.0
MOST_WORKERS = 256


def create_app(settings: Settings | None = None, store: StoreOptions | None = None) -> Starlette:
    """The ASGI application, for a server of your own: `uvicorn --factory gateway:create_app`.

    What is not given comes from the environment: the variables and defaults are those of `serve`, and its mistakes end
    the process with the same line. The store is opened when the server starts, and closed when it stops.

    How connections are carried is up to the server, and `serve` sets `UVICORN_OPTIONS` (edge/http/protocol.py). A
    server of your own should too, or it takes heads of any size at any pace, keeps the connections of peers that do not
    read, and takes messages of 16 MB: `uvicorn.run(create_app(), **UVICORN_OPTIONS)`, or the options in the README.
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
cli.add_typer(tables.commands, name="tables")
cli.add_typer(documents.commands, name="documents")
cli.add_typer(ingest.commands, name="ingest")
cli.add_typer(matches.commands, name="pipeline")
matches.commands.command("feed")(feeds.run_pipeline)
cli.add_typer(feeds.letters, name="dlq")
cli.command("replay")(matches.replay)
cli.command("engine")(engine.run_engine)
# Of those that `serve` reads, three are options too, which tell of themselves.
OPTIONS = ("GATEWAY_INGEST", "GATEWAY_MATCHES", "GATEWAY_BUS")
ALONE = (name for name in (*VARIABLES, *MATCH_VARIABLES, BINARY) if name not in OPTIONS)
ENVIRONMENT = f"More is set in the environment (see the README): {', '.join(ALONE)}, and OpenTelemetry's own OTEL_…"


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
    source: Annotated[
        Source | None,
        typer.Option(
            "--matches",
            envvar="GATEWAY_MATCHES",
            help="Which live matches to poll: invented ones, those of SportMonks, or none. Invented ones in the demo.",
        ),
    ] = None,
    feed_pipeline: Annotated[
        bool | None,
        typer.Option(
            "--feed-pipeline/--no-feed-pipeline",
            envvar="GATEWAY_FEED_PIPELINE",
            help="Handle the feed's changes in this process; on by default when embedded.",
        ),
    ] = None,
    fan_out_bound: FanOutBound = MOST_FOLLOWERS,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = LOCAL,
    workers: Annotated[
        str | None,
        typer.Option(
            envvar="GATEWAY_WORKERS",
            help="So many processes serve, or auto: as many as there are CPUs. One process does it all without.",
        ),
    ] = None,
    bus: Annotated[
        str | None,
        typer.Option(
            envvar="GATEWAY_BUS",
            help="The redis:// or rediss:// URL by which processes share the reading of tables' streams.",
        ),
    ] = None,
) -> None:
    """Serve GraphQL, and GraphiQL for browsers, until interrupted."""
    wanted = _workers(workers)
    settings, options = _set_up(
        store,
        data_dir,
        memory,
        prefix,
        region,
        host=host,
        port=port,
        demo=demo,
        ingest=ingest,
        source=source,
        feed_pipeline=feed_pipeline,
        fan_out_bound=fan_out_bound,
        metrics_port=metrics_port,
        metrics_host=metrics_host,
        bus=bus,
    )
    if wanted > 1 and options.store == "aws" and settings.bus is None:
        # Each would read the streams by itself: AWS has a shard read five times a second by all together.
        raise mistake("several workers on AWS need a bus: set --bus or GATEWAY_BUS to the URL of a Redis.", 2)
    _log_as(settings.log_format)
    if (assignment := _assignment()) is not None:
        _work(assignment, settings, options)
    elif wanted:
        _supervise(wanted, settings, options)
    else:
        _serve(settings, options)


def _workers(told: str | None) -> int:
    """How many there are to be; 0 for none."""
    if told is None:
        return 0
    if told == "auto":
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not told.isdecimal() or not 1 <= int(told) <= MOST_WORKERS:
        raise typer.BadParameter(f"must be auto, or a number from 1 to {MOST_WORKERS}", param_hint="--workers")
    if sys.platform == "win32":
        raise typer.BadParameter("needs a system with signals, which Windows is not", param_hint="--workers")
    return int(told)


def _assignment() -> Assignment | None:
    try:
        return Assignment.of(os.environ)
    except Misconfigured as problem:
        raise mistake(problem, 2) from None


def _serve(settings: Settings, options: StoreOptions) -> None:
    """All in this process."""
    with _address(settings):
        sockets = listen(settings.host, settings.port)
    gateway = _gateway(settings, options)
    run(lambda: serve_until_signal(gateway, sockets, lambda: _started(gateway, options), random.Random()))


def _supervise(workers: int, settings: Settings, options: StoreOptions) -> None:
    """As the one that all workers are told by."""
    with _address(settings):
        supervisor = Supervisor(
            [sys.executable, str(Path(__file__).resolve()), *sys.argv[1:]], workers, settings.host, settings.port
        )
    gateway = Gateway(replace(settings, metrics_port=None), options)

    async def started() -> None:
        notes.print(f"{'Workers':<21} {workers}, and one for what runs in the background")
        await _started(gateway, options, alone=False)

    if not run(lambda: supervisor.run(gateway, started)):
        raise typer.Exit(1)


def _work(assignment: Assignment, settings: Settings, options: StoreOptions) -> None:
    """As one of several."""
    if settings.metrics_port is not None:
        settings = replace(settings, metrics_port=settings.metrics_port + assignment.number)
    gateway = _gateway(settings, options, assignment.part)
    with assignment.open_line() as line:

        async def started() -> None:
            with suppress(OSError):  # where nobody is left to be told, the line's end is what tells
                line.send(READY)

        if assignment.part is Part.JOBS:
            run(lambda: work_until_told(gateway, started, line))
        else:
            run(lambda: serve_until_told(gateway, assignment.sockets(), started, random.Random(), line))


def _gateway(settings: Settings, options: StoreOptions, part: Part = Part.WHOLE) -> Gateway:
    return Gateway(replace(settings, capacity=fitting(settings.capacity, most_descriptors())), options, part=part)


@contextmanager
def _address(settings: Settings) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        where, reason = f"{settings.host}:{settings.port}", problem.strerror or problem
        raise mistake(f"cannot listen on {where}: {reason}. Choose another with --host or --port.") from None


async def _started(gateway: Gateway, options: StoreOptions, *, alone: bool = True) -> None:
    _welcome(gateway, options, alone=alone)
    await _warn_unless_ready(gateway)


def _log_as(form: str) -> None:
    """Log to standard error: lines for people, or an object a line for programs."""
    handler = logging.StreamHandler()
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if form == "json" else plain)
    # Of what no line tells nothing is looked up.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def _set_up(
    store: str | StoreOptions,
    data_dir: Path,
    memory: bool,
    prefix: str,
    region: str | None,
    *,
    demo: bool | None,
    ingest: str | None,
    source: Source | None,
    feed_pipeline: bool | None,
    **given: Any,
) -> tuple[Settings, StoreOptions]:
    """What the options of `serve` come to."""
    _check_feed(ingest)
    options = store_options(store, data_dir, memory, prefix, region) if isinstance(store, str) else store
    demo = options.embedded if demo is None else demo
    given["feed_pipeline"] = options.embedded if feed_pipeline is None else feed_pipeline
    source = source or (Source.DEMO if demo else Source.NONE)
    matches.setup_of(source)  # what is missing is told now
    return settings_of(options, data_dir, demo=demo, ingest=ingest, matches=source.value, **given), options


def _check_feed(feed: str | None) -> None:
    """A feed that will never be there is told now, and not once a minute."""
    if feed is None or "://" in feed or Path(feed).is_file():
        return
    try:
        feed_url(feed)
    except FeedError as problem:
        raise typer.BadParameter(str(problem), param_hint="--ingest") from None


def _welcome(gateway: Gateway, options: StoreOptions, *, alone: bool) -> None:
    settings = gateway.settings
    notes.print(f"GraphQL and GraphiQL  {settings.url}/graphql")
    notes.print(f"{'Store':<21} {_told(options)}")
    notes.print(f"{'Set up':<21} {gateway.edge.set_up(alone=alone)}")
    offered = gateway.edge.demo_tokens()
    for token in offered:
        notes.print(f"{token['name'] + ' token':<21} {token['token']}")
    if settings.demo and options.store == "aws":
        notes.print("Demo tokens are not offered: what is in AWS is not for everybody on this machine.")
    elif settings.demo and not settings.loopback:
        notes.print("Demo tokens are not offered: this gateway listens beyond this machine.")
    elif offered:
        notes.print("Send a token as the header Authorization: Bearer <token>. GraphiQL has them already.")
    if isinstance(gateway.objects, LocalObjects) and not settings.says_where:
        notes.print(f"Warning: addresses of pictures begin with {settings.reached_at}; set GATEWAY_PUBLIC_URL.")
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
        loaded = await gateway.demo().load()
        earlier = f"{loaded.earthquakes} earthquakes, {loaded.sightings} sightings, {loaded.posts} posts"
        typer.echo(f"{earlier} and {loaded.photos} photos stored")

    with_gateway(load, store_options(store, data_dir, memory, prefix, region), **bucket())


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
    settings = settings_of(store_options(store, data_dir, memory, prefix, region), data_dir)
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
    store_options(store, data_dir, memory, prefix, region)
    import schema as api  # here alone: other commands start sooner without it

    typer.echo(api.build().as_str())


if __name__ == "__main__":
    cli()
