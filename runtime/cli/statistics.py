"""The commands of the daily earthquake statistics: `pipeline earthquakes` and `statistics rebuild`."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from datastore.database import StoreOptions
from datastore.model.timestamps import day_bucket
from runtime.cli.options import POLL_INTERVAL, named_settings, takes_store, with_gateway
from runtime.cli.pipelines import MetricsOptions, run_until_stopped, takes_metrics
from runtime.console import mistake
from runtime.container import Gateway

DAY = timedelta(days=1)

commands = typer.Typer(no_args_is_help=True, help="The daily statistics of earthquakes.")

FirstDay = Annotated[
    datetime | None, typer.Option("--start", formats=["%Y-%m-%d"], help="The first day (UTC), with --end.")
]
LastDay = Annotated[
    datetime | None, typer.Option("--end", formats=["%Y-%m-%d"], help="The last day (UTC), with --start.")
]


@takes_metrics
@takes_store
def run_pipeline(metrics: MetricsOptions, store: StoreOptions) -> None:
    """Count earthquakes by day until interrupted. Any number of such processes share the work."""

    async def consume(gateway: Gateway) -> None:
        await gateway.background.earthquake_statistics().run()

    run_until_stopped(consume, store, metrics, **named_settings(POLL_INTERVAL))


@commands.command("rebuild")
@takes_store
def rebuild(
    *,
    start: FirstDay = None,
    end: LastDay = None,
    store: StoreOptions,
) -> None:
    """Count the stored earthquakes: all of them by a Scan, or those of a range of days by a Query for each day.

    Queries skip only days that were counted. The command may run while gateways serve, and may be repeated.
    """
    if (start is None) is not (end is None):
        raise typer.BadParameter("give both, or neither for all days", param_hint="--start, --end")
    days = [] if start is None or end is None else _days(start, end)

    async def count(gateway: Gateway) -> None:
        statistics = gateway.background.statistics_rebuild()
        if days:
            await statistics.days(days)
            typer.echo(f"{len(days)} days are counted")
        else:
            await statistics.all_days()
            typer.echo("all days are counted")

    with_gateway(count, store)


def _days(start: datetime, end: datetime) -> list[str]:
    if start > end:
        raise mistake("--start must not be after --end.")
    return [day_bucket((start + number * DAY).replace(tzinfo=UTC)) for number in range((end - start).days + 1)]
