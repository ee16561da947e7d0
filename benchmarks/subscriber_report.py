"""The figures of very many subscribers as tables in plain text."""

from collections.abc import Iterator, Sequence

from benchmarks.subscribers import POLL_INTERVAL, SubscribersResult, Viewing
from benchmarks.text_table import table

CPU = "CPU ms of the server process per 1,000 deliveries"


def subscribers(result: SubscribersResult) -> Iterator[str]:
    yield f"Subscribers of one topic: {CPU}; lag from the write to the subscriber"
    yield f"(the stream is polled every {POLL_INTERVAL * 1000:g} ms; at rest: CPU ms of a second without events)"
    yield from _table(result.side_by_side, ("topic", "server"))
    yield ""
    yield f"More and more subscribers, each of the same document: {CPU}"
    yield from _table(result.growing, ("topic",))
    yield ""
    yield f"More and more documents, or variables (earthquakeDetected): {CPU}"
    yield from _table(result.different, ("topic", "different"))
    yield ""
    yield "Idle subscribers: what each holds in the server's memory"
    rows = [[one.server, str(one.subscribers), f"{one.kilobytes:.1f}", f"{one.rss_mb:.0f}"] for one in result.idle]
    yield from table(["server", "subscribers", "KB each", "RSS MB in all"], rows)


def _table(viewings: Sequence[Viewing], names: Sequence[str]) -> Iterator[str]:
    head = [*names, "subscribers", "events/s", "deliveries", "missing", "CPU ms", "p50 lag ms", "p99 lag ms"]
    head += ["first to last ms", "at rest", "RSS MB", "subscribers' % CPU"]
    yield from table(head, [_row(viewing, names) for viewing in viewings])


def _row(viewing: Viewing, names: Sequence[str]) -> list[str]:
    told = viewing.figures
    return [
        *(str(told[name]) for name in names),
        str(told["subscribers"]),
        f"{told['events_per_second']:g}",
        f"{told['deliveries']:.0f}",
        str(told["missing"]),
        f"{told['cpu_ms']:.1f}",
        *(f"{told[name]:.0f}" for name in ("lag_p50_ms", "lag_p99_ms", "burst_ms", "resting_ms", "rss_mb")),
        f"{told['crowd_share'] * 100:.0f}",
    ]
