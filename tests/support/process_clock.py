"""The clock of a process under test: off by some seconds, or faster than the others."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta


@dataclass(frozen=True)
class ProcessClock:
    """`began`: when all clocks were right (epoch seconds). `times`: how fast they run. `off`: seconds ahead."""

    began: float
    times: float = 1.0
    off: float = 0.0

    def __call__(self) -> datetime:
        passed = self.times * (time.time() - self.began) + self.off
        return datetime.fromtimestamp(self.began, UTC) + timedelta(seconds=passed)

    @property
    def arguments(self) -> list[str]:
        return [str(self.began), str(self.times), str(self.off)]


def process_clock(*numbers: str) -> Callable[[], datetime]:
    return ProcessClock(*map(float, numbers))
