"""The processes of `serve`: a single one, or a supervisor and its workers."""

import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from datastore.database import StoreOptions
from runtime.cli.banner import welcome
from runtime.console import log_as_service, mistake, note, run
from runtime.container import Gateway
from runtime.supervisor.supervisor import Supervisor
from runtime.supervisor.worker_process import serving_gateway, worker_options
from server.observability.liveness import watch_loop
from server.settings import Settings
from server.uvicorn import listen, serve_until_signal

# Workers run this file. A worker started later may run a newer version of it. The supervisor's arguments tell the
# processes of several gateways apart.
PROGRAM = Path(__file__).resolve().parents[2] / "gateway.py"


def start(workers: int, settings: Settings, options: StoreOptions) -> None:
    """Run this process as the supervisor of `workers` processes. With 0 workers, this process serves by itself."""
    log_as_service()
    if workers:
        _supervise(workers, settings, options)
    else:
        _serve(settings, options)


def _serve(settings: Settings, options: StoreOptions) -> None:
    """Serve, and run the background jobs, in this process."""
    with _listening(settings):
        sockets = listen(settings.host, settings.port)
    gateway = serving_gateway(settings, options)

    async def started() -> None:
        watch_loop(settings.watchdog_seconds)
        await welcome(gateway, options)

    run(lambda: serve_until_signal(gateway, sockets, started, random.Random()))


def _supervise(workers: int, settings: Settings, options: StoreOptions) -> None:
    """Run this process as the supervisor."""
    command = [sys.executable, str(PROGRAM), *sys.argv[1:]]
    with _listening(settings):
        supervisor = Supervisor(command, workers, settings.host, settings.port, worker_options(settings, options))
    gateway = Gateway(replace(settings, metrics_port=None), options)

    async def started() -> None:
        note(f"{'Workers':<21} {workers}, and one for background jobs")
        await welcome(gateway, options, alone=False)

    if not run(lambda: supervisor.run(gateway, started)):
        raise SystemExit(1)


@contextmanager
def _listening(settings: Settings) -> Iterator[None]:
    """Turn an `OSError` of the context, which opens the listening sockets, into a message that ends the command."""
    try:
        yield
    except OSError as problem:
        address, reason = f"{settings.host}:{settings.port}", problem.strerror or problem
        raise mistake(f"cannot listen on {address}: {reason}. Choose another with --host or --port.") from None
