"""The live score pipeline in a separate process that reports its usage."""

import asyncio
import gc
import os
import sys
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.child import Child, serve_commands, started
from benchmarks.invented_matches import InventedMatches, MatchClock
from benchmarks.measuring import run
from datastore.database import StoreOptions, open_database
from datastore.dynamodb.calls import Call
from datastore.matches.active_matches import ActiveMatches
from datastore.session.metering import Deadline
from datastore.session.store import Store
from pipelines.matches.live.orchestrator import TICK_SECONDS
from pipelines.matches.live.poller import LiveChange, TickOutcome
from pipelines.matches.pipeline import CricketPipeline
from pipelines.matches.push.push_service import LoggedPushService

START_SECONDS = 60.0
RECONCILES = 5


@dataclass(slots=True)
class _TickUsage:
    """The usage of one tick."""

    #: None until the tick ends, and if it fails.
    outcome: TickOutcome | None = None
    #: The tables, the operation and the units of each DynamoDB call.
    calls: list[tuple[str, str, float]] = field(default_factory=list)


_current: ContextVar[_TickUsage | None] = ContextVar("_current", default=None)


class PollMeter:
    """The usage since `begin`."""

    def __init__(self, provider: InventedMatches) -> None:
        self._provider = provider
        self._started: dict[str, float] = {}
        self._answered: dict[str, float] = {}
        self.polled: Counter[str] = Counter()
        self.may_tick = asyncio.Event()
        self.may_tick.set()
        self.ticking = 0
        self.begin()

    def begin(self) -> None:
        gc.collect()
        self.ticks: list[_TickUsage] = []
        self.late: list[float] = []
        self.news: list[tuple[str, int, float, float, float]] = []
        self._provider.visible_since.clear()
        self._provider_before = self._provider.cpu
        self._wall, self._cpu = time.monotonic(), time.process_time()

    def tick_starts(self, match_id: str) -> _TickUsage:
        """Record the start of a tick, and its lateness: it is due `TICK_SECONDS` after the previous start."""
        now = time.monotonic()
        if match_id in self._started:
            self.late.append(now - self._started[match_id] - TICK_SECONDS)
        self._started[match_id] = now
        usage = _TickUsage()
        self.ticks.append(usage)
        self.polled[match_id] += 1
        return usage

    def provider_answers(self, match_id: str) -> None:
        self._answered[match_id] = time.monotonic()

    def version_written(self, change: LiveChange) -> None:
        """Record the first version of a response, which contains its oldest change."""
        match_id = change.match.match_id
        visible = self._provider.visible_since.pop(match_id, None)
        if visible is not None:
            written = time.monotonic()
            self.news.append((match_id, change.active.version, visible, self._answered[match_id], written))

    def called(self, call: Call) -> None:
        usage = _current.get()
        if usage is not None:
            usage.calls.append((",".join(call.tables), call.operation, call.units))

    def report(self) -> Mapping[str, Any]:
        calls: Counter[tuple[str, str, str]] = Counter()
        units: defaultdict[tuple[str, str, str], float] = defaultdict(float)
        for usage in self.ticks:
            for tables, operation, used in usage.calls:
                key = (str(usage.outcome), tables, operation)
                calls[key] += 1
                units[key] += used
        return {
            "cpu": time.process_time() - self._cpu,
            "provider_cpu": self._provider.cpu - self._provider_before,
            "seconds": time.monotonic() - self._wall,
            "memory": memory(),
            "ticks": Counter(str(usage.outcome) for usage in self.ticks),
            "late": self.late,
            "calls": [[*key, number, units[key]] for key, number in calls.items()],
            "news": self.news,
        }


def memory() -> int:
    """Return the resident memory of this process in bytes; 0 if the system does not report it."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


class _MeteredProvider(InventedMatches):
    meter: PollMeter

    async def match(self, match_id: str) -> Any:
        snapshot = await super().match(match_id)
        self.meter.provider_answers(match_id)
        return snapshot


def _meter_ticks(pipeline: CricketPipeline, meter: PollMeter) -> None:
    """Wrap the pipeline's ticks so that their usage, including the tasks that they start, is recorded."""
    poll = pipeline.poller.tick

    async def tick(match_id: str) -> TickOutcome:
        await meter.may_tick.wait()
        usage = meter.tick_starts(match_id)
        _current.set(usage)
        meter.ticking += 1
        try:
            usage.outcome = await poll(match_id)
        finally:
            meter.ticking -= 1
        return usage.outcome

    # The orchestrator looks up the method at every tick.
    pipeline.poller.tick = tick  # type: ignore[method-assign]


def utc_now() -> datetime:
    return datetime.now(UTC)


async def main(engine: str, count: str) -> None:
    """Poll matches and handle commands until the input ends."""
    clock = MatchClock()
    provider = _MeteredProvider(int(count), clock, utc_now())
    meter = provider.meter = PollMeter(provider)
    async with open_database(StoreOptions(store=engine), on_call=meter.called) as database:

        def open_store() -> Store:
            return Store(database.client, prefix="", deadline=Deadline(20), token=lambda: str(uuid.uuid4()))

        pipeline = CricketPipeline(
            provider,
            open_store,
            LoggedPushService(),
            instance_id="measured",
            now=utc_now,
            on_change=meter.version_written,
        )
        _meter_ticks(pipeline, meter)
        async with pipeline.open():
            await pipeline.sync()
            polls = asyncio.create_task(pipeline.orchestrator.run())
            await serve_commands(_Commands(int(count), clock, provider, meter, open_store).handle)
            polls.cancel()
            await asyncio.wait([polls])


@dataclass(slots=True)
class _Commands:
    count: int
    clock: MatchClock
    provider: InventedMatches
    meter: PollMeter
    open_store: Callable[[], Store]

    async def handle(self, command: str, *arguments: str) -> object:
        match command:
            case "ready":  # every match has had a tick after its first one, which contains all earlier changes
                return sum(ticks > 1 for ticks in self.meter.polled.values()) == self.count
            case "play":
                self.clock.play(float(arguments[0]))
                return None
            case "begin":
                self.meter.begin()
                return None
            case "report":
                return self.meter.report()
            case "reconcile":
                return await self._reconcile_cpu()
        raise ValueError(command)

    async def _reconcile_cpu(self) -> float:
        """Return the CPU milliseconds of the reads of a reconciliation. Stops all ticks permanently."""
        self.meter.may_tick.clear()
        while self.meter.ticking:  # noqa: ASYNC110 - happens once
            await asyncio.sleep(0.01)
        used = []
        for _ in range(RECONCILES):
            began = time.process_time()
            await ActiveMatches(self.open_store(), utc_now()).all_latest()
            await self.provider.live()
            used.append((time.process_time() - began) * 1000)
        return median(used)


@asynccontextmanager
async def polling(engine: str, matches: int) -> AsyncIterator[Child]:
    """Start a process that polls `matches` matches, which are stopped at first, until the context exits."""
    async with started("benchmarks.match_pipeline", engine, str(matches)) as pipeline:
        async with asyncio.timeout(START_SECONDS):
            while not await pipeline.ask("ready"):  # noqa: ASYNC110 - it is another process
                await asyncio.sleep(0.2)
        yield pipeline


if __name__ == "__main__":
    run(main(*sys.argv[1:]))
