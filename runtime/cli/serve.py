"""`gateway.py serve`: its options, and what they come to."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from datastore.database import StoreOptions
from pipelines.consumer.metrics import LOCAL
from pipelines.earthquakes.usgs_feed import FeedError
from pipelines.earthquakes.usgs_fetch import feed_url
from pipelines.feeds.fan_out import MAX_FOLLOWERS
from pipelines.matches.setup import MatchSource
from runtime.cli import matches
from runtime.cli.feeds import FanOutBound
from runtime.cli.options import DATA_DIR, DataDir, Memory, Prefix, Region, StoreOption, settings_of, store_options
from runtime.cli.output import mistake
from runtime.cli.pipelines import MetricsHost, MetricsPort
from runtime.cli.processes import serve_as_told
from server.settings import Settings

MOST_WORKERS = 256

Host = Annotated[str, typer.Option(envvar="GATEWAY_HOST", help="The address to listen on.")]
Port = Annotated[int, typer.Option(envvar="GATEWAY_PORT", min=1, max=65535, help="The port.")]
Demo = Annotated[
    bool | None,
    typer.Option(
        "--demo/--no-demo",
        envvar="GATEWAY_DEMO",
        help="Demo data and tokens, and a little life; on by default when embedded.",
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
        help="Which live matches to poll: invented ones, those of SportMonks, or none. Invented ones in the demo.",
    ),
]
FeedPipeline = Annotated[
    bool | None,
    typer.Option(
        "--feed-pipeline/--no-feed-pipeline",
        envvar="GATEWAY_FEED_PIPELINE",
        help="Handle the feed's changes in this process; on by default when embedded.",
    ),
]
Workers = Annotated[
    str | None,
    typer.Option(
        envvar="GATEWAY_WORKERS",
        help="So many processes serve, or auto: as many as there are CPUs. One process does it all without.",
    ),
]
Bus = Annotated[
    str | None,
    typer.Option(
        envvar="GATEWAY_BUS",
        help="The redis:// or rediss:// URL by which processes share the reading of tables' streams.",
    ),
]


def serve(
    context: typer.Context,
    host: Host = "127.0.0.1",
    port: Port = 8000,
    store: StoreOption = "embedded",
    data_dir: DataDir = DATA_DIR,
    memory: Memory = False,
    prefix: Prefix = "",
    region: Region = None,
    demo: Demo = None,
    ingest: Ingest = None,
    source: Matches = None,
    feed_pipeline: FeedPipeline = None,
    fan_out_bound: FanOutBound = MAX_FOLLOWERS,
    metrics_port: MetricsPort = None,
    metrics_host: MetricsHost = LOCAL,
    workers: Workers = None,
    bus: Bus = None,
) -> None:
    """Serve GraphQL, and GraphiQL for browsers, until interrupted."""
    wanted = _number(workers)
    # The same for a server of one's own, which has the options' variables alone.
    settings, options = set_up(**context.params)
    if wanted > 1 and options.aws and settings.bus is None:
        # Each would read the streams by itself: AWS has a shard read five times a second by all together.
        raise mistake("several workers on AWS need a bus: set --bus or GATEWAY_BUS to the URL of a Redis.", 2)
    serve_as_told(wanted, settings, options)


def _number(told: str | None) -> int:
    """How many workers there are to be; 0 for none."""
    if told is None:
        return 0
    if told == "auto":
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not told.isdecimal() or not 1 <= int(told) <= MOST_WORKERS:
        raise typer.BadParameter(f"must be auto, or a number from 1 to {MOST_WORKERS}", param_hint="--workers")
    if sys.platform == "win32":
        raise typer.BadParameter("needs a system with signals, which Windows is not", param_hint="--workers")
    return int(told)


def set_up(
    store: str | StoreOptions,
    data_dir: Path,
    memory: bool,
    prefix: str,
    region: str | None,
    *,
    workers: str | None,
    demo: bool | None,
    ingest: str | None,
    source: MatchSource | None,
    feed_pipeline: bool | None,
    **given: Any,
) -> tuple[Settings, StoreOptions]:
    """What the options of `serve` come to, but for `workers`: how many there are is no matter of any of them."""
    _check_feed(ingest)
    options = store_options(store, data_dir, memory, prefix, region) if isinstance(store, str) else store
    demo = options.embedded if demo is None else demo
    given["feed_pipeline"] = options.embedded if feed_pipeline is None else feed_pipeline
    source = source or (MatchSource.DEMO if demo else MatchSource.NONE)
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
