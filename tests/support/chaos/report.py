"""The page of results of a run."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from tests.support.chaos.faults import Outage
from tests.support.chaos.memory import BOUNDS, MemoryWatch, growth_per_minute
from tests.support.chaos.schedule import LANES, PROCESSES
from tests.support.chaos.subscribers import StreamVerdict
from tests.support.chaos.traffic import Phases, SentRequest, failure_counts, longest_outage
from tests.support.chaos.verdict import WriteVerdict

MOST_SHOWN = 10
FIGURE = re.compile(r"[-+]?[\d.,]+|–")


@dataclass
class RunReport:
    """The results of a run. It passed if `problems` is empty."""

    seed: int
    minutes: float
    requests: list[SentRequest] = field(default_factory=list)
    phases: Phases = field(default_factory=Phases)
    outages: list[Outage] = field(default_factory=list)
    writes: WriteVerdict = field(default_factory=WriteVerdict)
    streams: dict[str, StreamVerdict] = field(default_factory=dict)
    memory: MemoryWatch | None = None
    uploads: dict[str, int] = field(default_factory=dict)
    settled_seconds: float = 0.0
    problems: list[str] = field(default_factory=list)

    @property
    def acknowledged(self) -> int:
        return sum(request.is_acknowledged_write for request in self.requests)

    def conclude(self) -> None:
        """Add the problems that the figures show."""
        writes = {"lost": self.writes.lost, "doubled": self.writes.doubled, "differing": self.writes.others}
        for name, found in writes.items():
            self.problems += [f"{name} write: {one}" for one in found]
        for name, stream in self.streams.items():
            self.problems += [f"{name}: {one}" for one in stream.problems]
        if self.memory is not None:
            self.problems += self.memory.problems()

    def text(self) -> str:
        parts = [self._head(), self._streams(), self._phases(), self._faults(), self._memory(), self._verdict()]
        return "\n\n".join(part for part in parts if part)

    def events(self) -> str:
        """Return the faults and the failed requests in order, a line each, with seconds from the first request."""
        start = self.requests[0].began if self.requests else 0.0
        lines = [(phase.began, f"phase {phase.name} until {phase.ended - start:.2f}") for phase in self.phases.all]
        lines += [
            (one.began, f"{one.fault.name} until {one.ended - start:.2f}, back at {one.back - start:.2f}")
            for one in self.outages
        ]
        lines += [
            (one.began, f"failed after {one.seconds:.2f} s: {one.failure}: {one.details}")
            for one in self.requests
            if one.failure
        ]
        return "".join(f"{moment - start:8.2f} {line}\n" for moment, line in sorted(lines))

    def _head(self) -> str:
        sent = len(self.requests)
        failed = sum(failure_counts(self.requests).values())
        return "\n".join(
            [
                f"# Chaos: {self.minutes:g} minutes, seed {self.seed}",
                "",
                f"- {sent:,} requests, {failed:,} failed and were repeated or left; {len(self.outages)} faults",
                f"- {self.acknowledged:,} acknowledged writes: {len(self.writes.lost)} lost, "
                f"{len(self.writes.doubled)} doubled, {len(self.writes.others)} differing; "
                f"{self.writes.unacknowledged} stored without a response",
                f"- uploads of photos: {', '.join(f'{times} {name}' for name, times in sorted(self.uploads.items()))}",
                f"- all results as expected {self.settled_seconds:.0f} s after the last request",
            ]
        )

    def _streams(self) -> str:
        rows = [
            [
                name,
                *(one.subscribers, one.connections, one.events, one.delivered),
                *(len(one.lost), len(one.doubled), len(one.disordered), one.resyncs),
            ]
            for name, one in self.streams.items()
        ]
        head = ["subscription", "subscribers", "connections", "events", "delivered"]
        return table([*head, "lost", "doubled", "not in order", "RESYNC"], rows)

    def _phases(self) -> str:
        rows = []
        for name, requests in self.phases.by_name(self.requests).items():
            failed = failure_counts(requests)
            codes = ", ".join(f"{times} {code}" for code, times in failed.most_common())
            if requests:
                rows.append([name, len(requests), failed.total(), codes])
        return table(["phase", "requests", "failed", "failures"], rows)

    def _faults(self) -> str:
        """One row for each kind of fault. Outages of requests are those of faults without another one on their path."""
        rows = []
        names = dict.fromkeys(outage.fault.name for outage in self.outages)
        for name in sorted(names, key=lambda name: (PROCESSES.index(name.partition(" ")[2]), name)):
            outages = [outage for outage in self.outages if outage.fault.name == name]
            back = [outage.back - outage.ended for outage in outages]
            alone = [one for one in outages if self._is_alone(one)]
            away = [longest_outage(self.requests, one.began, one.back) for one in alone]
            slow = [self._slowest(one) for one in alone]
            longest = max(outage.ended - outage.began for outage in outages)
            times = [_seconds(longest), _seconds(*away), _seconds(*slow), _seconds(median(back)), _seconds(*back)]
            rows.append([name, len(outages), *times])
        head = ["fault", "times", "lasted at most, s", "longest outage, s", "slowest request, s"]
        return table([*head, "back after, s: median", "longest"], rows)

    def _is_alone(self, outage: Outage) -> bool:
        path = [one for one in self.outages if one.fault.process in LANES[0]]
        return outage in path and not any(one is not outage and one.overlaps(outage) for one in path)

    def _slowest(self, outage: Outage) -> float:
        during = (one.seconds for one in self.requests if outage.began <= one.began <= outage.back)
        return max(during, default=0.0)

    def _memory(self) -> str:
        if self.memory is None:
            return ""
        rows = []
        for name in PROCESSES:
            lives = self.memory.of(name)
            if not lives:
                continue
            growths = [growth for samples in lives if (growth := growth_per_minute(samples)) is not None]
            most = max(megabytes for samples in lives for _, megabytes in samples)
            grown = f"{max(growths):+.1f}" if growths else "–"
            rows.append([name, len(lives), f"{lives[-1][-1][1]:.0f}", f"{most:.0f}", f"{BOUNDS[name]:.0f}", grown])
        return table(["process", "started", "MB at the end", "at most", "bound", "growth per minute"], rows)

    def _verdict(self) -> str:
        if not self.problems:
            return "Passed."
        shown = [f"- {problem}" for problem in self.problems[:MOST_SHOWN]]
        rest = len(self.problems) - len(shown)
        return "\n".join([f"FAILED, {len(self.problems)} problems:", *shown, *([f"- and {rest} more"] if rest else [])])


def _seconds(*values: float) -> str:
    return f"{max(values):.1f}" if values else "–"


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table in Markdown. Columns of figures are on the right."""
    cells = [[*head], *[[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]]
    columns = [[row[at] for row in cells] for at in range(len(head))]
    is_figure = [all(FIGURE.fullmatch(cell) for cell in column[1:]) for column in columns]
    widths = [max(3, *map(len, column)) for column in columns]
    rule = ["-" * (width - 1) + ":" if figure else "-" * width for width, figure in zip(widths, is_figure, strict=True)]
    padded = [
        [
            cell.rjust(width) if figure else cell.ljust(width)
            for cell, width, figure in zip(row, widths, is_figure, strict=True)
        ]
        for row in cells
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in [padded[0], rule, *padded[1:]])
