"""The processes of `serve`: one that does it all, or a supervisor and its workers."""

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

# What workers are started with, and the arguments of who starts them: a file that may be a newer one by then.
PROGRAM = Path(__file__).resolve().parents[2] / "gateway.py"


def start(workers: int, settings: Settings, options: StoreOptions) -> None:
    """As one of several where a supervisor began this process; else as a supervisor of so many, or alone with 0."""
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
    """All in this process."""
    with _address(settings):
        sockets = listen(settings.host, settings.port)
    gateway = _gateway(settings, options)

    async def started() -> None:
        watch_loop(settings.watchdog_seconds)
        await welcome(gateway, options)

    run(lambda: serve_until_signal(gateway, sockets, started, random.Random()))


def _supervise(workers: int, settings: Settings, options: StoreOptions) -> None:
    """As the one that all workers are told by."""
    with _address(settings):
        supervisor = Supervisor([sys.executable, str(PROGRAM), *sys.argv[1:]], workers, settings.host, settings.port)
    gateway = Gateway(replace(settings, metrics_port=None), options)

    async def started() -> None:
        notes.print(f"{'Workers':<21} {workers}, and one for what runs in the background")
        await welcome(gateway, options, alone=False)

    if not run(lambda: supervisor.run(gateway, started)):
        raise typer.Exit(1)


def _work(assignment: Assignment, settings: Settings, options: StoreOptions) -> None:
    """As one of several."""
    faulthandler.register(signal.SIGUSR1, file=2)  # the supervisor sends it to one that hangs
    if settings.metrics_port is not None:
        settings = replace(settings, metrics_port=settings.metrics_port + assignment.number)
    gateway = _gateway(settings, options, assignment.part)
    with assignment.open_line() as line:

        async def started() -> None:
            with suppress(OSError):  # where nobody is left to be told, the line's end is what tells
                line.send(READY)
            send_heartbeats(line)
            watch_loop(settings.watchdog_seconds)

        if assignment.part is ProcessPart.JOBS:
            run(lambda: run_jobs_worker(gateway, started, line))
        else:
            run(lambda: serve_worker(gateway, assignment.sockets(), started, random.Random(), line))


def _gateway(settings: Settings, options: StoreOptions, part: ProcessPart = ProcessPart.WHOLE) -> Gateway:
    return Gateway(
        replace(settings, capacity=within_descriptors(settings.capacity, raise_descriptor_limit())), options, part=part
    )


@contextmanager
def _address(settings: Settings) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        where, reason = f"{settings.host}:{settings.port}", problem.strerror or problem
        raise mistake(f"cannot listen on {where}: {reason}. Choose another with --host or --port.") from None


def _log_as(form: str) -> None:
    """Log to standard error: lines for people, or an object a line for programs."""
    handler = logging.StreamHandler()
    plain = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if form == "json" else plain)
    # Of what no line tells nothing is looked up.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging.basicConfig(level=logging.INFO, handlers=[handler])
