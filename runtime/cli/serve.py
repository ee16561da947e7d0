"""The command `serve`: its options, and the settings that they result in."""

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from datastore.database import StoreOptions
from pipelines.earthquakes.usgs_feed import FeedError, feed_url
from pipelines.feeds.fan_out import MAX_FOLLOWERS
from pipelines.matches.setup import MatchSource
from runtime.cli import matches
from runtime.cli.feeds import FanOutBound
from runtime.cli.options import settings_of, store_options, takes_store
from runtime.cli.pipelines import MetricsOptions, takes_metrics
from runtime.cli.processes import start
from runtime.cli.variables import unknown_variables
from runtime.console import mistake
from server.settings import Settings

MAX_WORKERS = 256

Host = Annotated[str, typer.Option(envvar="GATEWAY_HOST", help="The address to listen on.")]
Port = Annotated[int, typer.Option(envvar="GATEWAY_PORT", min=1, max=65535, help="The port.")]
Demo = Annotated[
    bool | None,
    typer.Option(
        "--demo/--no-demo",
        envvar="GATEWAY_DEMO",
        help="Demo data, demo tokens and simulated activity; on by default for the embedded engine.",
    ),
]
Ingest = Annotated[
    str | None,
    typer.Option(envvar="GATEWAY_INGEST", help="A USGS feed to ingest every minute, such as all_hour."),
]
Matches = Annotated[
    MatchSource | None,
    typer.Option(
        "--matches",
        envvar="GATEWAY_MATCHES",
        help="The provider of live matches: demo (simulated matches), sportmonks, or none. Default with --demo: demo.",
    ),
]
FeedPipeline = Annotated[
    bool | None,
    typer.Option(
        "--feed-pipeline/--no-feed-pipeline",
        envvar="GATEWAY_FEED_PIPELINE",
        help="Handle the feed's changes in this process; on by default for the embedded engine.",
    ),
]
Workers = Annotated[
    str | None,
    typer.Option(
        envvar="GATEWAY_WORKERS",
        help="The number of processes that serve; auto: one for each CPU. Default: one process does everything.",
    ),
]
Bus = Annotated[
    str | None,
    typer.Option(
        envvar="GATEWAY_BUS",
        help="The redis:// or rediss:// URL of the Redis through which processes share the reading of streams.",
    ),
]


@takes_metrics
@takes_store
def serve(
    *,
    context: typer.Context,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    store: StoreOptions,
    demo: Demo = None,
    ingest: Ingest = None,
    source: Matches = None,
    feed_pipeline: FeedPipeline = None,
    fan_out_bound: FanOutBound = MAX_FOLLOWERS,
    metrics: MetricsOptions,
    workers: Workers = None,
    bus: Bus = None,
) -> None:
    """Serve GraphQL, and GraphiQL for browsers, until interrupted."""
    worker_count = _worker_count(workers)
    settings, _ = set_up(context.params, store)
    commands = context.find_root().command
    assert isinstance(commands, TyperGroup)
    settings = replace(settings, unknown_variables=unknown_variables(commands))
    if worker_count > 1 and store.in_aws and settings.bus is None:
        # Without a bus each worker reads the streams, and AWS allows five reads per second and shard in all.
        raise mistake("several workers on AWS need a bus: set --bus or GATEWAY_BUS to the URL of a Redis.", 2)
    start(worker_count, settings, store)


def _worker_count(workers: str | None) -> int:
    """Return the number of worker processes; 0 if this process is to serve by itself."""
    if workers is None:
        return 0
    if workers == "auto":
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not workers.isdecimal() or not 1 <= int(workers) <= MAX_WORKERS:
        raise typer.BadParameter(f"must be auto, or a number from 1 to {MAX_WORKERS}", param_hint="--workers")
    if sys.platform == "win32":
        raise typer.BadParameter("needs a system with signals, which Windows is not", param_hint="--workers")
    return int(workers)


def set_up(parameters: Mapping[str, Any], store: StoreOptions | None = None) -> tuple[Settings, StoreOptions]:
    """Return the settings and the store for the parsed options of `serve`, which a given `store` overrides.

    `gateway.create_app` calls this for other ASGI servers, with the options that the environment sets. `--workers` has
    no effect here: it is for the process that `serve` starts.
    """
    given = dict(parameters)
    of_store = {name: given.pop(name) for name in takes_store.parameters}
    store = store_options(**of_store) if store is None else store
    del given["workers"]
    _check_feed(given["ingest"])
    if given["demo"] is None:
        given["demo"] = store.embedded
    if given["feed_pipeline"] is None:
        given["feed_pipeline"] = store.embedded
    source = given.pop("source") or (MatchSource.DEMO if given["demo"] else MatchSource.NONE)
    matches.setup_of(source)  # ends the command if a variable that the source needs is missing
    return settings_of(store, of_store["data_dir"], matches=source.value, **given), store


def _check_feed(feed: str | None) -> None:
    """Raise `typer.BadParameter` for a feed that does not exist, at the start rather than at every ingest."""
    if feed is None or "://" in feed or Path(feed).is_file():
        return
    try:
        feed_url(feed)
    except FeedError as problem:
        raise typer.BadParameter(str(problem), param_hint="--ingest") from None
