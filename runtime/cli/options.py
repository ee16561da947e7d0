"""Options that every command takes, and what they come to."""

import os
import secrets
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer

from datastore.database import StoreMisconfigured, StoreOptions
from runtime.cli.output import log_in_lines, mistake, run
from runtime.container import Gateway
from server.settings import Misconfigured, Settings, from_environment, local_secret

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
POLL_INTERVAL = "GATEWAY_POLL_INTERVAL_SECONDS"
WATCHDOG = "GATEWAY_WATCHDOG_SECONDS"
SEARCH_URL = "GATEWAY_SEARCH_URL"
BUCKET = ("GATEWAY_PHOTO_BUCKET", "GATEWAY_S3_URL")


def store_options(store: str, data_dir: Path, memory: bool, prefix: str, region: str | None) -> StoreOptions:
    if store not in ("embedded", "aws") and not store.startswith(("http://", "https://")):
        raise typer.BadParameter("must be embedded, aws, or an http(s) URL", param_hint="--store")
    if memory and store != "embedded":
        raise typer.BadParameter("is for the embedded store only", param_hint="--memory")
    options = StoreOptions(store, data_dir=data_dir, memory=memory, prefix=prefix, region=region)
    try:
        options.named_region  # noqa: B018 - what is wrong with the store's name is reported now
    except StoreMisconfigured as problem:
        raise typer.BadParameter(str(problem), param_hint="--store") from None
    return options


def settings_of(options: StoreOptions, data_dir: Path, **given: Any) -> Settings:
    """Settings from the environment. Only local stores get a secret made for them: others share theirs."""
    try:
        found = from_environment(**given)
        if options.aws and "secret" not in found:
            raise Misconfigured(
                "Set GATEWAY_SECRET (cursors are signed with it, and tokens without GATEWAY_JWKS_URL): "
                "a store that others share gets no secret made up for it."
            )
        return Settings(**{"secret": found.get("secret") or local_secret(data_dir), **found})
    except Misconfigured as problem:
        raise mistake(problem, 2) from None


def poll_interval() -> dict[str, float]:
    """How often streams are read, as the environment sets it; empty if it does not."""
    return _named(POLL_INTERVAL)


def watchdog() -> dict[str, float]:
    """How long the event loop may stand still, as the environment sets it; empty if it does not."""
    return _named(WATCHDOG)


def search() -> dict[str, str]:
    """Return the URL of the search index from the environment; empty if it is not set."""
    return _named(SEARCH_URL)


def bucket() -> dict[str, str]:
    """Where photos are kept, as the environment sets it; empty if it does not."""
    return _named(*BUCKET)


def _named(*names: str) -> dict[str, Any]:
    try:
        return from_environment({name: os.environ[name] for name in names if name in os.environ})
    except Misconfigured as problem:
        raise mistake(problem, 2) from None


def with_gateway(work: Callable[[Gateway], Coroutine[Any, Any, None]], options: StoreOptions, **settings: Any) -> None:
    """Do a piece of work with the store open, beside a serving gateway or without one."""
    log_in_lines()

    async def inside() -> None:
        # Nobody signs in, and no cursor leaves: any secret will do.
        made_up = Settings(secret=secrets.token_urlsafe(48), **settings)
        async with Gateway(made_up, options).running(jobs=False) as gateway:
            await work(gateway)

    run(inside)
