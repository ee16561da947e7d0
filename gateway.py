"""The gateway: the ASGI application factory, and the command line (see `python gateway.py --help`)."""

import os
import signal
import sys
from typing import Annotated

if __name__ == "__main__":
    if os.getpid() == 1:
        # The kernel delivers no signal without a handler to the first process of a container, and the imports take a
        # while.
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    if "WORKER_OF_GATEWAY" in os.environ:
        from runtime.supervisor.worker_process import run_worker

        run_worker()
        sys.exit()

from dataclasses import replace

import typer
from starlette.applications import Starlette
from typer.core import TyperGroup
from typer.exceptions import TyperException
from typer.main import get_command

from datastore.database import StoreOptions
from runtime.cli import (
    doctor,
    documents,
    engine,
    feeds,
    ingest,
    matches,
    new,
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
from runtime.cli.variables import unknown_variables, warn_of_unknown_variables
from runtime.container import Gateway
from runtime.declared.page import without_option
from server.app import application
from server.settings import Settings
from server.version import running_build


def create_app(settings: Settings | None = None, store: StoreOptions | None = None) -> Starlette:
    """Return the ASGI application, for a server of your own: `uvicorn --factory gateway:create_app`.

    A parameter that is None is read from the environment, with the variables and defaults of `serve`. A mistake in them
    ends the process with the same message. The store is opened when the server starts, and closed when it stops.

    The server handles the connections. `serve` runs uvicorn with `UVICORN_OPTIONS` (server/http/protocol), and other
    servers should do the same: `uvicorn.run(create_app(), **UVICORN_OPTIONS)`, or the options in docs/command-line.md.
    Without them uvicorn accepts heads of any size at any pace, keeps the connections of clients that do not read, and
    accepts messages of 16 MB.
    """
    if settings is None or store is None:
        of_environment, store = _from_environment(store)
        settings = settings or of_environment
    return application(Gateway(settings, store))


def _from_environment(store: StoreOptions | None) -> tuple[Settings, StoreOptions]:
    """Return the settings and the store of a `serve` without options. Raise `SystemExit` if they are invalid."""
    group = get_command(cli)
    assert isinstance(group, TyperGroup)
    warn_of_unknown_variables(group)
    try:
        with group.commands["serve"].make_context("gateway.py serve", []) as context:
            result: tuple[Settings, StoreOptions] = context.invoke(serve.set_up, context.params, store)
    except TyperException as problem:
        raise SystemExit(usage_mistake(problem)) from None
    settings, options = result
    return replace(settings, unknown_variables=unknown_variables(group)), options


# Command line


cli = typer.Typer(
    cls=OneLine,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="A GraphQL gateway over DynamoDB tables.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gateway {running_build()}")
        raise typer.Exit


@cli.callback()
def options_of_all_commands(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """A GraphQL gateway over DynamoDB tables."""


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
cli.command("new")(new.new_system)
cli.command("doctor")(doctor.check_installation)
ENVIRONMENT = (
    f"Other settings are environment variables (docs/settings.md): {', '.join(without_option())}, "
    "and OpenTelemetry's OTEL_…"
)
cli.command("serve", epilog=ENVIRONMENT)(serve.serve)


if __name__ == "__main__":
    cli()
