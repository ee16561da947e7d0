"""The figures of live matches as tables in plain text."""

from collections.abc import Iterator, Mapping, Sequence

from benchmarks.matches import CHANGED, UNCHANGED, Calls, NewsResult, TickResult
from benchmarks.naive_tick import NAIVE, OURS, TickCost
from benchmarks.text_table import table
from pipelines.matches.live.orchestrator import RECONCILE_SECONDS, TICK_SECONDS

MEGABYTE = 1024 * 1024


def ticks(result: TickResult) -> Iterator[str]:
    yield f"Live matches: a tick of each every {TICK_SECONDS:g} s in one process; CPU ms without the provider's"
    head = ["matches", "ticks", "% changed", "CPU changed", "unchanged", f"reconcile each {RECONCILE_SECONDS:g} s"]
    head += ["% of a CPU", "p50 late ms", "p99 late ms", "MB at start", "at end"]
    cpu = (result.cpu_changed, result.cpu_unchanged, result.cpu_reconcile)
    late = (result.late_p50_ms, result.late_p99_ms)
    row = [str(result.matches), str(result.ticks), f"{result.changed * 100:.0f}", *(f"{one:.2f}" for one in cpu)]
    row += [f"{result.cpu_share * 100:.0f}", *(f"{one:.1f}" for one in late)]
    yield from table(head, [row + [f"{bytes / MEGABYTE:.0f}" for bytes in result.memory]])


def calls(result: TickResult) -> Iterator[str]:
    yield "DynamoDB calls of one tick, and their write and read units (WU, RU), that finds a change or none"
    found = {(one.table, one.operation, one.outcome): one for one in result.calls}
    rows = []
    for name, operation in dict.fromkeys((one.table, one.operation) for one in result.calls):
        of_both = [found.get((name, operation, outcome)) for outcome in (CHANGED, UNCHANGED)]
        rows.append([name, operation, *(cell for one in of_both for cell in _cells([one] if one else []))])
    of_each = [[one for one in result.calls if one.outcome == outcome] for outcome in (CHANGED, UNCHANGED)]
    rows.append(["all", "", *(cell for both in of_each for cell in _cells(both))])
    yield from table(["table", "operation", "changed", "WU", "RU", "unchanged", "WU", "RU"], rows)


def _cells(some: Sequence[Calls]) -> list[str]:
    figures = [(one.number, one.write_units, one.read_units) for one in some]
    return [f"{sum(column):.1f}" for column in zip(*figures, strict=True)] if figures else ["0.0"] * 3


def naive(costs: Mapping[str, TickCost]) -> Iterator[str]:
    yield f"A tick that finds a ball: CPU ms, calls and units; × is the ratio to ours ({OURS})"
    ours, other = costs[OURS], costs[NAIVE]
    rows = []
    for name, cost in ((OURS, ours), (NAIVE, other)):
        cpu = [f"{cost.median_cpu:.2f}", f"{cost.cpu_ratio(ours):.2f}"]
        asked = [f"{cost.calls:.0f}", f"{cost.read_units:.1f}", f"{cost.write_units:.1f}"]
        rows.append([name, *cpu, *asked, f"{cost.write_units / ours.write_units:.2f}"])
    yield from table(["tick", "CPU ms", "×", "calls", "read units", "write units", "×"], rows)


def news(results: Sequence[NewsResult]) -> Iterator[str]:
    yield "From a ball at the provider to a subscriber of `liveScores`: p50 / p99 ms"
    head = [
        "matches",
        "poll s",
        "versions",
        "missing",
        "until asked",
        "until written",
        "until received",
        "in all",
        "gateway % CPU",
    ]
    rows = [
        [str(one.matches), f"{one.poll_interval:g}", str(one.versions), str(one.missing)]
        + [f"{p50:.0f} / {p99:.0f}" for p50, p99 in (one.waiting, one.tick, one.delivery, one.total)]
        + [f"{one.gateway_cpu * 100:.0f}"]
        for one in results
    ]
    yield from table(head, rows)
