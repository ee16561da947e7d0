"""Plain-text tables of the figures of whole servers."""

from collections.abc import Iterator, Mapping, Sequence

from benchmarks.contenders import Result
from benchmarks.measuring import median_ratio
from benchmarks.text_table import table
from benchmarks.workloads import WORKLOADS


def workloads(results: Sequence[Result]) -> Iterator[str]:
    """Yield the table of one contender."""
    titles = {workload.name: workload.title for workload in WORKLOADS}
    yield "Workloads: CPU ms per request of the server process, its memory and its DynamoDB calls"
    head = ["workload", "at a time", "CPU ms", "req/s", "p50 ms", "p99 ms", "RSS MB", "DynamoDB calls"]
    rows = [
        [
            f"{result.workload} {titles.get(result.workload, '')}".rstrip(),
            str(result.concurrency),
            *_figures(result),
            _calls(result.calls),
        ]
        for result in results
    ]
    yield from table(head, rows)


def peers(results: Sequence[Result]) -> Iterator[str]:
    """Yield the tables of several contenders, of which the first is the gateway."""
    ours = results[0].contender
    yield "Servers side by side: CPU ms per request of the server process; × is the ratio to this gateway's"
    yield f"{results[0].concurrency} requests at a time from one client, with equal data and calls for all servers"
    head = ["workload", "server", "CPU ms", "×", "req/s", "p50 ms", "p99 ms", "RSS MB"]
    rows = [
        [result.workload, result.contender, *_with_ratio(_figures(result), ratio)]
        for result, ratio in zip(results, _ratios(results, ours), strict=True)
    ]
    yield from table(head, rows)
    yield ""
    yield "This gateway's CPU divided by that of each other server"
    yield from _shares(results, ours)


def _with_ratio(figures: Sequence[str], ratio: float) -> list[str]:
    return [figures[0], f"{ratio:.2f}", *figures[1:]]


def _ratios(results: Sequence[Result], ours: str) -> list[float]:
    own = {result.workload: result.cpu for result in results if result.contender == ours}
    return [median_ratio(result.cpu, own[result.workload]) for result in results]


def _shares(results: Sequence[Result], ours: str) -> Iterator[str]:
    names = list(dict.fromkeys(result.workload for result in results))
    shares: dict[str, list[str]] = {}
    for result, ratio in zip(results, _ratios(results, ours), strict=True):
        if result.contender != ours:
            shares.setdefault(result.contender, []).append(f"{1 / ratio:.2f}")
    yield from table(["server", *names], [[contender, *row] for contender, row in shares.items()])


def _figures(result: Result) -> list[str]:
    figures = result.figures
    return [
        f"{figures['cpu_ms']:.3f}",
        f"{figures['requests_per_second']:.0f}",
        f"{figures['p50_ms']:.2f}",
        f"{figures['p99_ms']:.2f}",
        f"{figures['rss_mb']:.0f}",
    ]


def _calls(calls: Mapping[str, int]) -> str:
    return " + ".join(f"{number} {operation}" for operation, number in sorted(calls.items()))
