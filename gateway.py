"""The gateway: the ASGI application factory, and the command line (see `python gateway.py --help`)."""

import os
import signal
import sys

if __name__ == "__main__" and os.getpid() == 1:
    # The first process of a container is sent no signal that it has no handler for, and the imports take a while.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))

import typer
from starlette.applications import Starlette
from typer.core import TyperGroup
from typer.exceptions import TyperException
from typer.main import get_command

from datastore.database import StoreOptions
from datastore.engine.access_key import VARIABLE as ENGINE_KEY
from datastore.engine.programs import BINARY
from pipelines.matches.setup import VARIABLES as MATCH_VARIABLES
from runtime.cli import (
    documents,
    engine,
    feeds,
    ingest,
    matches,
    photos,
    schema,
    search,
    seed,
    serve,
    statistics,
    tables,
    token,
)
from runtime.cli.output import OneLine, usage_mistake
from runtime.container import Gateway
from server.app import application
from server.settings import VARIABLES, Settings


def create_app(settings: Settings | None = None, store: StoreOptions | None = None) -> Starlette:
    """The ASGI application, for a server of your own: `uvicorn --factory gateway:create_app`.

    What is not given comes from the environment: the variables and defaults are those of `serve`, and its mistakes end
    the process with the same line. The store is opened when the server starts, and closed when it stops.

    How connections are carried is up to the server, and `serve` sets `UVICORN_OPTIONS` (server/http/protocol). A
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
            found: tuple[Settings, StoreOptions] = context.invoke(serve.set_up, context.params, store)
    except TyperException as problem:
        raise SystemExit(usage_mistake(problem)) from None
    except typer.Exit as exit_request:
        raise SystemExit(exit_request.exit_code) from None
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
cli.add_typer(photos.commands, name="photos")
matches.commands.command("feed")(feeds.run_pipeline)
matches.commands.command("search")(search.run_pipeline)
matches.commands.command("earthquakes")(statistics.run_pipeline)
cli.add_typer(statistics.commands, name="statistics")
cli.add_typer(feeds.letters, name="dlq")
cli.add_typer(feeds.follows, name="follows")
cli.add_typer(search.commands, name="search")
cli.command("replay")(matches.replay)
cli.command("engine")(engine.run_engine)
cli.command("seed")(seed.seed)
cli.command("token")(token.print_token)
cli.command("schema")(schema.print_schema)
# Of those that `serve` reads, three are options too, which tell of themselves.
OPTIONS = ("GATEWAY_INGEST", "GATEWAY_MATCHES", "GATEWAY_BUS")
ALONE = (name for name in (*VARIABLES, *MATCH_VARIABLES, ENGINE_KEY, BINARY) if name not in OPTIONS)
ENVIRONMENT = f"More is set in the environment (see the README): {', '.join(ALONE)}, and OpenTelemetry's own OTEL_…"
cli.command("serve", epilog=ENVIRONMENT)(serve.serve)


if __name__ == "__main__":
    cli()
