"""The common part of the commands that run a pipeline until they are interrupted."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from datastore.database import StoreOptions
from pipelines.consumer.metrics import LOCAL
from runtime.cli.options import WATCHDOG, OptionGroup, named_settings, with_gateway
from runtime.cli.output import until_stopped
from runtime.console import log_as_service
from runtime.container import Gateway
from runtime.jobs import metrics_served
from server.observability.liveness import watch_loop
from server.uvicorn import settle_garbage_collector


@dataclass(frozen=True, slots=True)
class MetricsOptions:
    """The address at which a process answers Prometheus."""

    metrics_port: Annotated[
        int | None,
        typer.Option(
            "--metrics-port",
            envvar="GATEWAY_METRICS_PORT",
            min=1,
            max=65535,
            help="Serve metrics for Prometheus at http://HOST:PORT/metrics.",
        ),
    ] = None
    metrics_host: Annotated[
        str,
        typer.Option(
            "--metrics-host",
            envvar="GATEWAY_METRICS_HOST",
            help="The address that serves the metrics. It requires no token.",
        ),
    ] = LOCAL


takes_metrics = OptionGroup(MetricsOptions)


def run_until_stopped(
    work: Callable[[Gateway], Coroutine[Any, Any, None]],
    store: StoreOptions,
    metrics: MetricsOptions,
    **settings: Any,
) -> None:
    """Open the store, and run `work` until it ends or the command is interrupted.

    The process logs from INFO on, ends when its event loop hangs, and serves its metrics if `metrics` has a port.
    `settings` are the gateway's.
    """
    settings |= named_settings(WATCHDOG)

    async def run(gateway: Gateway) -> None:
        log_as_service()  # not before: an error in the set-up is a single line
        settle_garbage_collector()
        watch_loop(gateway.settings.watchdog_seconds)
        with metrics_served(gateway.metrics, metrics.metrics_port, metrics.metrics_host):
            await until_stopped(work(gateway))

    with_gateway(run, store, **settings)
