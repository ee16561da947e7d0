"""Plain-text tables of the figures of subscribers."""

from collections.abc import Iterator, Sequence

from benchmarks.subscribers import POLL_INTERVAL, SubscriberRun, SubscribersResult
from benchmarks.text_table import table

CPU = "CPU ms of the server process per 1,000 deliveries"


def subscribers(result: SubscribersResult) -> Iterator[str]:
    yield f"Subscribers of one topic: {CPU}; lag from the write to the subscriber"
    yield f"(the stream is polled every {POLL_INTERVAL * 1000:g} ms; at rest: CPU ms per second without events)"
    yield from _table(result.side_by_side, ("topic", "server"))
    yield ""
    yield f"Growing numbers of subscribers of the same document: {CPU}"
    yield from _table(result.growing, ("topic",))
    yield ""
    yield f"Growing numbers of different documents, or variables (earthquakeDetected): {CPU}"
    yield from _table(result.different, ("topic", "different"))
    yield ""
    yield "Idle subscribers: the server's memory per subscriber"
    rows = [[idle.server, str(idle.subscribers), f"{idle.kilobytes:.1f}", f"{idle.rss_mb:.0f}"] for idle in result.idle]
    yield from table(["server", "subscribers", "KB each", "RSS MB in all"], rows)


def _table(runs: Sequence[SubscriberRun], names: Sequence[str]) -> Iterator[str]:
    head = [*names, "subscribers", "events/s", "deliveries", "missing", "CPU ms", "p50 lag ms", "p99 lag ms"]
    head += ["first to last ms", "at rest", "RSS MB", "subscribers' % CPU"]
    yield from table(head, [_row(run, names) for run in runs])


def _row(run: SubscriberRun, names: Sequence[str]) -> list[str]:
    figures = run.figures
    return [
        *(str(figures[name]) for name in names),
        str(figures["subscribers"]),
        f"{figures['events_per_second']:g}",
        f"{figures['deliveries']:.0f}",
        str(figures["missing"]),
        f"{figures['cpu_ms']:.1f}",
        *(f"{figures[name]:.0f}" for name in ("lag_p50_ms", "lag_p99_ms", "burst_ms", "resting_ms", "rss_mb")),
        f"{figures['crowd_share'] * 100:.0f}",
    ]
