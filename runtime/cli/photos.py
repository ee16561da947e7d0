"""The command `photos strip`."""

from typing import Annotated

import typer

from datastore.database import StoreOptions
from pipelines.photos.stripping import PAGE, Stripping, StrippingSummary
from runtime.cli.options import BUCKET, named_settings, takes_store, with_gateway
from runtime.console import note
from runtime.container import Gateway

MAX_PAGE = 1000

commands = typer.Typer(no_args_is_help=True, help="The files of photos.")

DryRun = Annotated[bool, typer.Option("--dry-run", help="Count the files, and change nothing.")]
FromTheStart = Annotated[
    bool, typer.Option("--from-the-start", help="Start at the first photo, even if an interrupted run got further.")
]
PageSize = Annotated[
    int, typer.Option("--page", min=1, max=MAX_PAGE, help="The number of photos between two notes of the progress.")
]


@commands.command("strip")
@takes_store
def strip_photos(
    *,
    dry_run: DryRun = False,
    from_the_start: FromTheStart = False,
    page: PageSize = PAGE,
    store: StoreOptions,
) -> None:
    """Remove location and other metadata from the files of all photos.

    An interrupted run continues where it stopped. A second run finds nothing to do. GATEWAY_PHOTO_BUCKET and
    GATEWAY_S3_URL name the bucket, as for `serve`.
    """

    async def strip(gateway: Gateway) -> None:
        stripping = Stripping(gateway.open_store, gateway.objects, page=page, dry_run=dry_run)
        summary = await stripping.run(_print_progress, from_the_start=from_the_start)
        typer.echo(_summary_lines(summary, dry_run))
        if summary.unreadable:
            raise SystemExit(1)

    bucket_settings = named_settings(*BUCKET)
    if store.memory and "photo_bucket" not in bucket_settings:
        # The folder of the photos is temporary, and only the gateway that made it knows its path.
        raise typer.BadParameter("works with photos in a bucket only: set GATEWAY_PHOTO_BUCKET", param_hint="--memory")
    with_gateway(strip, store, **bucket_settings)


def _print_progress(summary: StrippingSummary) -> None:
    note(f"{summary.earlier + summary.photos} photos")


def _summary_lines(summary: StrippingSummary, dry_run: bool) -> str:
    lines = [
        f"{'to strip' if dry_run else 'stripped':<10}  {summary.stripped}",
        f"{'clean':<10}  {summary.clean}",
        f"{'missing':<10}  {summary.missing}",
        f"{'unreadable':<10}  {summary.unreadable}",
    ]
    if summary.earlier:
        lines.insert(0, f"{'earlier':<10}  {summary.earlier}")
    return "\n".join(lines)
