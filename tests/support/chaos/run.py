"""A run: a deployment as operated, its load, the faults one after another, and the comparison at the end."""

import asyncio
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import aiohttp

from datastore.database import Database
from tests.support.chaos.earthquakes import EarthquakeLoad
from tests.support.chaos.faults import FaultInjector, NotBack
from tests.support.chaos.memory import MemoryWatch
from tests.support.chaos.report import RunReport
from tests.support.chaos.schedule import PlannedFault, Schedule
from tests.support.chaos.subscribers import Subscribers, judge_list, judge_viewers
from tests.support.chaos.traffic import RecordedSpread, failure_counts
from tests.support.chaos.verdict import judge_writes
from tests.support.feed_workload import feed_differences, pipeline_settled
from tests.support.load_facts import facts_and_problems
from tests.support.loaded_deployment import LoadedDeployment, LoadSize, deployed
from tests.support.resuming_clients import EventStreamClient, SocketClient
from tests.support.until import until, until_async

ROLLING, STORM = "rolling restart", "several at once"
WARM_SECONDS = 4.0
STORM_WORKERS = 3
UPLOAD_SECONDS = 40.0
# Claims of a killed gateway last this long plus 30 s: clients that repeat their mutation wait for them.
DEADLINE_SECONDS = 10
CLAIM_SECONDS = DEADLINE_SECONDS + 30
# Clients wait longer than a gateway takes to respond.
CLIENT_SECONDS = DEADLINE_SECONDS + 5.0
SETTLING_SECONDS = 180.0
SETTINGS = {"GATEWAY_DEADLINE_SECONDS": str(DEADLINE_SECONDS), "GATEWAY_ANONYMOUS_BUDGET_UNITS": "0"}


