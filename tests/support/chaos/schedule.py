"""The faults of a run, in an order that follows from its seed."""

import random
from dataclasses import dataclass

from tests.support.deployment import CRICKETS, FEEDS, GATEWAYS, PROXY, STATISTICS

KILL, PAUSE = "kill", "pause"
ENGINE, ENGINE_PROCESS, REDIS = "engine", "engine's process", "redis"
# On the path of requests, and beside it: the two lanes run concurrently.
LANES = ((*GATEWAYS, ENGINE, ENGINE_PROCESS, REDIS, PROXY), (*FEEDS, *CRICKETS, STATISTICS))
PROCESSES = tuple(name for lane in LANES for name in lane)
# A service manager restarts a process within this time.
RESTART_SECONDS = (0.1, 1.5)
SHORT_SECONDS = (1.5, 3.5)
# Longer than leases, locks and the time-outs of clients.
LONG_SECONDS = (11.0, 14.0)
LONG_RUN_MINUTES = 5.0


@dataclass(frozen=True)
class PlannedFault:
    """A process is killed and started again after `seconds`, or is paused for `seconds`."""

    process: str
    kind: str
    seconds: float

    @property
    def name(self) -> str:
        return f"{self.kind} {self.process}"


class Schedule:
    """The order of faults: first each pair of process and fault once, in two lanes, then an endless storm."""

    def __init__(self, seed: int, minutes: float) -> None:
        self._rng = random.Random(f"{seed} faults")
        self.is_long = minutes >= LONG_RUN_MINUTES
        self.lanes = [self._lane(names) for names in LANES]

    def _lane(self, names: tuple[str, ...]) -> list[PlannedFault]:
        faults = [self._fault(name, kind) for name in names for kind in (KILL, PAUSE)]
        if self.is_long:
            faults += [PlannedFault(name, PAUSE, self._rng.uniform(*LONG_SECONDS)) for name in names]
        self._rng.shuffle(faults)
        return faults

    def _fault(self, name: str, kind: str) -> PlannedFault:
        return PlannedFault(name, kind, self._rng.uniform(*(RESTART_SECONDS if kind == KILL else SHORT_SECONDS)))

    def next_of_storm(self) -> PlannedFault:
        return self._fault(self._rng.choice(PROCESSES), self._rng.choice((KILL, PAUSE)))

    def rest(self) -> float:
        """Return the seconds between two faults of a worker of the storm."""
        return self._rng.uniform(0.0, 4.0)
