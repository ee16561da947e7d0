"""A worker of `serve --workers`, as its own process sees it.

It does not load the command line, which takes a tenth of its memory: the supervisor passes it the options.
"""

import faulthandler
import os
import random
import signal
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from datastore.database import StoreOptions
from runtime.configuration import settings_of
from runtime.console import begin_logging, log_as_service, mistake, run
from runtime.container import Gateway, ProcessPart
from runtime.supervisor.heartbeats import send_heartbeats
from runtime.supervisor.worker_env import READY, Assignment
from server.admission.connection_limits import raise_descriptor_limit, within_descriptors
from server.observability.liveness import watch_loop
from server.settings import Misconfigured, Settings
from server.uvicorn import run_jobs_worker, serve_worker

# What the options of `serve` set. A worker reads the other settings from the environment, as the supervisor did.
OPTIONS_OF_SETTINGS = (
    "host",
    "port",
    "demo",
    "ingest",
    "matches",
    "feed_pipeline",
    "fan_out_bound",
    "metrics_port",
    "metrics_host",
    "bus",
)
OPTIONS_OF_STORE = ("store", "memory", "prefix", "region")


def worker_options(settings: Settings, store: StoreOptions) -> dict[str, Any]:
    """Return the options of `serve` that a supervisor passes to its workers, for JSON."""
    return {
        "settings": {name: getattr(settings, name) for name in OPTIONS_OF_SETTINGS},
        "store": {name: getattr(store, name) for name in OPTIONS_OF_STORE},
        "data_dir": str(store.data_dir),
    }


def worker_settings(options: Mapping[str, Any]) -> tuple[Settings, StoreOptions]:
    """Return the settings and the store of the supervisor with these options.

    Raises:
        TypeError: The supervisor runs a version with other options.
    """
    store = StoreOptions(**options["store"], data_dir=Path(options["data_dir"]))
    return settings_of(store, Path(options["data_dir"]), **options["settings"]), store


def run_worker() -> None:
    """Run this process as the worker that the environment describes. Its metrics port is the option's plus its number.

    End the process with a message if the environment cannot be used.
    """
    begin_logging()
    try:
        assignment = Assignment.of(os.environ)
        settings, store = worker_settings(assignment.options)
    except Misconfigured as problem:
        raise mistake(problem, 2) from None
    log_as_service()
    faulthandler.register(signal.SIGUSR1, file=2)  # the supervisor sends it to a worker that hangs
    if settings.metrics_port is not None:
        settings = replace(settings, metrics_port=settings.metrics_port + assignment.number)
    gateway = serving_gateway(settings, store, assignment.part)
    with assignment.open_channel() as channel:

        async def started() -> None:
            with suppress(OSError):  # without a supervisor, the end of the channel stops this worker
                channel.send(READY)
            send_heartbeats(channel)
            watch_loop(settings.watchdog_seconds)

        if assignment.part is ProcessPart.JOBS:
            run(lambda: run_jobs_worker(gateway, started, channel))
        else:
            run(lambda: serve_worker(gateway, assignment.sockets(), started, random.Random(), channel))


def serving_gateway(settings: Settings, options: StoreOptions, part: ProcessPart = ProcessPart.WHOLE) -> Gateway:
    """Return a gateway whose limits on connections fit the descriptors that the system allows."""
    return Gateway(
        replace(settings, capacity=within_descriptors(settings.capacity, raise_descriptor_limit())), options, part=part
    )
