"""The memory of a deployment's processes during a run, and its bounds."""

import asyncio
import time
from contextlib import suppress
from statistics import linear_regression

from tests.support.chaos.schedule import ENGINE, ENGINE_PROCESS, PROCESSES, REDIS
from tests.support.deployment import CRICKETS, FEEDS, GATEWAYS, PROXY, STATISTICS, Deployment
from tests.support.vital_signs import resident_megabytes

EVERY_SECONDS = 1.0
# The resident memory that no process needs, in MB. docs/resources.md states 300 for a gateway with full caches, and
# less than 90 for others at their start.
BOUNDS = {
    **dict.fromkeys(GATEWAYS, 300.0),
    **dict.fromkeys((*FEEDS, *CRICKETS, STATISTICS), 200.0),
    ENGINE: 200.0,
    ENGINE_PROCESS: 200.0,
    REDIS: 100.0,
    PROXY: 100.0,
}
# Growth that is a leak, and the time after which it counts: caches fill first, and operations are compiled.
MOST_A_MINUTE = 30.0
WARM_SECONDS, LEAST_SECONDS = 20.0, 60.0

Samples = list[tuple[float, float]]


class MemoryWatch:
    """Samples of resident memory in MB, by name and id of each process."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self.samples: dict[tuple[str, int], Samples] = {}

    async def watch(self) -> None:
        """Take samples until cancelled."""
        while True:
            self.look()
            await asyncio.sleep(EVERY_SECONDS)

    def look(self) -> None:
        for name, part in self._deployment.parts.items():
            if part.is_running and part.process is not None:
                self._note(name, part.process.pid)
        child = self._deployment.engine_child()
        if child:
            self._note(ENGINE_PROCESS, child)

    def _note(self, name: str, process: int) -> None:
        with suppress(OSError, ValueError, IndexError):  # it ends at this moment
            self.samples.setdefault((name, process), []).append((time.monotonic(), resident_megabytes(process)))

    def of(self, name: str) -> list[Samples]:
        """Return the samples of each process of this name, in the order of their starts."""
        return [samples for (of, _), samples in self.samples.items() if of == name]

    def problems(self) -> list[str]:
        return [problem for name in PROCESSES for samples in self.of(name) for problem in judge_memory(name, samples)]


def judge_memory(name: str, samples: Samples) -> list[str]:
    """Return what is wrong with the memory of a process: it exceeds its bound, or grows without end."""
    most = max((megabytes for _, megabytes in samples), default=0.0)
    found = [f"{name} has {most:.0f} MB, more than {BOUNDS[name]:.0f}."] if most > BOUNDS[name] else []
    growth = growth_per_minute(samples)
    if growth is not None and growth > MOST_A_MINUTE:
        found.append(f"{name} grows by {growth:.0f} MB per minute.")
    return found


def growth_per_minute(samples: Samples) -> float | None:
    """Return the growth of a process in MB after its first seconds; None if it did not live long enough."""
    warm = [sample for sample in samples if sample[0] - samples[0][0] >= WARM_SECONDS]
    if not warm or warm[-1][0] - warm[0][0] < LEAST_SECONDS:
        return None
    seconds, megabytes = zip(*warm, strict=True)
    return 60 * linear_regression(seconds, megabytes).slope
