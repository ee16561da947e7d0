"""The command `ingest earthquakes`."""

from typing import Annotated

import typer

from datastore.database import StoreOptions
from datastore.earthquakes.earthquakes import IngestSummary
from runtime.cli.options import takes_store, with_gateway
from runtime.cli.output import progress, shortened
from runtime.console import mistake
from runtime.container import Gateway

commands = typer.Typer(no_args_is_help=True, help="Import data from other services.")


@commands.command("earthquakes")
@takes_store
def ingest_earthquakes(
    source: Annotated[str, typer.Argument(help="A USGS GeoJSON feed: a file, a URL, or a name such as all_day.")],
    store: StoreOptions,
) -> None:
    """Store each event of a USGS GeoJSON feed once, and print the result."""

    async def ingest(gateway: Gateway) -> None:
        assert gateway.ingest is not None
        with progress() as bar:
            task = bar.add_task(shortened(source), total=None, stored=0)
            summary = await gateway.ingest.run(
                source,
                lambda state: bar.update(
                    task, completed=state.received, total=state.expected, stored=state.upserted + state.skipped
                ),
            )
        _report(summary)

    with_gateway(ingest, store)


def _report(summary: IngestSummary) -> None:
    if summary.error is None or summary.fetched:
        typer.echo(_summary_lines(summary))
    if summary.error is not None:
        raise mistake(f"the feed was ingested only in part: {summary.error}")


def _summary_lines(summary: IngestSummary) -> str:
    lines = [
        f"fetched   {summary.fetched}",
        f"upserted  {summary.upserted}",
        f"skipped   {summary.skipped}" + (" (the feed has not changed)" if summary.unchanged else ""),
        f"rejected  {sum(summary.rejected.values())}",
        *[f"  {reason}  {count}" for reason, count in sorted(summary.rejected.items())],
        f"{summary.upstream_size} bytes in {summary.latency_ms / 1000:.2f} s",
    ]
    return "\n".join(lines)
