"""The live score pipeline in a process of its own, which tells what it used."""

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

from benchmarks.child import Child, obey, started
from benchmarks.invented_matches import InventedMatches, MatchClock
from benchmarks.measuring import run
from datastore.database import StoreOptions, open_database
from datastore.dynamodb.calls import Call
from datastore.matches.active_matches import ActiveMatches
from datastore.session.metering import Deadline
from datastore.session.store import Store
from pipelines.matches.live.orchestrator import TICK_SECONDS
from pipelines.matches.live.poller import LiveChange, Tick
from pipelines.matches.pipeline import CricketPipeline
from pipelines.matches.push.push_delivery import LoggedDelivery

START_SECONDS = 60.0
RECONCILES = 5


@dataclass(slots=True)
class _Ticked:
    """One tick, and its calls: tables, operation, units. `outcome` is None until it ends, and when it fails."""

    outcome: Tick | None = None
    calls: list[tuple[str, str, float]] = field(default_factory=list)


_current: ContextVar[_Ticked | None] = ContextVar("_current", default=None)


class Notes:
    """What is noted from `begin` on."""

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
        self.ticks: list[_Ticked] = []
        self.late: list[float] = []
        self.news: list[tuple[str, int, float, float, float]] = []
        self._provider.visible_since.clear()
        self._provider_before = self._provider.cpu
        self._wall, self._cpu = time.monotonic(), time.process_time()

    def tick_starts(self, match_id: str) -> _Ticked:
        """A tick is due so long after the one before began."""
        now = time.monotonic()
        if match_id in self._started:
            self.late.append(now - self._started[match_id] - TICK_SECONDS)
        self._started[match_id] = now
        ticked = _Ticked()
        self.ticks.append(ticked)
        self.polled[match_id] += 1
        return ticked

    def provider_answers(self, match_id: str) -> None:
        self._answered[match_id] = time.monotonic()

    def version_written(self, change: LiveChange) -> None:
        """Noted once for an answer: the first version tells the oldest news."""
        match_id = change.match.match_id
        visible = self._provider.visible_since.pop(match_id, None)
        if visible is not None:
            written = time.monotonic()
            self.news.append((match_id, change.active.version, visible, self._answered[match_id], written))

    def called(self, call: Call) -> None:
        ticked = _current.get()
        if ticked is not None:
            ticked.calls.append((",".join(call.tables), call.operation, call.units))

    def told(self) -> Mapping[str, Any]:
        calls: Counter[tuple[str, str, str]] = Counter()
        units: defaultdict[tuple[str, str, str], float] = defaultdict(float)
        for ticked in self.ticks:
            for tables, operation, used in ticked.calls:
                key = (str(ticked.outcome), tables, operation)
                calls[key] += 1
                units[key] += used
        return {
            "cpu": time.process_time() - self._cpu,
            "provider_cpu": self._provider.cpu - self._provider_before,
            "seconds": time.monotonic() - self._wall,
            "memory": memory(),
            "ticks": Counter(str(ticked.outcome) for ticked in self.ticks),
            "late": self.late,
            "calls": [[*key, number, units[key]] for key, number in calls.items()],
            "news": self.news,
        }


def memory() -> int:
    """Bytes of this process that are in memory; 0 where the system does not tell."""
    try:
        pages = Path("/proc/self/statm").read_text().split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


class _Noting(InventedMatches):
    notes: Notes

    async def match(self, match_id: str) -> Any:
        snapshot = await super().match(match_id)
        self.notes.provider_answers(match_id)
        return snapshot


def _noted(pipeline: CricketPipeline, notes: Notes) -> None:
    """Have the pipeline's ticks noted, with all they begin."""
    poll = pipeline.poller.tick

    async def tick(match_id: str) -> Tick:
        await notes.may_tick.wait()
        ticked = notes.tick_starts(match_id)
        _current.set(ticked)
        notes.ticking += 1
        try:
            ticked.outcome = await poll(match_id)
        finally:
            notes.ticking -= 1
        return ticked.outcome

    # The orchestrator asks for it at every tick.
    pipeline.poller.tick = tick  # type: ignore[method-assign]


def utc_now() -> datetime:
    return datetime.now(UTC)


async def main(engine: str, count: str) -> None:
    """Polls until its input ends. A line of input is a command, and has a line of output."""
    clock = MatchClock()
    provider = _Noting(int(count), clock, utc_now())
    notes = provider.notes = Notes(provider)
    async with open_database(StoreOptions(store=engine), on_call=notes.called) as database:

        def open_store() -> Store:
            return Store(database.client, prefix="", deadline=Deadline(20), token=lambda: str(uuid.uuid4()))

        pipeline = CricketPipeline(
            provider, open_store, LoggedDelivery(), instance_id="measured", now=utc_now, on_change=notes.version_written
        )
        _noted(pipeline, notes)
        async with pipeline.open():
            await pipeline.sync()
            polls = asyncio.create_task(pipeline.orchestrator.run())
            await obey(_Commands(int(count), clock, provider, notes, open_store).do)
            polls.cancel()
            await asyncio.wait([polls])


@dataclass(slots=True)
class _Commands:
    count: int
    clock: MatchClock
    provider: InventedMatches
    notes: Notes
    open_store: Callable[[], Store]

    async def do(self, command: str, *arguments: str) -> object:
        match command:
            case "ready":  # every match has been ticked after the first time, which tells all that was before
                return sum(ticks > 1 for ticks in self.notes.polled.values()) == self.count
            case "play":
                self.clock.play(float(arguments[0]))
                return None
            case "begin":
                self.notes.begin()
                return None
            case "tell":
                return self.notes.told()
            case "reconcile":
                return await self._reconciling()
        raise ValueError(command)

    async def _reconciling(self) -> float:
        """CPU milliseconds of what a reconcile reads. From now on nothing else is done."""
        self.notes.may_tick.clear()
        while self.notes.ticking:  # noqa: ASYNC110 - there is no hurry
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
    """So many matches that stand still are polled by a process of their own, until this ends."""
    async with started("benchmarks.match_pipeline", engine, str(matches)) as pipeline:
        async with asyncio.timeout(START_SECONDS):
            while not await pipeline.ask("ready"):  # noqa: ASYNC110 - it is another process
                await asyncio.sleep(0.2)
        yield pipeline


if __name__ == "__main__":
    run(main(*sys.argv[1:]))
