"""The commands of live cricket: `replay` and `pipeline cricket`."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from datastore.database import StoreOptions
from datastore.matches.fixtures import Fixtures
from datastore.primitives.tasks import cancel
from pipelines.matches.live.orchestrator import PollIntervals
from pipelines.matches.live.poller import LiveChange
from pipelines.matches.providers.cricsheet.reader import load
from pipelines.matches.providers.provider import ProviderError
from pipelines.matches.providers.recordings import Recording
from pipelines.matches.providers.replay import ReplayProvider
from pipelines.matches.push.apns_credentials import CredentialsError
from pipelines.matches.setup import MatchSource, PipelineSetup, SetupError, pipeline_setup
from runtime.cli.options import takes_store, with_gateway
from runtime.cli.output import until_stopped
from runtime.cli.pipelines import MetricsOptions, run_until_stopped, takes_metrics
from runtime.console import mistake
from runtime.container import Gateway, utc_now

# At full speed a tick covers an over, and the next one follows at once.
FULL_SPEED_BALLS = 6
FULL_SPEED = PollIntervals(tick_seconds=0.0, reconcile_seconds=0.2, linger=timedelta(0))
BY_THE_CLOCK = PollIntervals(tick_seconds=0.5, reconcile_seconds=1.0, linger=timedelta(seconds=2))

commands = typer.Typer(no_args_is_help=True, help="Run a pipeline in a process of its own.")


@commands.command("cricket")
@takes_metrics
@takes_store
def run_pipeline(
    *,
    source: Annotated[
        MatchSource,
        typer.Option(
            "--matches",
            envvar="GATEWAY_MATCHES",
            help="The provider of matches: sportmonks, or demo (simulated matches).",
        ),
    ] = MatchSource.SPORTMONKS,
    metrics: MetricsOptions,
    store: StoreOptions,
) -> None:
    """Poll live matches until interrupted. Any number of such processes share the matches."""
    setup = setup_of(source)

    async def poll(gateway: Gateway) -> None:
        await gateway.background.cricket(setup).run()

    run_until_stopped(poll, store, metrics)


@takes_store
def replay(
    *,
    files: Annotated[
        list[Path], typer.Argument(help="Matches in Cricsheet's JSON format.", exists=True, dir_okay=False)
    ],
    speed: Annotated[
        float, typer.Option(min=0, help="The speed relative to the recorded match; 0: as fast as possible.")
    ] = 60.0,
    match_id: Annotated[
        str | None, typer.Option(help="The id of the match, if there is one file. Default: the name of the file.")
    ] = None,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="Start at the first ball, even if an earlier replay got further.")
    ] = False,
    store: StoreOptions,
) -> None:
    """Replay recorded matches as if they were live, and print their events. Interrupted replays continue."""
    if match_id is not None and len(files) > 1:
        raise typer.BadParameter("is for one file only", param_hint="--match-id")
    recordings = [_load(file, match_id) for file in files]

    async def play(gateway: Gateway) -> None:
        await until_stopped(_play(gateway, recordings, speed or None, from_start))

    with_gateway(play, store)


def _load(file: Path, match_id: str | None) -> Recording:
    try:
        return load(file, match_id=match_id)
    except ProviderError as problem:
        raise mistake(problem, 2) from None


def setup_of(source: MatchSource) -> PipelineSetup:
    """Return the set-up of a source from the environment. End the command if a variable is missing."""
    try:
        return pipeline_setup(source)
    except (SetupError, CredentialsError) as problem:
        raise mistake(problem, 2) from None


async def _play(gateway: Gateway, recordings: Sequence[Recording], speed: float | None, from_start: bool) -> None:
    starts = {recording.match_id: utc_now() for recording in recordings}
    provider = ReplayProvider(recordings, now=utc_now, speed=speed, balls_per_tick=FULL_SPEED_BALLS, start_times=starts)
    intervals = FULL_SPEED if speed is None else BY_THE_CLOCK
    setup = setup_of(MatchSource.DEMO)
    pipeline = gateway.background.cricket(setup, provider, intervals=intervals, on_change=_print_events)
    async with pipeline.open():
        await pipeline.sync()
        for recording in recordings:
            stored = await Fixtures(gateway.open_store(), utc_now()).latest(recording.match_id)
            if stored is not None and stored.last_ball_id and not from_start:
                provider.start_at(recording.match_id, stored.last_ball_id)
        for match in await provider.live():
            await pipeline.orchestrator.start(match)
        reconcile = asyncio.create_task(pipeline.orchestrator.run())
        try:
            while not all(provider.is_over(recording.match_id) for recording in recordings) or (
                pipeline.orchestrator.polled
            ):
                if reconcile.done():
                    await reconcile
                await asyncio.sleep(intervals.reconcile_seconds)
        finally:
            await cancel(reconcile)


def _print_events(change: LiveChange) -> None:
    for event in change.active.events:
        ball = f"{event.ball.label:>5}" if event.ball else "     "
        typer.echo(f"{change.match.match_id}  {ball}  {event.score or '':>7}  {event.text}")
