"""Our counters and histograms are exported like those of `prometheus_client`."""

from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

import server.observability.operation_metrics  # noqa: F401 - switches series of creation times off
from server.observability.counters import CounterFamily, HistogramFamily

BOUNDS = (0.5, 1.0, 10.0)
LABELS = st.tuples(st.sampled_from(["a", 'b "quoted"\n\\']), st.sampled_from(["x", ""]))
VALUES = st.one_of(st.sampled_from([0.0, *BOUNDS]), st.floats(0, 1e6))


@settings(max_examples=25)
@given(st.lists(st.tuples(LABELS, VALUES)))
def test_the_output_equals_that_of_prometheus_client(seen: list[tuple[tuple[str, str], float]]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    count = CounterFamily(ours, "seen", "What was seen.", ("kind", "other"))
    spread = HistogramFamily(ours, "size", "How large.", BOUNDS, ("kind", "other"))
    their_count = Counter("seen", "What was seen.", ("kind", "other"), registry=theirs)
    their_spread = Histogram("size", "How large.", ("kind", "other"), buckets=BOUNDS, registry=theirs)
    for labels, value in seen:
        count.add(labels, value)
        spread.observe(labels, value)
        their_count.labels(*labels).inc(value)
        their_spread.labels(*labels).observe(value)
    assert generate_latest(ours) == generate_latest(theirs)