class ChaosRun:
    """A run in a folder, in which the logs of all processes stay. `per_second` is the number of requests."""

    def __init__(self, folder: Path, seed: int, minutes: float, per_second: float) -> None:
        self._folder = folder
        self._seconds = 60 * minutes
        self._per_second = per_second
        self._seed = seed
        self._schedule = Schedule(seed, minutes)
        self.report = RunReport(seed, minutes)

    async def run(self) -> RunReport:
        size = LoadSize(
            viewers=4, uploaders=4, seed=self._seed, persistent=True, transports=(SocketClient, EventStreamClient)
        )
        options = {"as_operated": True, "lease_seconds": 10.0, "clock_times": 1.0}
        async with (
            deployed(
                self._folder, self._seconds, size, upload_seconds=UPLOAD_SECONDS, settings=SETTINGS, **options
            ) as (world, database),
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http,
        ):
            spread = RecordedSpread(http, world.deployment.urls, CLIENT_SECONDS)
            spread.per_second = self._per_second
            world.served.http = spread
            self._earthquakes = EarthquakeLoad(world.served, world.load.truth)
            subscribers = Subscribers(world.served, http, world.deployment.urls)
            await subscribers.begin()
            try:
                await self._work(world, spread, FaultInjector(world, http))
                await self._settle(world, database, subscribers)
            finally:
                subscribers.leave()
            self.report.requests = spread.requests
            self.report.uploads = dict(world.uploads.outcomes)
            self.report.problems += [f"a response that no gateway may send: {one}" for one in spread.broken]
        self.report.conclude()
        return self.report

    # The faults

    async def _work(self, world: LoadedDeployment, spread: RecordedSpread, injector: FaultInjector) -> None:
        """Inject all faults while the clients work."""
        over = asyncio.Event()
        memory = self.report.memory = MemoryWatch(world.deployment)
        watching = asyncio.create_task(memory.watch())
        loads = (world, self._earthquakes)
        working = [
            asyncio.create_task(work) for work in (*(load.work_until(over) for load in loads), spread.probe_until(over))
        ]
        self.report.outages = injector.outages
        try:
            await self._faults(injector, spread)
        except* NotBack as group:
            self.report.problems += [str(problem) for problem in leaves(group)]
        over.set()
        await self._step("the clients do not end", lambda: asyncio.wait_for(asyncio.gather(*working), SETTLING_SECONDS))
        watching.cancel()

    async def _faults(self, injector: FaultInjector, spread: RecordedSpread) -> None:
        end = time.monotonic() + self._seconds
        await asyncio.sleep(WARM_SECONDS)
        await self._rolling_restart(injector, spread)
        async with asyncio.TaskGroup() as lanes:
            for number, lane in enumerate(self._schedule.lanes):
                lanes.create_task(self._lane(injector, lane, is_phase=number == 0))
        # A second restart in turn needs clients that wait for no claim of a killed gateway.
        last = CLAIM_SECONDS + 45.0 if self._schedule.is_long else 0.0
        with self.report.phases.phase(STORM):
            async with asyncio.TaskGroup() as storm:
                for _ in range(STORM_WORKERS):
                    storm.create_task(self._storm(injector, end - last))
        if self._schedule.is_long:
            await asyncio.sleep(CLAIM_SECONDS)
            await self._rolling_restart(injector, spread)

    async def _rolling_restart(self, injector: FaultInjector, spread: RecordedSpread) -> None:
        began = time.monotonic()
        with self.report.phases.phase(ROLLING):
            await injector.restart_in_turn()
        ended = time.monotonic()
        await spread.until_ended(ended)
        failed = failure_counts([request for request in spread.requests if began <= request.began <= ended])
        if failed:
            self.report.problems.append(f"failed requests of a rolling restart: {dict(failed)}")

    async def _lane(self, injector: FaultInjector, faults: list[PlannedFault], *, is_phase: bool) -> None:
        for fault in faults:
            if is_phase:
                with self.report.phases.phase(fault.name):
                    await injector.inject(fault)
            else:
                await injector.inject(fault)
            await asyncio.sleep(0.3)

    async def _storm(self, injector: FaultInjector, end: float) -> None:
        while time.monotonic() < end:
            fault = self._schedule.next_of_storm()
            if not injector.is_busy(fault.process):
                await injector.inject(fault)
            await asyncio.sleep(self._schedule.rest())

    # The comparison

    async def _settle(self, world: LoadedDeployment, database: Database, subscribers: Subscribers) -> None:
        """Wait until counts have converged and all events have arrived, and compare."""
        began = time.monotonic()
        await self._step("a viewer lacks the end of the match", lambda: _all_seen(world))
        await self._step("the feed's pipeline does not reach the end of its stream", lambda: _pipeline(world, database))
        await self._step("photos", lambda: world.uploads.check(database, world.deployment.objects, SETTLING_SECONDS))
        stored, _ = await facts_and_problems(database)
        sightings = [fact[1] for fact in stored if fact[0] == "sighting"]
        await self._step("subscribers lack events", lambda: self._arrived(subscribers, sightings))
        await self._step(
            "statistics of earthquakes", lambda: until_async(self._earthquakes.is_counted, SETTLING_SECONDS)
        )
        await self._step("the feed", lambda: _feed_is_right(world))
        await self._step("dead letters", world.check_letters)
        await self._step("the score of the match", world.check_score)
        await self._step("reads", lambda: _reads_are_right(world))
        await self._step("writes", lambda: self._judge_writes(world, database))
        self.report.settled_seconds = time.monotonic() - began
        self.report.streams = {
            "sightingReported": judge_list(subscribers.reported, sightings),
            "watchAlerts": judge_list(subscribers.alerts, sightings),
            "earthquakeDetected": judge_list(subscribers.detected, self._earthquakes.stored),
            "matchUpdates": judge_viewers(world.viewers, world.expected),
        }

    async def _arrived(self, subscribers: Subscribers, sightings: list[str]) -> None:
        await until(lambda: subscribers.have(sightings, self._earthquakes.stored), SETTLING_SECONDS / 2)

    async def _judge_writes(self, world: LoadedDeployment, database: Database) -> None:
        self.report.writes = await judge_writes(world.load.truth, world.workload.model, database)

    async def _step(self, name: str, step: Callable[[], Awaitable[object]]) -> None:
        """Await a part of the comparison. Its failure is a problem of the report, and the other parts follow."""
        try:
            await step()
        except* (AssertionError, TimeoutError) as group:
            for error in leaves(group):
                frame = traceback.extract_tb(error.__traceback__)[-1]
                where = f"{Path(frame.filename).name}:{frame.lineno}"
                late = "it takes too long" if isinstance(error, TimeoutError) else ""
                self.report.problems.append(f"{name}: {late or f'{where}: {str(error) or frame.line}'}")


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions of a group, and of groups in it."""
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from leaves(one)
    else:
        yield error


async def _all_seen(world: LoadedDeployment) -> None:
    async with asyncio.timeout(SETTLING_SECONDS):
        for viewer in world.viewers:
            await viewer.has_seen_all()


async def _pipeline(world: LoadedDeployment, database: Database) -> None:
    await pipeline_settled(database.client, world.served.store, database.prefix, SETTLING_SECONDS)


async def _feed_is_right(world: LoadedDeployment) -> None:
    """Compare counters, home feeds, notifications and boards, as clients read them, with the model's."""
    found = await feed_differences(world.workload)
    assert not found, f"{len(found)} differences, found and expected: {dict(list(found.items())[:5])}"


async def _reads_are_right(world: LoadedDeployment) -> None:
    """Read every fact of each actor once more. No read of the run was wrong, and no write got an undeclared error."""
    load = world.load
    for actor in load.actors:
        for read in load.reads:
            await actor.read(read(actor))
    assert not load.report.undeclared, load.report.undeclared[:5]
    assert not load.report.wrong, load.report.wrong[:5]
