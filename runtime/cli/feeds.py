"""The commands of the feed: `pipeline feed`, `dlq` and `follows`."""

import json
from collections.abc import AsyncIterator
from typing import Annotated, Any

import typer

from datastore.change_streams.dead_letters import DeadLetter, every_letter
from datastore.database import StoreOptions
from datastore.keyspace.feeds.pipeline import CONSUMER_TABLE
from datastore.keyspace.feeds.table import FEED
from datastore.model.timestamps import iso
from datastore.primitives.tasks import supervise_all
from pipelines.consumer.redrive import Redrive
from pipelines.feeds.fan_out import MAX_FOLLOWERS
from pipelines.feeds.follow_repair import FollowRepair, RepairProgress
from pipelines.feeds.handlers import feed_handlers
from runtime.cli.options import POLL_INTERVAL, SEARCH_URL, named_settings, takes_store, with_gateway
from runtime.cli.output import show_progress
from runtime.cli.pipelines import MetricsOptions, run_until_stopped, takes_metrics
from runtime.console import mistake
from runtime.container import Gateway, utc_now

FanOutBound = Annotated[
    int,
    typer.Option(
        "--fan-out-bound",
        envvar="GATEWAY_FAN_OUT_BOUND",
        min=0,
        help="Posts of authors with more followers than this are merged when feeds are read.",
    ),
]

letters = typer.Typer(no_args_is_help=True, help="Dead letters: changes of the feed that could not be handled.")
follows = typer.Typer(no_args_is_help=True, help="The follows of the feed.")


@takes_metrics
@takes_store
def run_pipeline(*, fan_out_bound: FanOutBound = MAX_FOLLOWERS, metrics: MetricsOptions, store: StoreOptions) -> None:
    """Handle the feed's changes until interrupted. Any number of such processes share the changes.

    They also keep the search index current, in the OpenSearch at GATEWAY_SEARCH_URL or beside local data.
    GATEWAY_POLL_INTERVAL_SECONDS sets how often the stream is read; on AWS once a second at most.
    """

    async def consume(gateway: Gateway) -> None:
        feed = gateway.background.feed_pipeline(fan_out_bound=fan_out_bound)
        await supervise_all([feed.run, *gateway.background.search_jobs(feed)])

    run_until_stopped(consume, store, metrics, **named_settings(POLL_INTERVAL, SEARCH_URL))


@letters.command("list")
@takes_store
def list_letters(
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line, with the whole record.")
    ] = False,
    store: StoreOptions,
) -> None:
    """Show the dead letters, oldest first."""

    async def show(gateway: Gateway) -> None:
        async for letter in every_letter(gateway.open_store, CONSUMER_TABLE, FEED.name, utc_now()):
            typer.echo(json.dumps(_as_json(letter)) if as_json else _line(letter))

    with_gateway(show, store)


@letters.command("replay")
@takes_store
def replay_letters(
    *,
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[IDS]...", help="The ids of the dead letters to handle.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Handle all dead letters.")] = False,
    fan_out_bound: FanOutBound = MAX_FOLLOWERS,
    store: StoreOptions,
) -> None:
    """Handle dead letters again. Delete each that succeeds. A repetition counts nothing twice."""
    if bool(ids) is every:
        raise typer.BadParameter("name ids, or give --all", param_hint="IDS")

    async def replay(gateway: Gateway) -> None:
        letters = every_letter(gateway.open_store, CONSUMER_TABLE, FEED.name, utc_now())
        handlers = feed_handlers(gateway.open_store, utc_now, fan_out_bound=fan_out_bound)
        handlers.append(gateway.background.search_sync())
        redrive = Redrive(handlers, gateway.open_store, utc_now)
        replayed, failed = await _replay(redrive, letters if every else await _chosen(letters, set(ids or ())))
        typer.echo(f"{replayed} replayed, {failed} failed")
        if failed:
            raise SystemExit(1)

    with_gateway(replay, store, **named_settings(SEARCH_URL))


@follows.command("repair")
@takes_store
def repair_follows(store: StoreOptions) -> None:
    """Complete the follows that other programs stored before the pipeline's first run, so that they are counted.

    It reads the whole table once. It may run beside gateways and pipelines, and again at any time.
    """

    async def repair(gateway: Gateway) -> None:
        result = await FollowRepair(gateway.open_store, lambda progress: show_progress(_repair_line(progress))).run()
        typer.echo(_repair_line(result))

    with_gateway(repair, store)


def _repair_line(progress: RepairProgress) -> str:
    return f"{progress.follows} follows completed, {progress.scanned} items read"


async def _chosen(letters: AsyncIterator[DeadLetter], ids: set[str]) -> AsyncIterator[DeadLetter]:
    """Return the dead letters with the ids. End the command if one does not exist."""
    found = [letter async for letter in letters if letter.id in ids]
    missing = sorted(ids - {letter.id for letter in found})
    if missing:
        raise mistake(f"there is no dead letter {', '.join(missing)}.")

    async def chosen() -> AsyncIterator[DeadLetter]:
        for letter in found:
            yield letter

    return chosen()


async def _replay(redrive: Redrive, letters: AsyncIterator[DeadLetter]) -> tuple[int, int]:
    """Return the number of replayed letters, and that of letters that failed again."""
    replayed = failed = 0
    async for letter in letters:
        kept = await redrive.replay(letter)
        if kept is None:
            replayed += 1
        else:
            typer.echo(_line(kept))
            failed += 1
    return replayed, failed


def _line(letter: DeadLetter) -> str:
    note = "" if letter.whole else "  (too big: kept without its images)"
    return "  ".join(
        (
            letter.id,
            iso(letter.moment),
            letter.handler,
            letter.event,
            json.dumps(letter.item_keys),
            f"{letter.error_type}: {letter.error}{note}",
        )
    )


def _as_json(letter: DeadLetter) -> dict[str, Any]:
    return {
        "id": letter.id,
        "table": letter.table,
        "moment": iso(letter.moment),
        "handler": letter.handler,
        "event": letter.event,
        "keys": letter.item_keys,
        "errorType": letter.error_type,
        "error": letter.error,
        "attempts": letter.attempts,
        "buriedAt": iso(letter.buried_at),
        "whole": letter.whole,
        "record": letter.record,
    }
