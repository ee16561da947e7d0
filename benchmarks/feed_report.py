"""Plain-text tables of the feed's figures."""

from collections.abc import Iterator, Mapping, Sequence

from benchmarks.fan_out import FanOutResult
from benchmarks.feed_stream import StreamResult
from benchmarks.feeds import SIZE
from benchmarks.queries import QueryResult
from benchmarks.text_table import table

EMPTY = "–"


def queries(results: Sequence[QueryResult]) -> Iterator[str]:
    yield f"The feed at {SIZE} items: CPU ms per request of the server process, and what the request asks of DynamoDB"
    yield from _requests(results)


def pages(results: Sequence[QueryResult]) -> Iterator[str]:
    yield f"{SIZE} entries of a home feed, without and with an author who is merged"
    yield from _requests(results)


def _requests(results: Sequence[QueryResult]) -> Iterator[str]:
    rows = [
        [
            figures["query"],
            f"{figures['cpu_ms']:.2f}",
            f"{figures['p50_ms']:.1f}",
            f"{figures['p99_ms']:.1f}",
            f"{figures['read_units']:g}",
            _calls(figures["calls"]),
        ]
        for figures in (result.figures for result in results)
    ]
    yield from table(["query", "CPU ms", "p50 ms", "p99 ms", "read units", "DynamoDB calls"], rows)


def fan_out(result: FanOutResult) -> Iterator[str]:
    yield "Fan-out: seconds until the last feed was written; CPU, stream records, calls and units of the pipeline"
    rows = [
        [
            step.name,
            EMPTY if step.seconds is None else f"{step.seconds:.2f}",
            f"{step.cost.cpu:.2f}",
            f"{step.cost.records:.0f}",
            f"{step.cost.write_units:g}",
            f"{step.cost.read_units:g}",
            str(step.cost.calls.total()),
            _calls(step.cost.calls),
        ]
        for step in result.steps
    ]
    head = ["what happens", "seconds", "CPU s", "records", "write units", "read units", "calls", "DynamoDB calls"]
    yield from table(head, rows)


def stream(result: StreamResult) -> Iterator[str]:
    cost, operations = result.cost, sum(result.done.values())
    done = ", ".join(f"{number} {kind}s" for kind, number in result.done.items())
    yield f"The feed's pipeline, one instance: {done} already in the stream, and what handling them wrote"
    head = ["records", "seconds", "records/s", "done/s", "CPU ms a record", "CPU ms each", "calls each", "WU each"]
    row = [
        f"{cost.records:.0f}",
        f"{result.seconds:.1f}",
        f"{cost.records / result.seconds:.0f}",
        f"{operations / result.seconds:.0f}",
        f"{cost.cpu * 1000 / cost.records:.2f}",
        f"{cost.cpu * 1000 / operations:.2f}",
        f"{cost.calls.total() / operations:.2f}",
        f"{cost.write_units / operations:.1f}",
    ]
    yield from table([*head, "RU each"], [[*row, f"{cost.read_units / operations:.1f}"]])


def alone(result: StreamResult) -> Iterator[str]:
    yield "One thing done, and nothing else: calls, write and read units (WU, RU) of the mutation and of the pipeline"
    rows = [
        [
            name,
            _calls(gateway["calls"]),
            *(f"{gateway[unit]:.1f}" for unit in ("write_units", "read_units")),
            f"{pipeline['cpu_ms']:.1f}",
            f"{pipeline['records']:.0f}",
            *(f"{pipeline[unit]:.1f}" for unit in ("write_units", "read_units")),
            _calls(pipeline["calls"]),
        ]
        for name, (gateway, pipeline) in result.alone.items()
    ]
    head = ["done", "the gateway's calls", "WU", "RU", "pipeline's CPU ms", "records", "WU", "RU", "its calls"]
    yield from table(head, rows)


def _calls(calls: Mapping[str, float]) -> str:
    return " + ".join(f"{round(number, 1):g} {operation}" for operation, number in sorted(calls.items())) or EMPTY
