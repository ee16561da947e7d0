"""Plain-text tables of the figures of live matches."""

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
    row = [str(result.matches), str(result.ticks), f"{result.changed * 100:.0f}", *(f"{value:.2f}" for value in cpu)]
    row += [f"{result.cpu_share * 100:.0f}", *(f"{value:.1f}" for value in late)]
    yield from table(head, [row + [f"{bytes / MEGABYTE:.0f}" for bytes in result.memory]])


def calls(result: TickResult) -> Iterator[str]:
    yield "DynamoDB calls of one tick, and their write and read units (WU, RU), that finds a change or none"
    found = {(calls.table, calls.operation, calls.outcome): calls for calls in result.calls}
    rows = []
    for name, operation in dict.fromkeys((calls.table, calls.operation) for calls in result.calls):
        by_outcome = [found.get((name, operation, outcome)) for outcome in (CHANGED, UNCHANGED)]
        rows.append([name, operation, *(cell for calls in by_outcome for cell in _cells([calls] if calls else []))])
    totals = [[calls for calls in result.calls if calls.outcome == outcome] for outcome in (CHANGED, UNCHANGED)]
    rows.append(["all", "", *(cell for total in totals for cell in _cells(total))])
    yield from table(["table", "operation", "changed", "WU", "RU", "unchanged", "WU", "RU"], rows)


def _cells(some: Sequence[Calls]) -> list[str]:
    figures = [(calls.number, calls.write_units, calls.read_units) for calls in some]
    return [f"{sum(column):.1f}" for column in zip(*figures, strict=True)] if figures else ["0.0"] * 3


def naive(costs: Mapping[str, TickCost]) -> Iterator[str]:
    yield f"A tick that finds a ball: CPU ms, calls and units; × is the ratio to ours ({OURS})"
    ours, other = costs[OURS], costs[NAIVE]
    rows = []
    for name, cost in ((OURS, ours), (NAIVE, other)):
        cpu = [f"{cost.median_cpu:.2f}", f"{cost.cpu_ratio(ours):.2f}"]
        requested = [f"{cost.calls:.0f}", f"{cost.read_units:.1f}", f"{cost.write_units:.1f}"]
        rows.append([name, *cpu, *requested, f"{cost.write_units / ours.write_units:.2f}"])
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
        [str(result.matches), f"{result.poll_interval:g}", str(result.versions), str(result.missing)]
        + [f"{p50:.0f} / {p99:.0f}" for p50, p99 in (result.waiting, result.tick, result.delivery, result.total)]
        + [f"{result.gateway_cpu * 100:.0f}"]
        for result in results
    ]
    yield from table(head, rows)
