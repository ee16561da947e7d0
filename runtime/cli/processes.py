"""The processes of `serve`: a single one, or a supervisor and its workers."""

import faulthandler
import logging
import os
import random
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import typer

from datastore.database import StoreOptions
from runtime.cli.banner import welcome
from runtime.cli.output import mistake, notes, run
from runtime.container import Gateway, ProcessPart
from runtime.supervisor.heartbeats import send_heartbeats
from runtime.supervisor.supervisor import Supervisor
from runtime.supervisor.worker_env import READY, Assignment
from server.admission.connection_limits import raise_descriptor_limit, within_descriptors
from server.observability.liveness import watch_loop
from server.observability.operation_log import JsonLines
from server.settings import Misconfigured, Settings
from server.uvicorn import listen, run_jobs_worker, serve_until_signal, serve_worker

# Workers run this file with the arguments of the supervisor. A worker started later may run a newer version of it.
PROGRAM = Path(__file__).resolve().parents[2] / "gateway.py"


def start(workers: int, settings: Settings, options: StoreOptions) -> None:
    """Run this process as a worker if a supervisor started it, else as the supervisor of `workers` processes.

    With 0 workers, this process serves by itself.
    """
    _log_as(settings.log_format)
    if (assignment := _assignment()) is not None:
        _work(assignment, settings, options)
    elif workers:
        _supervise(workers, settings, options)
    else:
        _serve(settings, options)


def _assignment() -> Assignment | None:
    try:
        return Assignment.of(os.environ)
    except Misconfigured as problem:
        raise mistake(problem, 2) from None


def _serve(settings: Settings, options: StoreOptions) -> None:
    """Serve, and run the background jobs, in this process."""
    with _listening(settings):
        sockets = listen(settings.host, settings.port)
    gateway = _gateway(settings, options)

    async def started() -> None:
        watch_loop(settings.watchdog_seconds)
        await welcome(gateway, options)

    run(lambda: serve_until_signal(gateway, sockets, started, random.Random()))


def _supervise(workers: int, settings: Settings, options: StoreOptions) -> None:
    """Run this process as the supervisor."""
    with _listening(settings):
        supervisor = Supervisor([sys.executable, str(PROGRAM), *sys.argv[1:]], workers, settings.host, settings.port)
    gateway = Gateway(replace(settings, metrics_port=None), options)

    async def started() -> None:
        notes.print(f"{'Workers':<21} {workers}, and one for background jobs")
        await welcome(gateway, options, alone=False)

    if not run(lambda: supervisor.run(gateway, started)):
        raise typer.Exit(1)


def _work(assignment: Assignment, settings: Settings, options: StoreOptions) -> None:
    """Run this process as a worker. Its metrics are at the port of the option plus the worker's number."""
    faulthandler.register(signal.SIGUSR1, file=2)  # the supervisor sends it to a worker that hangs
    if settings.metrics_port is not None:
        settings = replace(settings, metrics_port=settings.metrics_port + assignment.number)
    gateway = _gateway(settings, options, assignment.part)
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


def _gateway(settings: Settings, options: StoreOptions, part: ProcessPart = ProcessPart.WHOLE) -> Gateway:
    return Gateway(
        replace(settings, capacity=within_descriptors(settings.capacity, raise_descriptor_limit())), options, part=part
    )


@contextmanager
def _listening(settings: Settings) -> Iterator[None]:
    """Turn an `OSError` of the context, which opens the listening sockets, into a message that ends the command."""
    try:
        yield
    except OSError as problem:
        address, reason = f"{settings.host}:{settings.port}", problem.strerror or problem
        raise mistake(f"cannot listen on {address}: {reason}. Choose another with --host or --port.") from None


def _log_as(log_format: str) -> None:
    """Log to standard error: plain lines, or a JSON object per line."""
    handler = logging.StreamHandler()
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if log_format == "json" else plain)
    # Neither format shows the thread or process: do not look them up for each record.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.basicConfig(level=logging.INFO, handlers=[handler])
