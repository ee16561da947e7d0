"""The command `engine`, which runs the embedded engine as a service of its own."""

from typing import Annotated

import typer

from datastore.database import StoreOptions, open_database
from datastore.engine.access_key import KEY_FILE, VARIABLE, key_in_environment
from datastore.engine.process import EngineFailed, is_free
from datastore.engine.ttl_sweeper import sweep_forever
from datastore.keyspace import TABLES
from datastore.primitives.tasks import gather_all
from pipelines.consumer.metrics import StreamMetrics
from runtime.cli.options import DATA_DIR, DataDir, Prefix
from runtime.cli.output import until_stopped
from runtime.console import log_as_service, mistake, note, run
from runtime.container import utc_now
from runtime.data_disk import DataDisk
from runtime.jobs import metrics_served
from runtime.service_manager import report_ready
from server.observability.build_info import BuildInfo
from server.version import running_build

ALL_ADDRESSES, LOOPBACK = "0.0.0.0", "127.0.0.1"


def run_engine(
    host: Annotated[
        str, typer.Option(help=f"The address to listen on: {LOOPBACK}, or {ALL_ADDRESSES} for other machines too.")
    ] = LOOPBACK,
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port.")] = 8001,
    data_dir: DataDir = DATA_DIR,
    prefix: Prefix = "",
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            help="Serve the free space of the disk and the version for Prometheus at http://127.0.0.1:PORT/metrics.",
        ),
    ] = None,
) -> None:
    """Run the embedded engine alone until interrupted, for processes with --store http://HOST:PORT.

    The engine is restarted if it dies. Expired items are deleted. Clients need the access key, which
    GATEWAY_ENGINE_KEY sets. Without it, the command generates one in the file `engine.key` of the data directory.
    `tables create` creates the tables. A disk that fills is logged.
    """
    if host not in (LOOPBACK, ALL_ADDRESSES):
        raise typer.BadParameter(f"must be {LOOPBACK} or {ALL_ADDRESSES}", param_hint="--host")
    options = StoreOptions(data_dir=data_dir, prefix=prefix, listen=(host, port))
    log_as_service()

    async def serve() -> None:
        async with open_database(options) as database:
            assert database.engine is not None
            if database.engine.attached:
                raise EngineFailed(
                    f"Another process has opened the data in {data_dir}: stop it, or choose another --data-dir."
                )
            note(f"The embedded engine listens at http://{host}:{port}, with its data in {data_dir}.")
            key = "the same value" if key_in_environment() else f"the content of {data_dir / KEY_FILE}"
            note(f"Clients need the access key: set their {VARIABLE} to {key}.")
            disk, metrics = DataDisk(data_dir), StreamMetrics()
            for collector in (disk, BuildInfo(running_build())):
                metrics.registry.register(collector)
            with metrics_served(metrics, metrics_port, LOOPBACK):
                report_ready()
                await gather_all([sweep_forever(database.client, TABLES, prefix, utc_now), disk.watch()])

    if not is_free(port):
        raise mistake(f"port {port} is taken: choose another with --port.")
    run(lambda: until_stopped(serve()))
