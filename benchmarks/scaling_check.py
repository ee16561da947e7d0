"""`python -m benchmarks.scaling_check`: real runs with 1,000 and 10,000 viewers beside what the model says of them.

The status is 1 where they differ by more than a quarter. Take a machine with little else to do.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.scaling_model import process_cpu
from benchmarks.socket_servers import OURS
from benchmarks.subscribers import FEWER_FROM, FEWER_PER_SECOND, PER_SECOND, measured, open_many_files
from benchmarks.text_table import table
from benchmarks.topics import match_updates

VIEWERS = (1000, 10_000)
SECONDS = 8.0
MOST_APART = 0.25
HEAD = ("viewers", "events/s", "measured", "model", "model / measured")


@dataclass(frozen=True, slots=True)
class Checked:
    """CPU in milliseconds for 1,000 deliveries, all that the process does meanwhile included."""

    viewers: int
    events: float
    measured: float

    @property
    def model(self) -> float:
        return 1_000_000 * process_cpu(self.viewers, self.events) / (self.viewers * self.events)

    @property
    def ratio(self) -> float:
        return self.model / self.measured

    @property
    def holds(self) -> bool:
        return abs(self.ratio - 1) <= MOST_APART


async def check(viewers: Sequence[int], seconds: float) -> list[Checked]:
    """A run for each number of viewers, all of one match."""
    open_many_files()
    found = []
    for many in viewers:
        events = FEWER_PER_SECOND if many > FEWER_FROM else PER_SECOND
        async with measured(OURS, match_updates()) as trial:
            delivered, _ = await trial.run(many, seconds, events)
        found.append(Checked(many, events, delivered.cpu_ms))
    return found


def text(found: Sequence[Checked]) -> Iterator[str]:
    yield "CPU ms of a gateway for 1,000 deliveries"
    yield from table(HEAD, [_row(one) for one in found])


def _row(one: Checked) -> list[str]:
    return [str(one.viewers), f"{one.events:g}", f"{one.measured:.1f}", f"{one.model:.1f}", f"{one.ratio:.2f}"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling_check", description=__doc__)
    parser.add_argument("--viewers", type=int, nargs="+", default=VIEWERS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    given = parser.parse_args()
    found = asyncio.run(check(given.viewers, given.seconds))
    print("\n".join(text(found)))
    return 0 if all(one.holds for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
