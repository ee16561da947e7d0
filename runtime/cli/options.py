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
from runtime.cli.output import log_in_lines, mistake, run
from runtime.container import Gateway
from server.settings import Misconfigured, Settings, from_environment, local_secret

R = TypeVar("R")

DATA_DIR = Path(".data")
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
    """Return the settings from the environment and `given`. End the command if they cannot be used.

    Without GATEWAY_SECRET, a secret is kept in `data_dir`. A store in AWS requires GATEWAY_SECRET, because the
    gateways that share the store share the secret.
    """
    try:
        found = from_environment(**given)
        if store.in_aws and "secret" not in found:
            raise Misconfigured(
                "Set GATEWAY_SECRET (cursors are signed with it, and tokens without GATEWAY_JWKS_URL): "
                "a store that others share gets no secret made up for it."
            )
        return Settings(**{"secret": found.get("secret") or local_secret(data_dir), **found})
    except Misconfigured as problem:
        raise mistake(problem, 2) from None


def poll_interval() -> dict[str, float]:
    """Return the interval between reads of a stream from the environment; empty if it is not set."""
    return _named(POLL_INTERVAL)


def watchdog() -> dict[str, float]:
    """Return the limit on a hang of the event loop from the environment; empty if it is not set."""
    return _named(WATCHDOG)


def search() -> dict[str, str]:
    """Return the URL of the search index from the environment; empty if it is not set."""
    return _named(SEARCH_URL)


def bucket() -> dict[str, str]:
    """Return the bucket of the photos from the environment; empty if it is not set."""
    return _named(*BUCKET)


def _named(*names: str) -> dict[str, Any]:
    try:
        return from_environment({name: os.environ[name] for name in names if name in os.environ})
    except Misconfigured as problem:
        raise mistake(problem, 2) from None


def with_gateway(work: Callable[[Gateway], Coroutine[Any, Any, None]], store: StoreOptions, **settings: Any) -> None:
    """Run `work` with the store open, whether or not a gateway serves from it."""
    log_in_lines()

    async def work_on_gateway() -> None:
        # The command verifies no tokens and hands out no cursors, so that any secret will do.
        throwaway = Settings(secret=secrets.token_urlsafe(48), **settings)
        async with Gateway(throwaway, store).running(jobs=False) as gateway:
            await work(gateway)

    run(work_on_gateway)
