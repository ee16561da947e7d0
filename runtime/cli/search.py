"""The commands of the search index: `search`, and `pipeline search`, which keeps it current."""

import json
from typing import Annotated, Any

import typer

from datastore.database import StoreOptions
from datastore.model.timestamps import iso
from datastore.search import BuildReplaced, NoIndex, Status
from pipelines.feeds.search_rebuild import RebuildProgress
from runtime.cli.options import POLL_INTERVAL, SEARCH_URL, named_settings, takes_store, with_gateway
from runtime.cli.output import show_progress
from runtime.cli.pipelines import MetricsOptions, run_until_stopped, takes_metrics
from runtime.console import mistake
from runtime.container import Gateway

commands = typer.Typer(no_args_is_help=True, help="The search index of posts and users.")


@takes_metrics
@takes_store
def run_pipeline(metrics: MetricsOptions, store: StoreOptions) -> None:
    """Keep the search index current until interrupted, beside the feed's Lambda function.

    `pipeline feed` includes this consumer.
    Any number of such processes share the work. GATEWAY_SEARCH_URL names the OpenSearch.
    """

    async def consume(gateway: Gateway) -> None:
        _require_index(gateway)
        await gateway.background.search_pipeline().run()

    run_until_stopped(consume, store, metrics, **named_settings(POLL_INTERVAL, SEARCH_URL))


@commands.command("rebuild")
@takes_store
def rebuild(store: StoreOptions) -> None:
    """Build a new index from the table while searches use the present one, then replace it.

    Writes in the meantime are not lost. A rebuild that is interrupted changes nothing; run it again.
    """

    async def build(gateway: Gateway) -> None:
        _require_index(gateway)
        try:
            result = await gateway.background.search_rebuild(_show).run()
        except BuildReplaced as problem:
            raise mistake(problem) from None
        typer.echo(_line(result))

    with_gateway(build, store, **named_settings(SEARCH_URL))


@commands.command("status")
@takes_store
def status(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
    store: StoreOptions,
) -> None:
    """Show how many posts and users the index has, when it was built, and whether a rebuild is under way."""

    async def show(gateway: Gateway) -> None:
        _require_index(gateway)
        fields = _as_json(await gateway.search.status())
        if as_json:
            typer.echo(json.dumps(fields))
            return
        for name, value in fields.items():
            typer.echo(f"{name:<10} {value if value is not None else '-'}")

    with_gateway(show, store, **named_settings(SEARCH_URL))


def _require_index(gateway: Gateway) -> None:
    if isinstance(gateway.search, NoIndex):
        raise mistake("the search index of tables in AWS needs an OpenSearch: set GATEWAY_SEARCH_URL.", 2)


def _show(progress: RebuildProgress) -> None:
    show_progress(f"{_line(progress)} of {progress.scanned} items")


def _line(progress: RebuildProgress) -> str:
    damaged = f", {progress.damaged} items could not be read" if progress.damaged else ""
    return f"{progress.posts} posts and {progress.users} users indexed{damaged}"


def _as_json(status: Status) -> dict[str, Any]:
    return {
        **{kind.value: number for kind, number in status.entries.items()},
        "builtAt": None if status.built_at is None else iso(status.built_at),
        "building": status.building,
    }
