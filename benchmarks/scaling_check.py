"""`python -m benchmarks.scaling_check`: compares real runs with 1,000 and 10,000 viewers with the model.

The model's constants are measured first, with other numbers of viewers, so that a machine that is slower or busier than
that of docs/scaling.md affects both sides equally. The exit status is 1 if they differ by more than a quarter.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from benchmarks.scaling_model import ProcessCosts, process_cpu
from benchmarks.socket_servers import OURS
from benchmarks.subscribers import FEWER_FROM, FEWER_PER_SECOND, PER_SECOND, measured_server, open_many_files
from benchmarks.text_table import table
from benchmarks.topics import match_updates

VIEWERS = (1000, 10_000)
SECONDS = 8.0
MAX_DEVIATION = 0.25
# The runs that measure the constants: viewers at rest, and viewers with events per second.
AT_REST, REST_SECONDS = (100, 3000), 20.0
FEW, SELDOM, MANY = (300, 10.0), (300, 2.0), (3000, 3.0)
HEAD = ("viewers", "events/s", "measured", "model", "model / measured")
HEAD_OF_COSTS = ("CPU", "measured", "docs/scaling.md")


@dataclass(frozen=True, slots=True)
class Checked:
    """A run and the model's estimate: CPU milliseconds of the process for 1,000 deliveries."""

    viewers: int
    events: float
    measured: float
    costs: ProcessCosts = field(default_factory=ProcessCosts.stated)

    @property
    def model(self) -> float:
        return 1_000_000 * process_cpu(self.viewers, self.events, self.costs) / (self.viewers * self.events)

    @property
    def ratio(self) -> float:
        return self.model / self.measured

    @property
    def holds(self) -> bool:
        return abs(self.ratio - 1) <= MAX_DEVIATION


def costs_of(rests: tuple[float, float], few: float, seldom: float, many: float) -> ProcessCosts:
    """Return the costs that explain the runs, which are given in CPU seconds per second.

    `rests` are the runs with the viewers of `AT_REST`, the others are the runs of their names. Two rates with the same
    viewers separate the cost of an event from that of reading, which differs from the cost at rest.
    """
    socket = max((rests[1] - rests[0]) / (AT_REST[1] - AT_REST[0]), 0.0)
    event_to_few = (few - seldom) / (FEW[1] - SELDOM[1])
    reading = max(few - FEW[1] * event_to_few - FEW[0] * socket, 0.0)
    event_to_many = (many - reading - MANY[0] * socket) / MANY[1]
    delivery = max((event_to_many - event_to_few) / (MANY[0] - FEW[0]), 0.0)
    return ProcessCosts(max(event_to_few - FEW[0] * delivery, 0.0), delivery, socket, reading)


async def calibrate(seconds: float) -> ProcessCosts:
    """Measure the costs of a process in five runs."""
    rests, spent = [], []
    async with measured_server(OURS, match_updates()) as trial:
        for viewers, runs in zip(AT_REST, ((FEW, SELDOM), (MANY,)), strict=True):
            await trial.open(viewers)
            await trial.warm_up(viewers)
            rests.append(await trial.resting(REST_SECONDS) / 1000)
            for running, per_second in runs:
                delivered, _ = await trial.run(running, seconds, per_second)
                spent.append(delivered.cpu_ms * running * per_second / 1_000_000)
    few, seldom, many = spent
    return costs_of((rests[0], rests[1]), few, seldom, many)


async def check(viewers: Sequence[int], seconds: float) -> list[Checked]:
    """Measure the costs, then a run for each number of viewers of one match."""
    open_many_files()
    costs = await calibrate(seconds)
    found = []
    for count in viewers:
        events = FEWER_PER_SECOND if count > FEWER_FROM else PER_SECOND
        async with measured_server(OURS, match_updates()) as trial:
            delivered, _ = await trial.run(count, seconds, events)
        found.append(Checked(count, events, delivered.cpu_ms, costs))
    return found


def text(found: Sequence[Checked]) -> Iterator[str]:
    """Yield the lines of the report."""
    yield "CPU ms of a gateway for 1,000 deliveries"
    yield from table(HEAD, [_row(checked) for checked in found])
    if found:
        yield ""
        yield from table(HEAD_OF_COSTS, _costs(found[0].costs))


def _costs(costs: ProcessCosts) -> list[list[str]]:
    stated = ProcessCosts.stated()
    return [
        [name, f"{1e6 * measured_cost:.2f} µs", f"{1e6 * stated_cost:.2f} µs"]
        for name, measured_cost, stated_cost in zip(ProcessCosts._fields, costs, stated, strict=True)
    ]


def _row(checked: Checked) -> list[str]:
    figures = [f"{checked.measured:.1f}", f"{checked.model:.1f}", f"{checked.ratio:.2f}"]
    return [str(checked.viewers), f"{checked.events:g}", *figures]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling_check", description=__doc__)
    parser.add_argument("--viewers", type=int, nargs="+", default=VIEWERS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    given = parser.parse_args()
    found = asyncio.run(check(given.viewers, given.seconds))
    print("\n".join(text(found)))
    return 0 if all(checked.holds for checked in found) else 1


if __name__ == "__main__":
    sys.exit(main())
