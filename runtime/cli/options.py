"""The options that commands share, and the settings that they read from the environment."""

import inspect
import os
import secrets
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from datastore.database import StoreMisconfigured, StoreOptions
from datastore.secret_files import SecretUnusable, with_secrets
from runtime import configuration
from runtime.console import mistake, run
from runtime.container import Gateway
from server.settings import Misconfigured, Settings, from_environment

R = TypeVar("R")

DATA_DIR = Path(".data")
# The interval between reads of a stream, the limit on a hang of the event loop, the search index, the photos' bucket.
POLL_INTERVAL = "GATEWAY_POLL_INTERVAL_SECONDS"
WATCHDOG = "GATEWAY_WATCHDOG_SECONDS"
SEARCH_URL = "GATEWAY_SEARCH_URL"
BUCKET = ("GATEWAY_PHOTO_BUCKET", "GATEWAY_S3_URL")

DataDir = Annotated[
    Path, typer.Option("--data-dir", envvar="GATEWAY_DATA_DIR", help="The folder of local data and secrets.")
]
Prefix = Annotated[str, typer.Option("--prefix", envvar="GATEWAY_TABLE_PREFIX", help="The prefix of the table names.")]


class OptionGroup:
    """A decorator for commands that take a group of options as one parameter.

    The parameters of `build` declare the options; the command receives the result of `build`. On the command line, the
    options stand in the place of the command's parameter of that type.
    """

    def __init__(self, build: Callable[..., Any]) -> None:
        signature = inspect.signature(build)
        self._build = build
        self._type = build if isinstance(build, type) else signature.return_annotation
        self.parameters = signature.parameters

    def __call__(self, command: Callable[..., R]) -> Callable[..., R]:
        declared = inspect.signature(command).parameters.values()
        [group] = [parameter.name for parameter in declared if parameter.annotation is self._type]

        @wraps(command)
        def run_command(**arguments: Any) -> R:
            options = {name: arguments.pop(name) for name in self.parameters}
            return command(**arguments, **{group: self._build(**options)})

        expanded: list[inspect.Parameter] = []
        for parameter in declared:
            expanded += self.parameters.values() if parameter.name == group else [parameter]
        # Typer reads the options from the signature. Keyword-only parameters may have defaults in any order.
        run_command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in expanded]
        )
        return run_command


def store_options(
    store: Annotated[
        str,
        typer.Option(
            "--store",
            envvar="GATEWAY_STORE",
            help="embedded (the engine that the gateway starts), aws, or the URL of an endpoint with DynamoDB's API.",
        ),
    ] = "embedded",
    data_dir: DataDir = DATA_DIR,
    memory: Annotated[
        bool,
        typer.Option(
            "--memory", help="Keep the embedded engine's data in memory, shared with a running `serve --memory`."
        ),
    ] = False,
    prefix: Prefix = "",
    region: Annotated[str | None, typer.Option("--region", envvar="AWS_REGION", help="The AWS region.")] = None,
) -> StoreOptions:
    """Return the store that the options select. Raise `typer.BadParameter` if they contradict each other."""
    if store not in ("embedded", "aws") and not store.startswith(("http://", "https://")):
        raise typer.BadParameter("must be embedded, aws, or an http(s) URL", param_hint="--store")
    if memory and store != "embedded":
        raise typer.BadParameter("is for the embedded store only", param_hint="--memory")
    options = StoreOptions(store, data_dir=data_dir, memory=memory, prefix=prefix, region=region)
    try:
        options.named_region  # noqa: B018 - raises for an AWS host that names no region
    except StoreMisconfigured as problem:
        raise typer.BadParameter(str(problem), param_hint="--store") from None
    return options


takes_store = OptionGroup(store_options)


def settings_of(store: StoreOptions, data_dir: Path, **given: Any) -> Settings:
    """Return the settings from the environment and `given`. End the command if they cannot be used."""
    try:
        return configuration.settings_of(store, data_dir, **given)
    except Misconfigured as problem:
        raise mistake(problem, 2) from None


def named_settings(*names: str) -> dict[str, Any]:
    """Return the settings of these environment variables, of those that are set. End the command for invalid values."""
    try:
        environment = with_secrets(os.environ)
        return from_environment({name: environment[name] for name in names if name in environment})
    except (Misconfigured, SecretUnusable) as problem:
        raise mistake(problem, 2) from None


def with_gateway(work: Callable[[Gateway], Coroutine[Any, Any, None]], store: StoreOptions, **settings: Any) -> None:
    """Run `work` with the store open, whether or not a gateway serves from it."""

    async def work_on_gateway() -> None:
        # The command verifies no tokens and hands out no cursors, so that any secret will do.
        throwaway = Settings(secret=secrets.token_urlsafe(48), **settings)
        async with Gateway(throwaway, store).running(jobs=False) as gateway:
            await work(gateway)

    run(work_on_gateway)
